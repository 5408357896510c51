//! `pkgtool task`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::ProgressBar;

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::progress;
use super::data::ContentArgs;
use super::{RemoteArgs, print_answer};
use pkgtool_serve::client::{Client, TaskResult, TaskStatus};

/// Interval between two frames of the spinner.
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// The operations on tasks.
#[derive(Debug, clap::Subcommand)]
pub(in super::super) enum TaskCommand {
    /// Create a task and print its id
    Create(Box<CreateArgs>),
    /// Print the state of a task as JSON
    Status(TaskArgs),
    /// Print the result of a task; exits with code 1 if it is not finished
    Result(ResultArgs),
    /// Cancel a task
    Cancel(TaskArgs),
    /// Delete a task that has ended, and its result
    Delete(TaskArgs),
    /// Wait for a task to end; exits with code 1 if it was canceled or failed
    Wait(WaitArgs),
    /// List tasks as JSON, newest first
    List(ListArgs),
}

/// Arguments of `pkgtool task create`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct CreateArgs {
    /// Service to call: its name, or ACCOUNT/NAME
    service: String,

    #[command(flatten)]
    content: ContentArgs,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// The arguments that identify one task.
#[derive(Debug, clap::Args)]
pub(in super::super) struct TaskArgs {
    /// Id of the task
    task: String,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Arguments of `pkgtool task result`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct ResultArgs {
    #[command(flatten)]
    one: TaskArgs,

    /// Write the result to a file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Arguments of `pkgtool task wait`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct WaitArgs {
    #[command(flatten)]
    one: TaskArgs,

    /// Maximum time to wait, in seconds
    #[arg(long, value_name = "S")]
    timeout: Option<u64>,

    /// Print the result instead of the final state
    #[arg(long)]
    result: bool,
}

/// Arguments of `pkgtool task list`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct ListArgs {
    /// List only tasks in this state
    #[arg(long, value_parser = ["QUEUED", "PROCESSING", "COMPLETED", "CANCELED"], ignore_case = true)]
    status: Option<String>,

    /// Maximum number of tasks to list
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the command.
pub(super) async fn run(command: &TaskCommand) -> Result<Exit, Failure> {
    match command {
        TaskCommand::Create(args) => create(args).await,
        TaskCommand::Status(args) => {
            let client = args.remote.client()?;
            let status = client
                .status(&args.remote.account, &args.task, false)
                .await?;
            output::print(&output::json(&status))?;
            Ok(Exit::Clean)
        }
        TaskCommand::Result(args) => {
            let ResultArgs { one, output } = args;
            fetch(&one.remote.client()?, one, output.as_ref()).await
        }
        TaskCommand::Cancel(args) => {
            let client = args.remote.client()?;
            client.cancel(&args.remote.account, &args.task).await?;
            Ok(Exit::Clean)
        }
        TaskCommand::Delete(args) => {
            let client = args.remote.client()?;
            client.delete(&args.remote.account, &args.task).await?;
            Ok(Exit::Clean)
        }
        TaskCommand::Wait(args) => wait(args).await,
        TaskCommand::List(args) => {
            let client = args.remote.client()?;
            let status = args.status.as_deref().map(str::to_uppercase);
            let limit = usize::from(args.limit);
            let tasks = client.list(&args.remote.account, status.as_deref(), limit);
            output::print(&output::json(&tasks.await?))?;
            Ok(Exit::Clean)
        }
    }
}

async fn create(args: &CreateArgs) -> Result<Exit, Failure> {
    let client = args.remote.client()?;
    let service = args.remote.service(&args.service);
    let task = client.create(&service, &args.content.request()?).await?;
    output::print(&format!("{task}\n"))?;
    Ok(Exit::Clean)
}

async fn fetch(client: &Client, one: &TaskArgs, file: Option<&PathBuf>) -> Result<Exit, Failure> {
    match client.result(&one.remote.account, &one.task).await? {
        TaskResult::Pending => {
            output::note("the task is not finished yet; wait for it with `pkgtool task wait`");
            Ok(Exit::Findings)
        }
        TaskResult::Ready(body) => {
            match file {
                None => print_answer(&body)?,
                Some(path) => fs::write(path, &body)
                    .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?,
            }
            Ok(Exit::Clean)
        }
    }
}

async fn wait(args: &WaitArgs) -> Result<Exit, Failure> {
    let one = &args.one;
    let client = one.remote.client()?;
    let spinner = spinner();
    let waited = client.wait(&one.remote.account, &one.task, |status| {
        spinner.set_message(describe_status(status));
    });
    let limit = args.timeout.map_or(Duration::MAX, Duration::from_secs);
    let Ok(ended) = tokio::time::timeout(limit, waited).await else {
        spinner.finish_and_clear();
        return Err(Failure::Other(format!(
            "task {} did not end within {} s and is still running",
            one.task,
            limit.as_secs()
        )));
    };
    spinner.finish_and_clear();
    let ended = ended?;
    if args.result {
        // For a failed task this prints its error.
        return fetch(&client, one, None).await;
    }
    output::print(&output::json(&ended))?;
    Ok(if ended.status == "COMPLETED" {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// Returns a spinner on standard error.
fn spinner() -> ProgressBar {
    let spinner = progress::styled(ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}");
    if !spinner.is_hidden() {
        spinner.enable_steady_tick(SPINNER_INTERVAL);
    }
    spinner
}

fn describe_status(status: &TaskStatus) -> String {
    match (status.status.as_str(), status.queue_position) {
        ("QUEUED", Some(place)) => format!("queued at position {place}"),
        ("QUEUED", None) => "queued".to_owned(),
        ("PROCESSING", _) => "runs".to_owned(),
        (other, _) => other.to_lowercase(),
    }
}
