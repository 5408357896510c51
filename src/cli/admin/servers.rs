//! `pkgtool admin drain` and `pkgtool admin requeue`: servers that share a database.

use std::time::{Duration, Instant};

use super::super::directory::{DataDirectoryArgs, span};
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::SharedDatabase;
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::task::{ServerInfo, SharedServers};

/// Interval between looks at a server that runs its last tasks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Arguments of `pkgtool admin drain`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct DrainArgs {
    /// Name of the server, as `pkgtool admin status` shows it, or its beginning
    #[arg(value_name = "SERVER")]
    server: String,

    /// How long to wait for its running tasks: 30s, 10m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = span)]
    wait: Duration,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Arguments of `pkgtool admin requeue`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct RequeueArgs {
    /// Name of the server, as `pkgtool admin status` shows it, or its beginning
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// Lets a server claim no more tasks, and waits for those that it runs.
pub(super) async fn drain(args: &DrainArgs) -> Result<Exit, Failure> {
    let servers = SharedDatabase::open(&args.place).await?.servers;
    let name = find(&servers, &args.server).await?.name;
    if !servers.drain(&name).await? {
        return Err(gone(&name));
    }
    let since = Instant::now();
    loop {
        let all = servers.list().await?;
        let running = all.iter().filter(|server| server.name == name);
        let running: u64 = running.map(|server| server.running).sum();
        if running == 0 {
            output::print(&format!(
                "{name} claims no more tasks and runs none; stop it\n"
            ))?;
            return Ok(Exit::Clean);
        }
        if since.elapsed() >= args.wait {
            return Err(Failure::Other(format!(
                "{name} still runs {running} tasks; it claims no more: wait longer (--wait), or stop it, which returns \
                 them to the queue"
            )));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Returns the running tasks of a server to the queue.
pub(super) async fn requeue(args: &RequeueArgs) -> Result<Exit, Failure> {
    let servers = SharedDatabase::open(&args.place).await?.servers;
    let name = find(&servers, &args.server).await?.name;
    let attempts = GatewaySettings::default().limits.attempts;
    let count = servers.requeue(&name, attempts).await?;
    output::print(&format!("{count} tasks of {name} returned to the queue\n"))?;
    Ok(Exit::Clean)
}

/// Finds the server whose name begins with a text.
async fn find(servers: &SharedServers, name: &str) -> Result<ServerInfo, Failure> {
    let all = servers.list().await?;
    let mut found = all
        .into_iter()
        .filter(|server| server.name.starts_with(name));
    let first = found.next().ok_or_else(|| gone(name))?;
    if found.any(|other| other.name != first.name) {
        return Err(Failure::Other(format!(
            "several servers have names that begin with `{name}`; `pkgtool admin status` shows them"
        )));
    }
    Ok(first)
}

fn gone(name: &str) -> Failure {
    Failure::Other(format!(
        "no server has a name that begins with `{name}`; `pkgtool admin status` shows them"
    ))
}
