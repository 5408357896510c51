//! SARIF 2.1.0: one run, all rules in the driver, one result a diagnostic.
//!
//! Columns are 1-based and count Unicode scalar values, which the run declares. Paths are relative
//! URI references with `/`, percent-encoded; an absolute path becomes a `file:` URI.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::diagnostic::{Diagnostic, Report, RuleMeta, Severity};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

pub(super) fn render(
    report: &Report,
    rules: &[&'static RuleMeta],
    out: &mut dyn Write,
) -> io::Result<()> {
    let driver = json!({
        "name": "pkgtool",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": rules.iter().map(|rule| descriptor(rule)).collect::<Vec<_>>(),
    });
    let results = report.diagnostics.iter().map(|d| result(d, rules));
    let sarif = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &sarif)?;
    writeln!(out)
}

fn descriptor(rule: &RuleMeta) -> Value {
    let explanation = rule.explanation_text();
    json!({
        "id": rule.code,
        "name": rule.name,
        "shortDescription": { "text": rule.summary },
        "help": { "text": explanation, "markdown": explanation },
        "defaultConfiguration": { "level": level(rule.severity) },
    })
}

fn result(diagnostic: &Diagnostic, rules: &[&'static RuleMeta]) -> Value {
    let (start, end) = (diagnostic.start(), diagnostic.end());
    let text = match &diagnostic.help {
        Some(help) => format!("{}\nhelp: {help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    let mut result = json!({
        "ruleId": diagnostic.rule.code,
        "level": level(diagnostic.severity),
        "message": { "text": text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&diagnostic.source.path) },
                "region": {
                    "startLine": start.line,
                    "startColumn": start.column,
                    "endLine": end.line,
                    "endColumn": end.column,
                },
            },
            "logicalLocations": [{ "fullyQualifiedName": diagnostic.pointer }],
        }],
    });
    if let Some(index) = rules
        .iter()
        .position(|rule| rule.code == diagnostic.rule.code)
    {
        result["ruleIndex"] = json!(index);
    }
    result
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn uri(path: &str) -> String {
    let mut uri = String::new();
    if path.starts_with('/') {
        uri.push_str("file://");
    } else if path.as_bytes().get(1) == Some(&b':') {
        uri.push_str("file:///");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
            uri.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("a b/ü.json"), "a%20b/%C3%BC.json");
        assert_eq!(uri("/r/a%.json"), "file:///r/a%25.json");
        assert_eq!(uri("C:/r/a.json"), "file:///C%3A/r/a.json");
        assert_eq!(uri("a:b.json"), "file:///a%3Ab.json");
    }
}
