//! The findings of a benchmark: models that are slower than the limit.

use super::super::findings::{FindingLocation, merge_reports};
use super::super::sides::ExecutionSide;
use super::gate::Verdict;
use super::report::{BenchReport, ratio};
use pkgtool_base::diagnostic::{Report, RuleMeta, Severity};

/// The rule about models that are slower than allowed.
static SLOWER: RuleMeta = RuleMeta {
    code: "BCH001",
    name: "slower-than-allowed",
    severity: Severity::Error,
    summary: "A model takes longer than the limit allows.",
    fix: None,
    explanation: "\
# What it checks
The time of a model relative to the first model of the command, or to its time in a baseline, is held \
against `--max-ratio`. Only a ratio whose whole confidence interval is above the limit is reported.

# Why
A change of a model or of its export can make it slower without changing its answers.

# Example
A variant that takes 1.12 of the time of the version before, with a limit of 1.05.

# Fix
Run `pkgtool bench --profile` on both versions and compare the slowest operators.",
};

/// Returns the rules of benchmarks.
pub(super) fn rules() -> Vec<&'static RuleMeta> {
    vec![&SLOWER]
}

/// Returns the findings about these sides.
pub(super) fn of(sides: &[ExecutionSide], report: &BenchReport) -> Report {
    let reports = sides.iter().zip(&report.series).map(|(side, series)| {
        let message = match (series.verdict, series.judged_ratio(), report.max_ratio) {
            (Some(Verdict::Slower), Some((found, of)), Some(limit)) => Some(format!(
                "{} takes {} of the time of {of}; the limit is {limit}",
                series.label,
                ratio(found),
            )),
            _ => None,
        };
        let found = message.into_iter().map(|message| (&SLOWER, message));
        FindingLocation::of(side).report(found)
    });
    merge_reports(reports.collect())
}
