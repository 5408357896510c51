//! `pkgtool validate`.

mod amount;
mod changed;
mod stdin;
mod watch;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use super::exit::{Exit, Failure};
use super::far::{self, Far};
use super::fix;
use super::output;
use super::policy_args::PolicyArgs;
use super::report_args;
use amount::AmountArgs;
use changed::GitArgs;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::diagnostic::{Applicability, Report, RuleMeta, book};
use pkgtool_base::package::Roots;
use pkgtool_check::policy::{Policy, PolicyOutcome};
use pkgtool_check::validate::{self, ValidationOptions, ValidationOutcome};
use stdin::StdinArgs;
use watch::FileWatch;

/// Duration of a run before a progress bar is shown.
const PROGRESS_BAR_DELAY: Duration = Duration::from_secs(1);

/// Arguments of `pkgtool validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(super::exit::HELP, "validate"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct ValidateArgs {
    /// Files and directories to check. Directories are searched for config.json files in
    /// directories named after a backend, other config.json files that look like package configs,
    /// and precisions.json files. Files given explicitly are always checked. `-` reads one config
    /// from standard input. Addresses (https:// and hf:OWNER/REPOSITORY) are read only as far as
    /// needed
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Output format of the findings
    #[arg(long, value_parser = report_args::format_parser(), default_value = ReportFormat::Human.name())]
    format: ReportFormat,

    /// Also write a report to a file; may be given several times. With `-` as FILE it goes to
    /// standard output, in place of the usual output
    #[arg(long = "report", value_name = "FORMAT=FILE", value_parser = report_args::parse)]
    reports: Vec<(ReportFormat, PathBuf)>,

    /// Precision list to check against, instead of a precisions.json at the root of the validated
    /// tree or the built-in list
    #[arg(long, value_name = "FILE")]
    precisions: Option<PathBuf>,

    /// Directory that paths in SARIF, GitHub and JUnit reports are relative to [default: the root
    /// of the checkout that contains the file]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Show every finding. By default, more than 40 findings are grouped by their cause
    #[arg(long)]
    ungrouped: bool,

    /// Don't open model files; run all checks that don't need them. Git LFS pointers are accepted
    /// in place of models
    #[arg(long)]
    no_model: bool,

    /// Apply fixes first, as `pkgtool fix` does, and report the remaining findings
    #[arg(long)]
    fix: bool,

    /// Also apply fixes that make a choice for the author
    #[arg(long = "unsafe", requires = "fix")]
    also_unsafe: bool,

    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,

    /// Exit with code 0 even if there are findings
    #[arg(long)]
    exit_zero: bool,

    /// Number of threads; 0 means one per processor
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    jobs: usize,

    /// Print only findings: no summary, no progress bar, no notes
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,

    /// Also list skipped files and the reasons
    #[arg(long, short)]
    verbose: bool,

    /// When to use colours
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    color: ColorArg,

    /// Validate again whenever a file changes, until interrupted
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    git: GitArgs,

    #[command(flatten)]
    stdin: StdinArgs,

    #[command(flatten)]
    amount: AmountArgs,

    #[command(flatten)]
    far: far::FarArgs,

    #[command(flatten)]
    policy: PolicyArgs,
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
pub(super) fn run(args: &ValidateArgs) -> Result<Exit, Failure> {
    report_args::take_stdout(&args.reports)?;
    args.amount.statistics(args.format)?;
    let is_stdin = args.stdin.is_asked(&args.paths)?;
    if is_stdin && (args.watch || args.git.is_set()) {
        return Err(Failure::Other(
            "standard input cannot be combined with --watch, --changed or --staged".to_owned(),
        ));
    }
    if args.fix && (args.watch || is_stdin || args.git.is_set()) {
        return Err(Failure::Other(
            "--fix cannot be combined with --watch, `-`, --changed or --staged".to_owned(),
        ));
    }
    let policy = args.policy.policy()?;
    if args.policy.shows_settings() {
        return PolicyArgs::show(&policy, &args.paths);
    }
    let far = far::open(&args.paths, &args.far, !args.no_model)?;
    if (args.fix || args.watch || args.git.is_set()) && far.paths() != args.paths {
        return Err(Failure::Other(
            "packages on servers cannot be combined with --fix, --watch, --changed or --staged; download \
             the package with `pkgtool pull`"
                .to_owned(),
        ));
    }
    if args.watch {
        args.keep_validating(&far, &policy)
    } else if is_stdin {
        let ruled = args.stdin.validate(&policy, &args.options(&far))?;
        args.report(ruled, &far, &policy, false)
    } else {
        let mended = args.mend(&far, &policy)?;
        match args.validate(&far, &policy)? {
            // Files that could not be written were already reported.
            Exit::Clean | Exit::Findings if mended.as_ref().is_some_and(|it| it.refusals() > 0) => {
                Ok(Exit::Failure)
            }
            exit => Ok(exit),
        }
    }
}

impl ValidateArgs {
    fn options(&self, far: &Far) -> ValidationOptions {
        ValidationOptions {
            paths: far.paths().to_vec(),
            precisions: self.precisions.clone(),
            open_models: !self.no_model,
            jobs: self.jobs,
        }
    }

    fn mend(
        &self,
        far: &Far,
        policy: &Policy,
    ) -> Result<Option<pkgtool_check::fix::FixOutcome>, Failure> {
        let boldest = if self.also_unsafe {
            Applicability::Unsafe
        } else {
            Applicability::Safe
        };
        let mended = self
            .fix
            .then(|| fix::apply_fixes(self.options(far), policy, boldest, self.quiet));
        mended.transpose()
    }

    fn validate(&self, far: &Far, policy: &Policy) -> Result<Exit, Failure> {
        let bar = OnceLock::new();
        let started = Instant::now();
        let shows_progress = !self.quiet && std::io::stderr().is_terminal();
        let progress = |done: usize, total: usize| {
            if shows_progress && started.elapsed() > PROGRESS_BAR_DELAY {
                let bar = bar.get_or_init(|| progress_bar(total));
                bar.set_position(done as u64);
            }
        };
        let options = self.options(far);
        let (ruled, is_narrow) = if self.git.is_set() {
            let choice = self
                .git
                .choose(policy, &self.paths, self.precisions.as_deref())?;
            (choice.validate(policy, &options, &progress), true)
        } else {
            (policy.validate(&options, &progress), false)
        };
        if let Some(bar) = bar.get() {
            bar.finish_and_clear();
        }
        let mut ruled = ruled.map_err(|error| Failure::Other(far.shown(&error.to_string())))?;
        far.check()?;
        far.show(&mut ruled.outcome.report);
        self.report(ruled, far, policy, is_narrow)
    }

    /// Prints the outcome and the reports. `is_narrow` means that only changed files are reported.
    fn report(
        &self,
        mut ruled: PolicyOutcome,
        far: &Far,
        policy: &Policy,
        is_narrow: bool,
    ) -> Result<Exit, Failure> {
        let outcome = &mut ruled.outcome;
        self.note_skipped(outcome, far);
        self.amount.limit(&mut outcome.report, self.quiet);
        self.write_reports(&outcome.report, policy)?;
        match self.print(&outcome.report, policy) {
            // A closed pipe does not change the exit code. It ends a watch, however, since nobody
            // reads the output.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe && !self.watch => {
            }
            printed => printed?,
        }
        if !self.quiet {
            PolicyArgs::note_baseline(&ruled);
        }
        let outcome = &ruled.outcome;
        if is_narrow && outcome.report.files.is_empty() {
            if !self.quiet {
                output::note("neither configs nor files that they name have changed");
            }
            return Ok(Exit::Clean);
        }
        self.exit(&ruled)
    }

    /// Validates repeatedly until the user interrupts it or the output is closed.
    fn keep_validating(&self, far: &Far, policy: &Policy) -> Result<Exit, Failure> {
        let mut watch = FileWatch::start(&self.paths)?;
        loop {
            output::clear_screen()?;
            match self.validate(far, policy) {
                Ok(_) | Err(Failure::Nothing(_)) => {}
                Err(Failure::Output(error)) => return Err(error.into()),
                // A file may be invalid while it is being written. The next change triggers another
                // run.
                Err(failure) => output::error(&failure.to_string()),
            }
            let Some(path) = watch.next() else {
                return Ok(Exit::Clean);
            };
            watch.follow(&self.paths)?;
            if !self.quiet {
                let shown = Roots::new().shown(&path);
                output::note(&format!("{shown} changed"));
            }
        }
    }

    fn style<'a>(
        &self,
        color: bool,
        rules: &'a [&'static RuleMeta],
        paths: &'a BTreeMap<String, String>,
    ) -> ReportStyle<'a> {
        ReportStyle {
            color,
            width: output::width(),
            summary: !self.quiet,
            deny_warnings: self.deny_warnings,
            grouped: !self.ungrouped,
            rules,
            links: output::stdout_has_links(),
            paths,
        }
    }

    fn print(&self, report: &Report, policy: &Policy) -> Result<(), Failure> {
        if report_args::take_stdout(&self.reports)? {
            return Ok(());
        }
        let color = match self.color {
            ColorArg::Auto => output::stdout_has_color(),
            ColorArg::Always => true,
            ColorArg::Never => false,
        };
        let rules = validate::rule_metas();
        let mut out = output::stdout();
        let format = self.format;
        let is_for_people = matches!(format, ReportFormat::Human | ReportFormat::Grouped);
        if !(report.files.is_empty() && is_for_people) {
            let paths = self.machine_paths(report, policy);
            let style = self.style(color, &rules, &paths);
            if self.amount.statistics(self.format)? {
                amount::print(report, self.format, &style, &mut out)?;
            } else {
                format.render(report, &style, &mut out)?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn write_reports(&self, report: &Report, policy: &Policy) -> Result<(), Failure> {
        let rules = validate::rule_metas();
        let paths = self.machine_paths(report, policy);
        let written = report_args::write(&self.reports, report, &self.style(false, &rules, &paths));
        match written {
            // A closed pipe does not change the exit code.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    fn machine_paths(&self, report: &Report, policy: &Policy) -> BTreeMap<String, String> {
        let mut formats = self.reports.iter().map(|(format, _)| *format);
        if report_args::keeps_paths(self.format) && formats.all(report_args::keeps_paths) {
            return BTreeMap::new();
        }
        let settled = PolicyArgs::root(policy, &self.paths);
        let root = self.root.as_deref().or(settled.as_deref());
        report_args::machine_paths(report, root)
    }

    fn note_skipped(&self, outcome: &ValidationOutcome, far: &Far) {
        if self.verbose {
            for skipped in &outcome.skipped {
                let path = skipped.path.display();
                output::note(&far.shown(&format!("{path} skipped: {}", skipped.reason)));
            }
            far.tell_traffic();
        }
    }

    fn exit(&self, ruled: &PolicyOutcome) -> Result<Exit, Failure> {
        let outcome = &ruled.outcome;
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
            summary.errors + ruled.denied_warnings
        };
        Ok(if counts > 0 && !self.exit_zero {
            Exit::Findings
        } else {
            Exit::Clean
        })
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

fn nothing_found(paths: &[PathBuf], outcome: &ValidationOutcome) -> String {
    let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    let hint = match outcome.skipped.len() {
        0 => {
            "expected packages with a config.json in a directory named after its backend".to_owned()
        }
        1 => "one path was skipped; -v shows the reason".to_owned(),
        n => format!("{n} paths were skipped; -v shows them and the reasons"),
    };
    format!("nothing to check in {}: {hint}", paths.join(", "))
}
