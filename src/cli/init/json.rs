//! The plan of `pkgtool init` as one JSON document, version 1. Later versions only add fields.

use serde_json::{Value as Json, json};

use pkgtool_check::author::init::{ConfigDraft, InitPlan};

/// Returns the document with a final newline. `written` says for each draft whether it was written.
pub(super) fn render(plan: &InitPlan, written: &[Result<bool, String>]) -> String {
    let drafts = plan.drafts.iter().zip(written);
    let configs: Vec<Json> = drafts
        .map(|(draft, written)| config(draft, written))
        .collect();
    let passed = plan.passed_over.iter().map(|passed| {
        let path = passed.path.to_string_lossy();
        json!({ "path": path, "reason": passed.reason })
    });
    let document = json!({
        "version": 1,
        "configs": configs,
        "passed_over": passed.collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn config(draft: &ConfigDraft, written: &Result<bool, String>) -> Json {
    let fields = draft.fields.iter().map(|field| {
        json!({
            "pointer": field.pointer,
            "value": field.value,
            "evidence": field.evidence,
            "guess": field.guess,
        })
    });
    let missing = draft.missing.iter().map(|missing| {
        json!({
            "field": missing.need.field(),
            "flag": missing.need.flag(),
            "why": missing.why,
            "proposal": missing.proposal,
        })
    });
    let findings = draft.report.diagnostics.iter().map(|found| {
        json!({
            "code": found.rule.code,
            "rule": found.rule.name,
            "severity": found.severity,
            "message": found.message,
            "pointer": found.pointer,
            "help": found.help,
        })
    });
    json!({
        "path": draft.shown,
        "written": matches!(written, Ok(true)),
        "error": written.as_ref().err(),
        "fields": fields.collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
        "remarks": draft.remarks,
        "findings": findings.collect::<Vec<_>>(),
        "config": draft.text,
    })
}
