//! `pkgtool init`.

mod args;
mod json;
mod questions;
mod table;

use std::collections::BTreeMap;
use std::io::Write;

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::diagnostic::Report;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::source::text::escape;
use pkgtool_check::author::init::{self, ConfigDraft, InitOptions, InitPlan, Need};
use pkgtool_check::author::write::{self, Existing};
use pkgtool_check::policy::Policy;
use pkgtool_check::validate;

pub(super) use args::InitArgs;

/// Maximum number of rounds of questions. An answer may raise another question.
const MAX_ROUNDS: usize = 3;

/// Runs the command.
pub(super) fn run(args: &InitArgs) -> Result<Exit, Failure> {
    let mut options = args.options();
    let policy = args.policy()?;
    let mut plan = plan(&options, &policy)?;
    for _ in 0..MAX_ROUNDS {
        let needs = needs(&plan);
        if needs.is_empty() || !args.asks() {
            break;
        }
        questions::ask(&needs, &mut options.given)?;
        plan = self::plan(&options, &policy)?;
    }
    let is_complete = needs(&plan).is_empty();
    let written = write(&plan, args, is_complete);
    if args.is_json() {
        output::print(&json::render(&plan, &written))?;
    } else {
        print_drafts(&plan, &written, args)?;
    }
    if let Some(failure) = written.iter().find_map(|one| one.as_ref().err()) {
        return Err(Failure::Other(failure.clone()));
    }
    if !is_complete {
        return Err(Failure::Other(questions::missing(&needs(&plan))));
    }
    if plan.drafts.is_empty() {
        let reason = "no directory needs a config";
        return Err(Failure::Nothing(reason.to_owned()));
    }
    Ok(if plan.drafts.iter().any(ConfigDraft::has_errors) {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

fn plan(options: &InitOptions, policy: &Policy) -> Result<InitPlan, Failure> {
    init::plan(options, policy).map_err(|error| match error {
        init::InitError::NoModels { .. } => Failure::Nothing(error.to_string()),
        error => Failure::Other(error.to_string()),
    })
}

/// Returns the missing values: each need once, with the drafts that have it and their reasons.
fn needs(plan: &InitPlan) -> Vec<(Need, Vec<(String, init::Missing)>)> {
    let mut needs: BTreeMap<Need, Vec<(String, init::Missing)>> = BTreeMap::new();
    for draft in &plan.drafts {
        for missing in &draft.missing {
            let places = needs.entry(missing.need.clone()).or_default();
            places.push((draft.shown.clone(), missing.clone()));
        }
    }
    needs.into_iter().collect()
}

/// Writes the drafts that may be written. Returns for each draft whether it was written, or the
/// error.
fn write(plan: &InitPlan, args: &InitArgs, is_complete: bool) -> Vec<Result<bool, String>> {
    let drafts = plan.drafts.iter();
    drafts
        .map(|draft| match &draft.text {
            Some(text) if is_complete && !args.dry_run() && !draft.has_errors() => {
                let existing = if args.force() {
                    Existing::Replace
                } else {
                    Existing::Keep
                };
                let done = write::replace(&draft.path, text, existing);
                let failed = |error| format!("cannot write {}: {error}", draft.shown);
                done.map(|()| true).map_err(failed)
            }
            _ => Ok(false),
        })
        .collect()
}

fn print_drafts(
    plan: &InitPlan,
    written: &[Result<bool, String>],
    args: &InitArgs,
) -> Result<(), Failure> {
    let mut out = output::stdout();
    for (draft, written) in plan.drafts.iter().zip(written) {
        let fate = match written {
            Ok(true) => "written",
            _ if draft.text.is_none() => "incomplete, not written",
            _ if draft.has_errors() => "not written, it would have errors",
            _ => "not written",
        };
        out.write_all(table::render(draft, fate).as_bytes())?;
        if let Some(text) = draft.text.as_ref().filter(|_| args.dry_run()) {
            out.write_all(format!("\n{}", escape(text)).as_bytes())?;
        }
        out.write_all(b"\n")?;
    }
    let mut report = Report::default();
    for draft in &plan.drafts {
        if draft.text.is_some() {
            report.packages += draft.report.packages;
            report.files.extend(draft.report.files.iter().cloned());
            let found = draft.report.diagnostics.iter().cloned();
            report.diagnostics.extend(found);
        }
    }
    if !report.files.is_empty() {
        let style = ReportStyle {
            color: output::stdout_has_color(),
            width: output::width(),
            rules: &validate::rule_metas(),
            ..ReportStyle::default()
        };
        ReportFormat::Human.render(&report, &style, &mut out)?;
    }
    out.flush()?;
    drop(out);
    for passed in &plan.passed_over {
        output::note(&format!("{}: {}", passed.path.display(), passed.reason));
    }
    Ok(())
}
