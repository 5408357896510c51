//! The results of a comparison as findings with a location in the config, for the report formats of
//! CI systems.

use super::super::findings::FindingLocation;
use super::report::ComparisonReport;
use pkgtool_base::diagnostic::{Report, RuleMeta, Severity};

/// The rule about outputs that exceed the tolerances.
static OUTPUTS_DIFFER: RuleMeta = RuleMeta {
    code: "CMP001",
    name: "outputs-differ",
    severity: Severity::Error,
    summary: "The outputs of two variants or engines differ by more than the tolerances.",
    fix: None,
    explanation: "\
# What it checks
The outputs of B are compared with those of A on the same inputs.

# Why
A quantized or re-exported variant should still compute the same thing.

# Example
An int8 variant whose cosine similarity to fp32 is 0.8.

# Fix
Inspect the reported output. Calibrate again, keep sensitive layers in higher precision, or set \
tolerances that suit the precision.",
};

/// The rule about inputs that only one side can run.
static RUNS_ON_ONE_SIDE: RuleMeta = RuleMeta {
    code: "CMP002",
    name: "runs-on-one-side",
    severity: Severity::Error,
    summary: "One of two variants or engines cannot run inputs that the other runs.",
    fix: None,
    explanation: "\
# What it checks
Both sides are run with dynamic dimensions at their bound and below it.

# Why
A model exported with a wrong dynamic dimension runs at the size of its example only.

# Example
A variant whose batch was fixed at export while its file says that it is dynamic.

# Fix
Export the dimension as dynamic, or declare it with its size.",
};

/// Returns the rules of comparisons.
pub(super) fn rules() -> Vec<&'static RuleMeta> {
    vec![&OUTPUTS_DIFFER, &RUNS_ON_ONE_SIDE]
}

/// Returns the findings of a comparison about side B, which is located at `place`.
pub(super) fn of(report: &ComparisonReport, place: &FindingLocation) -> Report {
    let against = format!("{} against {}", report.b.label, report.a.label);
    let found = report.cases.iter().flat_map(|case| {
        let failures = case
            .failure
            .iter()
            .map(|text| (&RUNS_ON_ONE_SIDE, text.clone()));
        let complaints = case
            .outputs
            .iter()
            .flat_map(super::report::OutputResult::complaints);
        let complaints = complaints.map(|text| (&OUTPUTS_DIFFER, text));
        let found: Vec<(&RuleMeta, String)> = failures.chain(complaints).collect();
        let named = found.into_iter();
        named.map(|(rule, text)| (rule, format!("{against}, {}: {text}", case.label)))
    });
    place.report(found.collect::<Vec<_>>().into_iter())
}

/// Returns the finding that the variant at `place` does not run where the reference does.
pub(super) fn does_not_run(place: &FindingLocation, message: String) -> Report {
    place.report(std::iter::once((&RUNS_ON_ONE_SIDE, message)))
}
