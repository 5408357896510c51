//! Renders SARIF 2.1.0: one run, all rules in the driver, and one result per diagnostic.
//!
//! Columns start at 1 and count Unicode scalar values, as the run declares. Paths are relative URI
//! references with `/`, percent-encoded. An absolute path becomes a `file:` URI.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::ReportStyle;
use crate::diagnostic::{Diagnostic, Fix, IdentityCache, Report, RuleMeta, Severity};
use crate::source::text::write_json;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rules = style.rules;
    let driver = json!({
        "name": "pkgtool",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": rules.iter().copied().map(descriptor).collect::<Vec<_>>(),
    });
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut identities = IdentityCache::default();
    let results = report.diagnostics.iter().map(|diagnostic| {
        let mut result = result(diagnostic, style);
        let path = style.path(&diagnostic.source.path);
        let print = identities.of(diagnostic, path).fingerprint();
        let count = seen.entry(print.clone()).or_default();
        *count += 1;
        result["partialFingerprints"] = json!({ "pkgtool/v2": format!("{print}:{count}") });
        result
    });
    let sarif = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": driver },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    });
    write_json(&sarif, out)
}

fn descriptor(rule: &RuleMeta) -> Value {
    let explanation = rule.explanation_text();
    json!({
        "id": rule.code,
        "name": rule.name,
        "shortDescription": { "text": rule.summary },
        "fullDescription": { "text": first_section(&explanation) },
        "help": { "text": explanation, "markdown": explanation },
        "helpUri": rule.page(),
        "defaultConfiguration": { "level": level(rule.severity) },
    })
}

fn result(diagnostic: &Diagnostic, style: &ReportStyle<'_>) -> Value {
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
                "artifactLocation": { "uri": uri(style.path(&diagnostic.source.path)) },
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
    if let Some(index) = style
        .rules
        .iter()
        .position(|rule| rule.code == diagnostic.rule.code)
    {
        result["ruleIndex"] = json!(index);
    }
    // The format cannot express renamings, and a partial fix would be wrong.
    if let Some(fix) = diagnostic.fix.as_ref().filter(|fix| fix.rename.is_none()) {
        result["fixes"] = json!([fix_of(fix, diagnostic, style)]);
    }
    result
}

fn fix_of(fix: &Fix, diagnostic: &Diagnostic, style: &ReportStyle<'_>) -> Value {
    let replacements = fix.edits.iter().map(|edit| {
        let start = diagnostic.source.position(edit.span.start);
        let end = diagnostic.source.position(edit.span.end);
        json!({
            "deletedRegion": {
                "startLine": start.line,
                "startColumn": start.column,
                "endLine": end.line,
                "endColumn": end.column,
            },
            "insertedContent": { "text": edit.replacement },
        })
    });
    json!({
        "description": { "text": format!("{} ({})", fix.title, fix.applicability.name()) },
        "artifactChanges": [{
            "artifactLocation": { "uri": uri(style.path(&diagnostic.source.path)) },
            "replacements": replacements.collect::<Vec<_>>(),
        }],
    })
}

/// Returns the text under an explanation's first heading as one paragraph.
fn first_section(explanation: &str) -> String {
    let lines = explanation.lines().skip(1);
    let section = lines.take_while(|line| !line.starts_with("# "));
    section
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_owned()
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
    let origin = origin(path);
    uri.push_str(origin);
    for byte in path[origin.len()..].bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
            uri.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    uri
}

/// Returns the prefix of a path that is an address on a server: scheme and host, or a hub's short
/// form.
fn origin(path: &str) -> &str {
    let host = ["https://", "http://"].iter().find_map(|scheme| {
        let rest = path.strip_prefix(scheme)?;
        Some(scheme.len() + rest.find('/').unwrap_or(rest.len()))
    });
    let end = host.or_else(|| path.starts_with("hf:").then_some(3));
    &path[..end.unwrap_or(0)]
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
        assert_eq!(uri("http://h:8/a b"), "http://h:8/a%20b");
        assert_eq!(uri("hf:o/r@v/a"), "hf:o/r%40v/a");
    }
}
