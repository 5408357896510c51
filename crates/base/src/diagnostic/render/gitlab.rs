//! Renders GitLab's Code Quality report:
//! <https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>.
//!
//! GitLab uses fingerprints to recognize known findings. They do not depend on lines, so a finding
//! that only moved keeps its fingerprint.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::ReportStyle;
use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::source::text::{hexadecimal, write_json};

/// Size of a fingerprint, in bytes.
const FINGERPRINT_BYTES: usize = 16;

#[derive(Serialize)]
struct GitlabEntry<'a> {
    description: &'a str,
    check_name: String,
    fingerprint: String,
    severity: &'static str,
    location: GitlabLocation<'a>,
}

#[derive(Serialize)]
struct GitlabLocation<'a> {
    path: &'a str,
    lines: LineRange,
}

#[derive(Serialize)]
struct LineRange {
    begin: usize,
    end: usize,
}

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut seen = HashMap::new();
    let entries: Vec<GitlabEntry<'_>> = report
        .diagnostics
        .iter()
        .map(|diagnostic| entry(diagnostic, style, &mut seen))
        .collect();
    write_json(&entries, out)
}

fn entry<'a>(
    diagnostic: &'a Diagnostic,
    style: &'a ReportStyle<'_>,
    seen: &mut HashMap<String, usize>,
) -> GitlabEntry<'a> {
    let path = style.path(&diagnostic.source.path);
    let parts = [
        diagnostic.rule.code,
        path,
        &diagnostic.pointer,
        &diagnostic.message,
    ];
    // Number repeated findings, since GitLab requires unique fingerprints.
    let same = parts.join("\0");
    let count = seen.entry(same.clone()).or_default();
    let fingerprint = fingerprint(&format!("{same}\0{count}"));
    *count += 1;
    GitlabEntry {
        description: &diagnostic.message,
        check_name: format!("{} {}", diagnostic.rule.code, diagnostic.rule.name),
        fingerprint,
        severity: match diagnostic.severity {
            Severity::Error => "major",
            Severity::Warning => "minor",
            Severity::Note => "info",
        },
        location: GitlabLocation {
            path,
            lines: LineRange {
                begin: diagnostic.start().line,
                end: diagnostic.end().line,
            },
        },
    }
}

fn fingerprint(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    hexadecimal(&digest[..FINGERPRINT_BYTES])
}
