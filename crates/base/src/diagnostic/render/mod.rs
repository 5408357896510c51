//! Output formats of reports, with one file per format.

mod causes;
mod concise;
mod github;
mod gitlab;
mod grouped;
mod human;
mod json;
mod junit;
mod rdjson;
mod sarif;
mod snippet;
mod statistics;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Report, RuleMeta};

pub use statistics::{statistics, statistics_json};

/// An output format of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// Text for people: source snippets with the offending text underlined.
    Human,
    /// One JSON document in the tool's own stable format.
    Json,
    /// SARIF 2.1.0, for code-scanning services.
    Sarif,
    /// GitHub Actions workflow commands, which become annotations.
    Github,
    /// JUnit XML, for test dashboards.
    Junit,
    /// One finding per line: `path:line:column: severity code message`.
    Concise,
    /// Findings grouped by their cause.
    Grouped,
    /// GitLab's Code Quality report.
    Gitlab,
    /// Reviewdog Diagnostic Format, with fixes as suggestions.
    Rdjson,
}

/// Options of renderers.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of one format"
)]
pub struct ReportStyle<'a> {
    /// Use terminal colours (human only).
    pub color: bool,
    /// Width of the terminal, in columns (human only).
    pub width: usize,
    /// End with a line of counts (human and grouped).
    pub summary: bool,
    /// Count warnings as failures (JUnit only).
    pub deny_warnings: bool,
    /// Group many findings by their cause (human only).
    pub grouped: bool,
    /// All rules of the tool (SARIF only).
    pub rules: &'a [&'static RuleMeta],
    /// Link codes to the pages of their rules (human only).
    pub links: bool,
    /// Paths for machine-readable formats, relative to the repository, by the paths in the report. A
    /// missing path stays as it is in the report. The tool's own JSON does not use them.
    pub paths: &'a BTreeMap<String, String>,
}

/// No paths.
static NO_PATHS: BTreeMap<String, String> = BTreeMap::new();

impl Default for ReportStyle<'_> {
    fn default() -> Self {
        Self {
            color: false,
            width: 80,
            summary: true,
            deny_warnings: false,
            grouped: true,
            rules: &[],
            links: false,
            paths: &NO_PATHS,
        }
    }
}

impl<'a> ReportStyle<'a> {
    /// Returns the path for a machine-readable format.
    fn path<'p>(&self, path: &'p str) -> &'p str
    where
        'a: 'p,
    {
        self.paths.get(path).map_or(path, String::as_str)
    }
}

impl ReportFormat {
    /// All formats.
    pub const ALL: [Self; 9] = [
        Self::Human,
        Self::Json,
        Self::Sarif,
        Self::Github,
        Self::Junit,
        Self::Concise,
        Self::Grouped,
        Self::Gitlab,
        Self::Rdjson,
    ];

    /// Returns the format's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
            Self::Sarif => "sarif",
            Self::Github => "github",
            Self::Junit => "junit",
            Self::Concise => "concise",
            Self::Grouped => "grouped",
            Self::Gitlab => "gitlab",
            Self::Rdjson => "rdjson",
        }
    }

    /// Returns the format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Writes the report.
    pub fn render(
        self,
        report: &Report,
        style: &ReportStyle<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Human => human::render(report, style, out),
            Self::Json => json::render(report, out),
            Self::Sarif => sarif::render(report, style, out),
            Self::Github => github::render(report, style, out),
            Self::Junit => junit::render(report, style, out),
            Self::Concise => concise::render(report, out),
            Self::Grouped => causes::render(report, style, out),
            Self::Gitlab => gitlab::render(report, style, out),
            Self::Rdjson => rdjson::render(report, style, out),
        }
    }
}
