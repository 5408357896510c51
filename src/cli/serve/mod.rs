//! `pkgtool serve`.

mod engines;
pub(super) mod log;
mod open_files;
mod parts;
mod places;
mod proxies;
mod published;
mod reload;
#[cfg(feature = "remote")]
mod sources;
#[cfg(not(feature = "remote"))]
#[path = "sources_absent.rs"]
mod sources;
mod training;
mod webhooks;
mod workers;

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::block_on::runtime;
use super::data_dir;
use super::device_args::DeviceArgs;
use super::exit::{Exit, Failure};
use super::output;
use log::LevelHandle;
use parts::RunningGateway;
use pkgtool_base::diagnostic::{TextTable, book};
use pkgtool_serve::database::DataLock;
use pkgtool_serve::gateway::settings::{
    CONFIG_FILE, DatabaseSetting, GatewaySettings, Listen, OptionalAddress, OptionalObjectsUrl,
    ServerRole,
};
use pkgtool_serve::gateway::{
    BatchRunner, BoundGate, BoundListener, Deadline, Gateway, ServeError, ServerCertificate,
};
use pkgtool_serve::objects::ObjectsUrl;
use pkgtool_serve::service::{Service, ServiceKind};
use places::MirrorPlaces;
use reload::Reload;
use sources::{PackageSources, SourceArgs};
use workers::GateListener;

/// Arguments of `pkgtool serve`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "serve"))]
pub(super) struct ServeArgs {
    /// Directories of packages, or addresses as for `pull` (https://…,
    /// hf:OWNER/REPOSITORY@REVISION). Each package becomes a service of the account `local`
    #[arg(value_name = "PACKAGES")]
    packages: Vec<PathBuf>,

    /// Address or host name with a port to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<Listen>,

    /// Address to accept workers on, which attach by `pkgtool attach` [default: off]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = OptionalAddress::parse)]
    gate: Option<OptionalAddress>,

    /// Directory for the database and stored results [default: the user's data directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// PostgreSQL database that several servers may share: `postgres://USER:PASSWORD@HOST/DATABASE` [default: a
    /// database in the data directory]
    #[arg(long, value_name = "URL")]
    database: Option<DatabaseSetting>,

    /// What this server does among those that share the database: all, api or dispatcher [default: all]
    #[arg(long, value_name = "ROLE")]
    role: Option<ServerRole>,

    /// Bucket for bodies, results, datasets and files of batches, `s3://BUCKET/PREFIX`; the variables
    /// AWS_* have its credentials [default: files in the data directory]
    #[arg(long, value_name = "URL")]
    objects: Option<ObjectsUrl>,

    /// Settings file [default: `gateway.toml` in the data directory, if it exists]
    #[arg(long, value_name = "FILE", env = "PKGTOOL_CONFIG")]
    config: Option<PathBuf>,

    /// Print all settings in force and exit
    #[arg(long)]
    print_config: bool,

    #[command(flatten)]
    sources: SourceArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool serve packages-examples
  pkgtool serve models/ --listen 0.0.0.0:8080 --data-dir /var/lib/pkgtool
  pkgtool serve hf:owner/repo@v2 more/packages --backend xnnpack
  pkgtool serve --print-config > gateway.toml";

/// Runs the command.
pub(super) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let settings = settings(args)?;
    if args.print_config {
        output::print(&settings.print())?;
        return Ok(Exit::Clean);
    }
    let (_log, level) = log::start(&settings.log).map_err(Failure::Other)?;
    runtime()?.block_on(serve(settings, args, level))
}

/// Reads the settings. Arguments override the environment, which overrides the file.
fn settings(args: &ServeArgs) -> Result<GatewaySettings, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let config = config_file(args)?;
    let mut settings =
        GatewaySettings::read(config.as_deref(), variables()).map_err(|error| other(&error))?;
    if let Some(listen) = &args.listen {
        settings.listen.clone_from(listen);
    }
    if let Some(gate) = args.gate {
        settings.workers.listen = gate;
    }
    if let Some(directory) = &args.data_dir {
        settings.data_dir.clone_from(directory);
    }
    if let Some(database) = &args.database {
        settings.database.clone_from(database);
    }
    if let Some(role) = args.role {
        settings.role = role;
    }
    if args.objects.is_some() {
        settings.objects.url = OptionalObjectsUrl(args.objects.clone());
    }
    if !args.packages.is_empty() {
        settings.packages.clone_from(&args.packages);
    }
    args.sources.apply(&mut settings);
    engines::name_devices(&args.device, &mut settings);
    settings.check_role().map_err(|error| other(&error))?;
    settings.data_dir = data_dir::of(&settings.data_dir).map_err(Failure::Other)?;
    Ok(settings)
}

/// Returns the path of the settings file, if there is one.
fn config_file(args: &ServeArgs) -> Result<Option<PathBuf>, Failure> {
    if let Some(config) = &args.config {
        return Ok(Some(config.clone()));
    }
    // The environment may set the data directory.
    let before = GatewaySettings::read(None, variables());
    let before = before.map_err(|error| Failure::Other(error.to_string()))?;
    let named = args.data_dir.clone().unwrap_or(before.data_dir);
    let found = data_dir::of(&named)
        .map_err(Failure::Other)?
        .join(CONFIG_FILE);
    Ok(found.is_file().then_some(found))
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

async fn serve(
    mut settings: GatewaySettings,
    args: &ServeArgs,
    level: LevelHandle,
) -> Result<Exit, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    open_files::fit_connections(&mut settings);
    let tls = ServerCertificate::read(&settings).map_err(|error| other(&error))?;
    let upstreams = proxies::upstream_options(&settings, args)?;
    let sources = PackageSources::of(&settings, &args.sources)?;
    // The address is bound first: only one server can get it, and mistakes show up before any file
    // is created.
    let listeners = listen(&settings).await?;
    let lock = DataLock::take(&settings.data_dir).map_err(|error| other(&error))?;
    let (listeners, places) = if sources.is_empty() {
        (listeners, MirrorPlaces::default())
    } else {
        // Close the listeners during the download, so that clients do not wait for an answer.
        drop(listeners);
        let places = tokio::task::block_in_place(|| sources.fetch(&settings.data_dir))?;
        (listen(&settings).await?, places)
    };
    let BoundListeners {
        public: bound,
        operators: for_operators,
        gate,
    } = listeners;
    let hangups = Arc::new(Notify::new());
    let signals = stop_signal(&hangups).map_err(|error| other(&error))?;
    let grace = settings.timeouts.grace();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let running = RunningGateway::start(settings, (lock, upstreams), &places).await?;
    let operators = for_operators.as_ref().map(BoundListener::address);
    let for_workers = gate.as_ref().map(BoundGate::address);
    let address = format!("{scheme}://{}", bound.address());
    let link = running.console_link(scheme, bound.address()).await?;
    print_startup(&running, &address, (operators, for_workers, link))?;
    tracing::info!(address = %bound.address(), operators = operators.map(tracing::field::display), "serving");
    if operators.is_none() {
        tracing::info!(
            "metrics include services and accounts only for a key with access to them; set `admin.listen` to include all"
        );
    }
    let gateway = Gateway::new(running.parts());
    let dispatches = gateway.settings.role.dispatches();
    let batches = dispatches.then(|| BatchRunner::start(&gateway));
    let mut beside = JoinSet::new();
    if let Some(bound) = for_operators {
        // This listener runs until the end, so that operators can observe a shutdown.
        beside.spawn(bound.serve(Arc::clone(&gateway), None, std::future::pending()));
    }
    let gate = gate.map(|gate| {
        let workers = Arc::clone(&gateway.workers);
        GateListener::serve(gate, workers, &gateway.settings, tls.clone())
    });
    if let Some(tls) = &tls {
        beside.spawn(tls.clone().follow(Arc::clone(&gateway)));
    }
    let reload = Reload {
        args: args.clone(),
        live: running.reload_targets(),
        tls: tls.clone(),
        level,
    };
    gateway.set_reload(Box::new(move || reload.now()));
    let asked = Arc::clone(&gateway);
    beside.spawn(async move {
        loop {
            hangups.notified().await;
            // The outcome is logged.
            let _ = tokio::task::block_in_place(|| asked.reload());
        }
    });
    let stop = |mut signals: watch::Receiver<bool>| async move {
        // The sender lives as long as the process.
        let _ = signals.wait_for(|stop| *stop).await;
        Deadline::after(grace)
    };
    let serving = bound.serve(gateway, tls, stop(signals.clone()));
    let end = running.stop(serving, stop(signals.clone()), batches, gate);
    let mut again = signals;
    tokio::select! {
        () = end => tracing::info!("stopped"),
        () = second_signal(&mut again) => tracing::warn!("stopped at once after a second signal"),
    }
    Ok(Exit::Clean)
}

/// All listeners of the gateway.
struct BoundListeners {
    public: BoundListener,
    operators: Option<BoundListener>,
    gate: Option<BoundGate>,
}

/// Binds the public listener, and those for operators and workers if the settings have them.
async fn listen(settings: &GatewaySettings) -> Result<BoundListeners, Failure> {
    let other = |error: ServeError| Failure::Other(error.to_string());
    let mut listeners = BoundListeners {
        public: bind(&settings.listen).await?,
        operators: None,
        gate: None,
    };
    if let Some(address) = settings.admin.listen.0 {
        let operators = BoundListener::bind(address).await.map_err(other)?;
        listeners.operators = Some(operators.for_operators());
    }
    if let Some(address) = settings.workers.listen.0 {
        listeners.gate = Some(BoundGate::bind(address).await.map_err(other)?);
    }
    Ok(listeners)
}

/// Binds the first available address.
async fn bind(listen: &Listen) -> Result<BoundListener, Failure> {
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let addresses = listen.addresses().await;
    let addresses =
        addresses.map_err(|error| other(&format_args!("cannot listen on {listen}: {error}")))?;
    let mut first = None;
    for address in addresses {
        match BoundListener::bind(address).await {
            Ok(bound) => return Ok(bound),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let first = first.map(|error| error.to_string());
    Err(Failure::Other(first.unwrap_or_else(|| {
        format!("cannot listen on {listen}: the name resolves to no address")
    })))
}

/// Prints the first API key if it was just created, and the packages that are served and not
/// served.
fn print_startup(
    running: &RunningGateway,
    address: &str,
    (operators, workers, link): (Option<SocketAddr>, Option<SocketAddr>, Option<String>),
) -> Result<(), Failure> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(secret) = running.first_key() {
        output::note(
            "created the account `local` with this API key, which is shown only this once; create more \
             with `pkgtool keys create`:",
        );
        let _ = writeln!(text, "{}", secret.reveal());
    }
    let services = running.services().all();
    let _ = writeln!(text, "serving {} services on {address}", services.len());
    let names: Vec<String> = services
        .iter()
        .map(|service| format!("{}/{}", service.owner_name, service.name))
        .collect();
    let mut table = TextTable::of_text(2).indented();
    for (service, name) in services.iter().zip(names) {
        table.row([name, summary(service)]);
    }
    let _ = write!(text, "{table}");
    if let Some(operators) = operators {
        let _ = writeln!(text, "metrics for operators: http://{operators}/metrics");
    }
    if let Some(workers) = workers {
        let _ = writeln!(text, "workers attach to: {workers}");
    }
    for device in running.devices() {
        let _ = writeln!(text, "device: {}", device.name);
    }
    if let Some(link) = link {
        let _ = writeln!(text, "console, by a link that logs in once: {link}");
    }
    let _ = writeln!(text, "API documentation: {address}/docs");
    output::print(&text)?;
    for unserved in running.services().unserved().iter() {
        output::print_message(
            "warning",
            &format!(
                "{} is not served: {}",
                unserved.path.display(),
                unserved.reason
            ),
        );
    }
    Ok(())
}

fn summary(service: &Arc<Service>) -> String {
    match &service.kind {
        ServiceKind::Proxy(upstream) => {
            let addresses: Vec<String> = upstream.addresses().map(|it| it.address).collect();
            format!("proxy to {}", addresses.join(", "))
        }
        ServiceKind::Attached(_) => "by workers that attach".to_owned(),
        ServiceKind::Untrained(_) => "not trained yet".to_owned(),
        ServiceKind::Device(device) => {
            let description = device.description();
            let backends = description.backends.join(", ");
            if description.runnable {
                backends
            } else {
                format!("{backends} (no engine here runs it)")
            }
        }
    }
}

/// Returns a channel that becomes true when the process is asked to stop, and changes again at a
/// second request.
///
/// SIGHUP asks for a reload of the settings. If it arrives because the server's terminal was
/// closed, it asks to stop.
pub(super) fn stop_signal(hangups: &Arc<Notify>) -> io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let hangups = Arc::clone(hangups);
        let had_terminal = has_terminal();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = hangup.recv() => {
                        if !had_terminal || has_terminal() {
                            hangups.notify_one();
                            continue;
                        }
                    }
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                sender.send_replace(true);
            }
        });
    }
    // On other systems, only operators can ask for a reload.
    #[cfg(not(unix))]
    let _ = hangups;
    #[cfg(not(unix))]
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            sender.send_replace(true);
        }
    });
    Ok(receiver)
}

/// Returns whether the server runs on a terminal.
#[cfg(unix)]
fn has_terminal() -> bool {
    use std::io::IsTerminal as _;
    io::stdin().is_terminal() || io::stderr().is_terminal()
}

pub(super) async fn second_signal(signals: &mut watch::Receiver<bool>) {
    for _ in 0..2 {
        if signals.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}
