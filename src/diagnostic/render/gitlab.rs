//! GitLab's Code Quality report: <https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>.
//!
//! Fingerprints tell a finding that was there before from a new one: they don't know lines, so a finding
//! that only moved keeps its own.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Style;
use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::source::text::write_json;

/// Bytes of a fingerprint.
const FINGERPRINT: usize = 16;

#[derive(Serialize)]
struct Entry<'a> {
    description: &'a str,
    check_name: String,
    fingerprint: String,
    severity: &'static str,
    location: Location<'a>,
}

#[derive(Serialize)]
struct Location<'a> {
    path: &'a str,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: usize,
    end: usize,
}

pub(super) fn render(report: &Report, style: &Style<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut seen = HashMap::new();
    let entries: Vec<Entry<'_>> = report
        .diagnostics
        .iter()
        .map(|diagnostic| entry(diagnostic, style, &mut seen))
        .collect();
    write_json(&entries, out)
}

fn entry<'a>(
    diagnostic: &'a Diagnostic,
    style: &'a Style<'_>,
    seen: &mut HashMap<String, usize>,
) -> Entry<'a> {
    let path = style.path(&diagnostic.source.path);
    let parts = [
        diagnostic.rule.code,
        path,
        &diagnostic.pointer,
        &diagnostic.message,
    ];
    // Two of the same words are two: GitLab wants each fingerprint once.
    let same = parts.join("\0");
    let count = seen.entry(same.clone()).or_default();
    let fingerprint = fingerprint(&format!("{same}\0{count}"));
    *count += 1;
    Entry {
        description: &diagnostic.message,
        check_name: format!("{} {}", diagnostic.rule.code, diagnostic.rule.name),
        fingerprint,
        severity: match diagnostic.severity {
            Severity::Error => "major",
            Severity::Warning => "minor",
            Severity::Note => "info",
        },
        location: Location {
            path,
            lines: Lines {
                begin: diagnostic.start().line,
                end: diagnostic.end().line,
            },
        },
    }
}

fn fingerprint(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes = digest.iter().take(FINGERPRINT);
    bytes.fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
