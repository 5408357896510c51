//! Renderings of a report: one file a format, one list of them.

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

/// A way to write a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people: source snippets with the offending text underlined.
    Human,
    /// One JSON document, the tool's own stable form.
    Json,
    /// SARIF 2.1.0, for code-scanning services.
    Sarif,
    /// GitHub Actions workflow commands, which become annotations.
    Github,
    /// JUnit XML, for test dashboards.
    Junit,
    /// One finding a line: `path:line:column: severity code message`.
    Concise,
    /// Every finding, put together by its cause.
    Grouped,
    /// GitLab's Code Quality report.
    Gitlab,
    /// Reviewdog's diagnostic format, with suggestions.
    Rdjson,
}

/// What renderers need beside the report.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of one format"
)]
pub struct Style<'a> {
    /// Whether to write terminal colours (human only).
    pub color: bool,
    /// Columns of the terminal (human only).
    pub width: usize,
    /// Whether to end with a line of counts (human and grouped).
    pub summary: bool,
    /// Whether warnings count as failures (JUnit only).
    pub deny_warnings: bool,
    /// Whether many findings are put together by their causes (human only).
    pub grouped: bool,
    /// All rules of the tool (SARIF only).
    pub rules: &'a [&'static RuleMeta],
    /// Whether to link codes to the pages of their rules (human only).
    pub links: bool,
    /// Paths as machines want them, relative to the repository, by those of the report; one that is
    /// not here is as the report has it (all that machines read but the tool's own JSON).
    pub paths: &'a BTreeMap<String, String>,
}

impl<'a> Style<'a> {
    /// The path for a machine.
    fn path<'p>(&self, path: &'p str) -> &'p str
    where
        'a: 'p,
    {
        self.paths.get(path).map_or(path, String::as_str)
    }
}

impl Format {
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

    /// The format's name on the command line.
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

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Writes the report.
    pub fn render(self, report: &Report, style: &Style<'_>, out: &mut dyn Write) -> io::Result<()> {
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
