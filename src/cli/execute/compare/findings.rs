//! What a comparison found, as findings on the config's line, for CI's report formats.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::sides::Side;
use super::report::ComparisonReport;
use crate::diagnostic::render::Style;
use crate::diagnostic::{Anchor, Report, RuleMeta, Severity, SourceText};
use crate::package::Loaded;

/// Outputs that do not keep the tolerances.
static OUTPUTS_DIFFER: RuleMeta = RuleMeta {
    code: "CMP001",
    name: "outputs-differ",
    severity: Severity::Error,
    summary: "Two variants or engines give outputs that differ by more than the tolerances.",
    explanation: "\
# What it checks
The outputs of B are held against those of A on the same inputs.

# Why
A quantized or re-exported variant should still compute the same thing.

# Example
An int8 variant whose cosine similarity to fp32 is 0.8.

# Fix
Look at the output that is named: calibrate again, keep sensitive layers in higher precision, or set \
tolerances that suit the precision.",
};

/// Inputs that only one of the two can run.
static RUNS_ON_ONE_SIDE: RuleMeta = RuleMeta {
    code: "CMP002",
    name: "runs-on-one-side",
    severity: Severity::Error,
    summary: "One of two variants or engines cannot run inputs that the other runs.",
    explanation: "\
# What it checks
Dynamic dimensions are run at their bound and below it, on both sides.

# Why
A model exported with a wrong dynamic dimension runs at the size of its example only.

# Example
A variant whose batch was fixed at export while its file says that it is dynamic.

# Fix
Export the dimension as dynamic, or declare it with its size.",
};

/// The rules of comparisons.
pub(super) fn rules() -> Vec<&'static RuleMeta> {
    vec![&OUTPUTS_DIFFER, &RUNS_ON_ONE_SIDE]
}

/// How report files look.
pub(super) fn style<'a>(
    width: usize,
    rules: &'a [&'static RuleMeta],
    paths: &'a BTreeMap<String, String>,
) -> Style<'a> {
    Style {
        color: false,
        width,
        summary: true,
        deny_warnings: false,
        grouped: false,
        rules,
        rules_page: None,
        paths,
    }
}

/// The findings: on B's variant in its config, or on B's model file.
pub(super) fn of(report: &ComparisonReport, b: &Side) -> Report {
    let variant = b.selection.variant.as_ref();
    let path = variant.map_or(&b.selection.model, |variant| &variant.config);
    let shown = path.to_string_lossy().replace('\\', "/");
    let loaded = variant.map(|variant| Loaded::read(&variant.config));
    let text = loaded.as_ref().map(|loaded| loaded.text.clone());
    let document = loaded
        .as_ref()
        .and_then(|loaded| loaded.document.as_ref().ok());
    let source = Arc::new(SourceText::new(shown, text.unwrap_or_default()));
    let anchor = variant.map_or(Anchor::File, |variant| Anchor::Value(variant.path.clone()));
    let mut found = Report {
        files: vec![source.path.clone()],
        packages: usize::from(variant.is_some()),
        ..Report::default()
    };
    let against = format!("{} against {}", report.b.label, report.a.label);
    for case in &report.cases {
        let failures = case
            .failure
            .iter()
            .map(|text| (&RUNS_ON_ONE_SIDE, text.clone()));
        let complaints = case
            .outputs
            .iter()
            .flat_map(super::report::OutputResult::complaints);
        let complaints = complaints.map(|text| (&OUTPUTS_DIFFER, text));
        for (rule, text) in failures.chain(complaints) {
            let message = format!("{against}, {}: {text}", case.label);
            let finding = rule.finding(anchor.clone(), message);
            found.diagnostics.push(finding.locate(&source, document));
        }
    }
    found.sort();
    found
}
