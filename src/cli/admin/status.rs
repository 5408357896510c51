//! `pkgtool admin status`.

use std::fmt::Write as _;

use serde_json::json;

use super::super::directory::{DataDirectoryArgs, shown};
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::{bytes, data};
use pkgtool_serve::database::{DatabaseSize, DatabaseUrl, FileStats, disk_free};
use pkgtool_serve::task::{Statistics, Stores};

/// Arguments of `pkgtool admin status`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
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
    free: Option<u64>,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Exit, Failure> {
    let directory = data(&args.place)?;
    let stores = Stores::open(&DatabaseUrl::in_directory(&directory)).await?;
    let found = StorageStatus {
        tasks: stores.tasks().await?.statistics().await?,
        database: stores.space().await?,
        blobs: FileStats::below(&directory.join("blobs")),
        free: disk_free(&directory),
    };
    output::print(&if args.json {
        as_json(&found)
    } else {
        as_text(&found)
    })?;
    Ok(Exit::Clean)
}

fn as_text(found: &StorageStatus) -> String {
    let tasks = &found.tasks;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:14}{value}");
    };
    line("waiting", tasks.waiting.to_string());
    line("running", tasks.running.to_string());
    line("completed", tasks.completed.to_string());
    line("canceled", tasks.canceled.to_string());
    line(
        "oldest task",
        tasks.oldest.map_or_else(|| "none".to_owned(), shown),
    );
    let reusable = bytes(found.database.reusable);
    let database = bytes(found.database.bytes);
    line(
        "database",
        format!("{database}, of which {reusable} are free for reuse"),
    );
    let (count, size) = (found.blobs.count, bytes(found.blobs.bytes));
    line("blobs", format!("{count} files, {size}"));
    line(
        "disk free",
        found.free.map_or_else(|| "unknown".to_owned(), bytes),
    );
    text
}

fn as_json(found: &StorageStatus) -> String {
    let value = json!({
        "tasks": {
            "waiting": found.tasks.waiting,
            "running": found.tasks.running,
            "completed": found.tasks.completed,
            "canceled": found.tasks.canceled,
        },
        "oldestCreatedAt": found.tasks.oldest.map(|at| at.0),
        "database": {"bytes": found.database.bytes, "reusableBytes": found.database.reusable},
        "blobs": {"files": found.blobs.count, "bytes": found.blobs.bytes},
        "diskFreeBytes": found.free,
    });
    format!("{value:#}\n")
}
