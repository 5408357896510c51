//! `pkgtool validate`.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use super::exit::{Exit, Failure};
use super::output;
use super::report_args::{self, FormatArg};
use super::rules;
use crate::diagnostic::render::{Format, Style};
use crate::diagnostic::{Report, RuleMeta};
use crate::validate::{self, Options, Outcome};

/// How long a run takes before it shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Arguments of `pkgtool validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::exit::HELP)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct Args {
    /// Files and directories to check. A directory is walked for config.json files in directories
    /// named after a backend, other config.json files that look like package configs, and
    /// precisions.json files; a file is always checked
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// How to print the findings
    #[arg(long, value_enum, default_value_t = FormatArg::Human)]
    format: FormatArg,

    /// Write a report to a file as well; may be given several times. With `-` as FILE it goes to
    /// standard output, and nothing else does
    #[arg(long = "report", value_name = "FORMAT=FILE", value_parser = report_args::parse)]
    reports: Vec<(FormatArg, PathBuf)>,

    /// The precision list to check against, instead of a precisions.json at the root of what is
    /// validated or the built-in list
    #[arg(long, value_name = "FILE")]
    precisions: Option<PathBuf>,

    /// The directory that paths in SARIF, GitHub and JUnit reports are relative to. Without it the
    /// root of the checkout that a file lies in
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Show every finding, however many there are. Otherwise more than 40 are put together by their
    /// causes
    #[arg(long)]
    ungrouped: bool,

    /// Don't open model files: check names, sizes and everything else. Git LFS pointers then stand
    /// for their models
    #[arg(long)]
    no_model: bool,

    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,

    /// Exit with 0 whatever is found
    #[arg(long)]
    exit_zero: bool,

    /// Number of threads; 0 means one for each processor
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    jobs: usize,

    /// Print findings only: no summary, no progress, no notes about the run
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,

    /// Also tell which files were passed over, and why
    #[arg(long, short)]
    verbose: bool,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    color: ColorArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    /// If standard output is a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    report_args::take_stdout(&args.reports)?;
    let bar = OnceLock::new();
    let started = Instant::now();
    let shows_progress = !args.quiet && std::io::stderr().is_terminal();
    let progress = |done: usize, total: usize| {
        if shows_progress && started.elapsed() > PATIENCE {
            let bar = bar.get_or_init(|| progress_bar(total));
            bar.set_position(done as u64);
        }
    };
    let outcome = validate::validate(&args.options(), &progress);
    if let Some(bar) = bar.get() {
        bar.finish_and_clear();
    }
    let outcome = outcome.map_err(|error| Failure::Other(error.to_string()))?;
    args.tell_skipped(&outcome);
    args.write_reports(&outcome.report)?;
    match args.print(&outcome.report) {
        // Whoever reads our output has gone; what was found is still what was found.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    args.exit(&outcome)
}

impl Args {
    fn options(&self) -> Options {
        Options {
            paths: self.paths.clone(),
            precisions: self.precisions.clone(),
            open_models: !self.no_model,
            jobs: self.jobs,
        }
    }

    fn style<'a>(
        &self,
        color: bool,
        rules: &'a Rules,
        paths: &'a BTreeMap<String, String>,
    ) -> Style<'a> {
        Style {
            color,
            width: output::width(),
            summary: !self.quiet,
            deny_warnings: self.deny_warnings,
            grouped: !self.ungrouped,
            rules: &rules.metas,
            rules_page: rules.page.as_deref(),
            paths,
        }
    }

    fn print(&self, report: &Report) -> Result<(), Failure> {
        if report_args::take_stdout(&self.reports)? {
            return Ok(());
        }
        let color = match self.color {
            ColorArg::Auto => output::stdout_has_color(),
            ColorArg::Always => true,
            ColorArg::Never => false,
        };
        let rules = Rules::all();
        let mut out = output::stdout();
        let format = self.format.format();
        if !(report.files.is_empty() && format == Format::Human) {
            let paths = self.machine_paths(report);
            format.render(report, &self.style(color, &rules, &paths), &mut out)?;
        }
        out.flush()?;
        Ok(())
    }

    fn write_reports(&self, report: &Report) -> Result<(), Failure> {
        let rules = Rules::all();
        let paths = self.machine_paths(report);
        let written = report_args::write(&self.reports, report, &self.style(false, &rules, &paths));
        match written {
            // Whoever reads standard output has gone; what was found is still what was found.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    fn machine_paths(&self, report: &Report) -> BTreeMap<String, String> {
        // People and the tool's own JSON see paths as they were named.
        let own = |format: FormatArg| matches!(format, FormatArg::Human | FormatArg::Json);
        if own(self.format) && self.reports.iter().all(|(format, _)| own(*format)) {
            return BTreeMap::new();
        }
        report_args::machine_paths(report, self.root.as_deref())
    }

    fn tell_skipped(&self, outcome: &Outcome) {
        if self.verbose {
            for skipped in &outcome.skipped {
                let path = skipped.path.display();
                output::note(&format!("{path} skipped: {}", skipped.reason));
            }
        }
    }

    fn exit(&self, outcome: &Outcome) -> Result<Exit, Failure> {
        let summary = outcome.report.summary();
        if outcome.report.files.is_empty() {
            return if self.quiet {
                Ok(Exit::Nothing)
            } else {
                Err(Failure::Nothing(nothing_found(&self.paths, outcome)))
            };
        }
        let counts = if self.deny_warnings {
            summary.errors + summary.warnings
        } else {
            summary.errors
        };
        Ok(if counts > 0 && !self.exit_zero {
            Exit::Findings
        } else {
            Exit::Clean
        })
    }
}

/// What reports say of the rules.
struct Rules {
    metas: Vec<&'static RuleMeta>,
    page: Option<String>,
}

impl Rules {
    fn all() -> Self {
        Self {
            metas: validate::rule_metas(),
            page: rules::page_url(),
        }
    }
}

fn progress_bar(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} files, {eta} left");
    let bar = ProgressBar::new(total as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn nothing_found(paths: &[PathBuf], outcome: &Outcome) -> String {
    let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    let hint = match outcome.skipped.len() {
        0 => "a package has a config.json in a directory named after its backend".to_owned(),
        1 => "one config.json was passed over; -v tells why".to_owned(),
        n => format!("{n} config.json files were passed over; -v tells why"),
    };
    format!("nothing to check in {}: {hint}", paths.join(", "))
}
