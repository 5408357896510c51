//! Findings in the form of the protocol.

use serde_json::{Value, json};

use super::client::EditorClient;
use super::text::Text;
use pkgtool_base::diagnostic::{Diagnostic, Severity};

/// LSP diagnostic tags: unnecessary text is faded, deprecated text is struck through.
const UNNECESSARY: u8 = 1;
const DEPRECATED: u8 = 2;

/// Rules whose findings are about unnecessary or deprecated text.
const TAGGED_RULES: [(&str, u8); 2] = [
    ("json-duplicate-key", UNNECESSARY),
    ("legacy-field", DEPRECATED),
];

/// Converts a finding to a diagnostic of `text`.
pub(super) fn diagnostic(finding: &Diagnostic, text: &Text, client: &EditorClient) -> Value {
    let rule = finding.rule;
    let message = match &finding.help {
        Some(help) => format!("{}\nhelp: {help}", finding.message),
        None => finding.message.clone(),
    };
    let severity = match finding.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    let mut diagnostic = json!({
        "range": text.range(finding.span),
        "severity": severity,
        "code": rule.code,
        "source": "pkgtool",
        "message": message,
        "data": { "rule": rule.name, "pointer": finding.pointer },
    });
    let tag = TAGGED_RULES.iter().find(|(name, _)| *name == rule.name);
    if let Some((_, tag)) = tag.filter(|_| client.tags) {
        diagnostic["tags"] = json!([tag]);
    }
    if client.code_descriptions {
        diagnostic["codeDescription"] = json!({ "href": rule.page() });
    }
    diagnostic
}
