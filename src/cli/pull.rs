//! `pkgtool pull`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::exit::{Exit, Failure};
use super::far;
use super::output;
use pkgtool_base::diagnostic::book;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::package::{Backend, config};
use pkgtool_check::validate::{self, ValidationOptions};
use pkgtool_remote::pull::{self, ProgressStep, PullOptions, PullProgress, PullResult};
use pkgtool_remote::{Address, RemoteError};

/// Commands that download packages.
#[derive(Debug, clap::Subcommand)]
pub(super) enum PullCommand {
    /// Download a package, verify it and validate it
    Pull(PullArgs),
}

/// Arguments of `pkgtool pull`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(super::exit::HELP, "remote"))]
pub(super) struct PullArgs {
    /// Source of the package: https://…, or hf:OWNER/REPOSITORY, optionally followed by @REVISION
    /// and /PATH
    #[arg(value_name = "SOURCE")]
    source: String,

    /// Destination directory, created if missing. An interrupted download there is resumed
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Download only packages for this backend; may be given several times
    #[arg(long = "backend", value_name = "NAME", value_parser = backend)]
    backends: Vec<Backend>,

    /// Download only variants of this precision; may be given several times
    #[arg(long = "precision", value_name = "TOKEN")]
    precisions: Vec<String>,

    /// Overwrite local files that differ from the source
    #[arg(long)]
    force: bool,

    /// Also verify files against the SHA-256 sums in this file. A SHA256SUMS file of the source is
    /// always used
    #[arg(long, value_name = "FILE")]
    checksum: Option<PathBuf>,

    /// Don't validate the downloaded packages
    #[arg(long)]
    no_validate: bool,

    /// Number of files to download in parallel
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,

    /// Print no progress bar and no summary
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    far: far::FarArgs,
}

/// Runs the command.
pub(super) fn run(command: &PullCommand) -> Result<Exit, Failure> {
    let PullCommand::Pull(args) = command;
    let wrong = || RemoteError::Address {
        address: args.source.clone(),
        reason: "expected https://… or hf:OWNER/REPOSITORY[@REVISION][/PATH]".to_owned(),
    };
    if !Address::is_one(&args.source) {
        return Err(far::remote_failure(wrong()));
    }
    let address = Address::parse(&args.source).map_err(far::remote_failure)?;
    let pulled = fetch(args, &address).map_err(far::remote_failure)?;
    if !args.quiet {
        output::print(&summary(args, &pulled))?;
    }
    if args.no_validate {
        return Ok(Exit::Clean);
    }
    check(args, &pulled)
}

fn fetch(args: &PullArgs, address: &Address) -> Result<PullResult, RemoteError> {
    let wish = PullOptions {
        backends: args.backends.clone(),
        precisions: args.precisions.clone(),
        force: args.force,
        checksums: args.checksum.clone(),
        jobs: usize::from(args.jobs),
    };
    with_bar(!args.quiet, |progress| {
        pull::pull(
            address,
            &args.directory,
            &args.far.download(),
            &wish,
            progress,
        )
    })
}

/// Downloads with a progress bar on standard error if `is_wanted` and standard error is a terminal.
pub(super) fn with_bar<T>(is_wanted: bool, fetch: impl FnOnce(PullProgress<'_>) -> T) -> T {
    let bar = if is_wanted && std::io::stderr().is_terminal() {
        progress_bar()
    } else {
        ProgressBar::hidden()
    };
    let fetched = fetch(&|step: ProgressStep| match step {
        // A source that changes during the download is planned more than once.
        ProgressStep::Planned(bytes) => bar.set_length(bar.position() + bytes),
        ProgressStep::Came(bytes) => bar.inc(bytes),
        ProgressStep::Lost(bytes) => bar.inc_length(bytes),
    });
    bar.finish_and_clear();
    fetched
}

fn summary(args: &PullArgs, pulled: &PullResult) -> String {
    let mut text = format!(
        "{}: {} files downloaded ({} bytes), {} already present\n",
        args.directory.display(),
        pulled.fetched,
        pulled.bytes,
        pulled.kept
    );
    let variants: usize = pulled.left_out.iter().map(|(_, places)| places.len()).sum();
    if variants > 0 {
        let _ = writeln!(text, "variants of other precisions skipped: {variants}");
    }
    text
}

/// Validates the directory. Files that the filters left out are not reported as missing.
fn check(args: &PullArgs, pulled: &PullResult) -> Result<Exit, Failure> {
    let options = ValidationOptions {
        paths: vec![args.directory.clone()],
        precisions: None,
        open_models: true,
        jobs: 0,
    };
    let outcome = validate::validate(&options, &|_, _| {});
    let mut report = outcome
        .map_err(|error| Failure::Other(error.to_string()))?
        .report;
    report.diagnostics.retain(|one| {
        let path = Path::new(&one.source.path)
            .canonicalize()
            .unwrap_or_default();
        let mut left_out = pulled.left_out.iter().filter(|(config, _)| *config == path);
        !left_out.any(|(_, places)| {
            config::variant_at(&one.pointer).is_some_and(|place| places.contains(&place))
        })
    });
    if report.files.is_empty() {
        return Ok(Exit::Clean);
    }
    let rules = validate::rule_metas();
    let style = ReportStyle {
        color: output::stdout_has_color(),
        width: output::width(),
        summary: !args.quiet,
        rules: &rules,
        ..ReportStyle::default()
    };
    ReportFormat::Human.render(&report, &style, &mut output::stdout())?;
    Ok(if report.summary().errors > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

/// Parses the name of a backend. The error lists all names.
pub(super) fn backend(text: &str) -> Result<Backend, String> {
    Backend::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Backend::ALL.iter().map(|backend| backend.name()).collect();
        format!("unknown backend: expected one of {}", names.join(", "))
    })
}

fn progress_bar() -> ProgressBar {
    let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
