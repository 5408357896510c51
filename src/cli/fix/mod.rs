//! `pkgtool fix`.

mod told;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;

use super::exit::{Exit, Failure};
use super::output;
use super::policy_args::SettingsArgs;
use pkgtool_base::diagnostic::{Applicability, Diagnostic, Report, book};
use pkgtool_base::source::text::{defuse, escape};
use pkgtool_check::fix::{self, FixOptions, FixOutcome};
use pkgtool_check::policy::{Overrides, Policy};
use pkgtool_check::validate;

/// Arguments of `pkgtool fix`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(super::exit::HELP, "fix"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct FixArgs {
    /// Files and directories to fix. Directories are searched as `validate` does
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Also apply fixes that make a choice for the author: precision tokens, licences, file names,
    /// likely corrections of words
    #[arg(long = "unsafe")]
    also_unsafe: bool,

    /// Print the changes as a unified diff instead of writing them. Exits with code 1 if there are
    /// any
    #[arg(long, conflicts_with = "format")]
    diff: bool,

    /// Print the changes instead of writing them. Exits with code 1 if there are any, or if errors
    /// remain
    #[arg(long)]
    check: bool,

    /// Apply only the fixes of this rule, given by code or name; may be given several times
    #[arg(long = "rule", value_name = "RULE", value_parser = rule)]
    rules: Vec<&'static str>,

    /// Output format
    #[arg(long, value_enum, default_value_t = FixFormatArg::Human)]
    format: FixFormatArg,

    /// Precision list to check against, instead of a precisions.json at the root of the fixed tree
    /// or the built-in list
    #[arg(long, value_name = "FILE")]
    precisions: Option<PathBuf>,

    /// Don't open model files; skip fixes that need them
    #[arg(long)]
    no_model: bool,

    /// Number of threads; 0 means one per processor
    #[arg(long, short, value_name = "N", default_value_t = 0)]
    jobs: usize,

    /// Print only errors
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FixFormatArg {
    /// Text for people
    Human,
    /// One JSON document
    Json,
}

/// Runs the command.
pub(super) fn run(args: &FixArgs) -> Result<Exit, Failure> {
    let options = args.options();
    let policy = args.settings.policy(Overrides::default())?;
    let outcome = fix::fix(&options, &policy).map_err(|error| Failure::Other(error.to_string()))?;
    let left = args.left(&policy, &options, &outcome)?;
    if outcome.checked == 0 && left.is_empty() {
        let paths: Vec<String> = args
            .paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let hint = "`pkgtool validate -v` shows skipped paths and the reasons";
        return Err(Failure::Nothing(format!(
            "nothing to fix in {}: {hint}",
            paths.join(", ")
        )));
    }
    let mut out = output::stdout();
    if args.diff {
        if !args.quiet {
            out.write_all(diff(&outcome).as_bytes())?;
        }
    } else if args.format == FixFormatArg::Json {
        out.write_all(escape(&told::json(&outcome, &left, &options)).as_bytes())?;
    } else if !args.quiet {
        out.write_all(told::human(&outcome, &left, &options).as_bytes())?;
    }
    out.flush()?;
    Ok(args.exit(&outcome, &left))
}

/// Applies fixes for `validate --fix`, and prints each fix to standard error.
pub(super) fn apply_fixes(
    validate: validate::ValidationOptions,
    policy: &Policy,
    boldest: Applicability,
    quiet: bool,
) -> Result<FixOutcome, Failure> {
    let options = FixOptions {
        validate,
        max_applicability: boldest,
        only: BTreeSet::new(),
        writes: true,
    };
    let outcome = fix::fix(&options, policy).map_err(|error| Failure::Other(error.to_string()))?;
    for file in &outcome.files {
        for fixed in file.fixed.iter().filter(|_| !quiet) {
            output::print_message("fixed", &told::fixed_line(&file.shown, fixed));
        }
        if let Some(reason) = &file.refused {
            output::error(&format!("{}: {reason}", file.shown));
        }
    }
    Ok(outcome)
}

impl FixArgs {
    fn writes(&self) -> bool {
        !self.diff && !self.check
    }

    fn options(&self) -> FixOptions {
        FixOptions {
            validate: validate::ValidationOptions {
                paths: self.paths.clone(),
                precisions: self.precisions.clone(),
                open_models: !self.no_model,
                jobs: self.jobs,
            },
            max_applicability: if self.also_unsafe {
                Applicability::Unsafe
            } else {
                Applicability::Safe
            },
            only: self.rules.iter().copied().collect(),
            writes: self.writes(),
        }
    }

    /// Returns the remaining findings. After writing, everything is validated again, which includes
    /// rules that compare several files.
    fn left(
        &self,
        policy: &Policy,
        options: &FixOptions,
        outcome: &FixOutcome,
    ) -> Result<Vec<Diagnostic>, Failure> {
        // If no file was checked, directories may still lack a config.
        if !self.writes() && outcome.checked > 0 {
            let mut report = Report {
                diagnostics: outcome.left.clone(),
                ..Report::default()
            };
            report.sort();
            return Ok(report.diagnostics);
        }
        let ruled = policy.validate(&options.validate, &|_, _| {});
        let ruled = ruled.map_err(|error| Failure::Other(error.to_string()))?;
        let mut left = ruled.outcome.report.diagnostics;
        for diagnostic in &mut left {
            outcome.mark_consent(diagnostic);
        }
        Ok(left)
    }

    fn exit(&self, outcome: &FixOutcome, left: &[Diagnostic]) -> Exit {
        let refused = told::failures(outcome);
        for (shown, reason) in refused.iter().filter(|_| self.diff || self.quiet) {
            output::error(&format!("{shown}: {reason}"));
        }
        let would_change = !self.writes() && outcome.fixes() > 0;
        let is_open = would_change || !self.diff && told::errors(left) > 0;
        if self.writes() && !refused.is_empty() {
            Exit::Failure
        } else if is_open {
            Exit::Findings
        } else {
            Exit::Clean
        }
    }
}

/// Returns all changes as a diff for `patch` and `git apply`. Control characters are escaped only
/// on a terminal.
fn diff(outcome: &FixOutcome) -> String {
    let mut text = String::new();
    for file in &outcome.files {
        for rename in &file.renamed {
            let (from, to) = (rename.from.display(), rename.to.display());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "rename from {from}\nrename to {to}");
        }
        text.push_str(&fix::unified(&file.shown, &file.before, &file.after));
    }
    if output::stdout_is_terminal() {
        defuse(&text)
    } else {
        text
    }
}

/// Parses the code or name of a rule.
fn rule(text: &str) -> Result<&'static str, String> {
    let meta = validate::find_rule(text).map_err(|help| format!("unknown rule: {help}"))?;
    match meta.fix {
        Some(_) => Ok(meta.code),
        None => Err(format!("{} {} has no fixes", meta.code, meta.name)),
    }
}
