//! `pkgtool admin status`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::super::directory::{DataDirectoryArgs, shown};
use super::super::exit::{Exit, Failure};
use super::super::report::{self, CommandReport};
use super::{bytes, data};
use pkgtool_serve::database::{DatabaseSize, FileStats, disk_free};
use pkgtool_serve::task::{BucketRecord, ServerInfo, Statistics, Stores};

/// Arguments of `pkgtool admin status`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: DataDirectoryArgs,
}

/// The numbers that the command shows.
struct StorageStatus {
    tasks: Statistics,
    database: DatabaseSize,
    blobs: FileStats,
    bucket: Option<String>,
    free: Option<u64>,
    /// Those that share the database; `None` if it is that of one server.
    servers: Option<Vec<ServerInfo>>,
}

/// Runs the command.
pub(super) async fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    let (directory, database) = data(&args.place)?;
    let stores = Stores::open(&database).await?;
    let found = StorageStatus {
        tasks: stores.tasks().await?.statistics().await?,
        database: stores.space().await?,
        blobs: FileStats::below(&directory.join("blobs")),
        bucket: BucketRecord::of(&directory).read()?.map(String::from),
        free: disk_free(&directory),
        servers: match stores.servers() {
            Some(servers) => Some(servers.list().await?),
            None => None,
        },
    };
    report::print(&found, args.json)?;
    Ok(Exit::Clean)
}

impl CommandReport for StorageStatus {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let tasks = &self.tasks;
        let reusable = bytes(self.database.reusable);
        let database = bytes(self.database.bytes);
        let blobs = self.bucket.as_ref().map_or_else(
            || format!("{} files, {}", self.blobs.count, bytes(self.blobs.bytes)),
            |bucket| format!("objects in {bucket}, not counted"),
        );
        let oldest = tasks.oldest.map_or_else(|| "none".to_owned(), shown);
        let free = self.free.map_or_else(|| "unknown".to_owned(), bytes);
        for (name, value) in [
            ("waiting", tasks.waiting.to_string()),
            ("running", tasks.running.to_string()),
            ("completed", tasks.completed.to_string()),
            ("canceled", tasks.canceled.to_string()),
            ("oldest task", oldest),
            (
                "database",
                format!("{database}, of which {reusable} are free for reuse"),
            ),
            ("blobs", blobs),
            ("disk free", free),
        ] {
            writeln!(text, "{name:14}{value}")?;
        }
        for server in self.servers.iter().flatten() {
            let (name, running) = (&server.name, server.running);
            let state = state_of(server);
            writeln!(text, "{:14}{name}: {state}, {running} running", "server")?;
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        json!({
            "tasks": {
                "waiting": self.tasks.waiting,
                "running": self.tasks.running,
                "completed": self.tasks.completed,
                "canceled": self.tasks.canceled,
            },
            "oldestCreatedAt": self.tasks.oldest.map(|at| at.0),
            "database": {"bytes": self.database.bytes, "reusableBytes": self.database.reusable},
            "blobs": {"files": self.blobs.count, "bytes": self.blobs.bytes},
            "objects": self.bucket,
            "diskFreeBytes": self.free,
            "servers": self.servers.as_ref().map(|servers| servers.iter().map(|server| json!({
                "name": server.name,
                "startedAt": server.started_at.0,
                "state": state_of(server),
                "running": server.running,
            })).collect::<Vec<_>>()),
        })
    }
}

fn state_of(server: &ServerInfo) -> &'static str {
    match server {
        server if server.lease.is_zero() => "silent",
        server if server.is_draining => "draining",
        _ => "alive",
    }
}
