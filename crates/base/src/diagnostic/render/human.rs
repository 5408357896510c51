//! Renders text for people: each finding with its source line, the offending text underlined, and
//! the remedy.

use std::fmt;
use std::io::{self, Write};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode, ThemeCharacters, ThemeStyles,
};

use super::ReportStyle;
use super::grouped;
use super::snippet::Snippet;
use crate::diagnostic::{Diagnostic, Report, ReportSummary, Severity};
use crate::source::text::defuse_line;

pub(super) fn render(
    report: &Report,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let theme = GraphicalTheme {
        characters: ThemeCharacters::unicode(),
        styles: if style.color {
            ThemeStyles::ansi()
        } else {
            ThemeStyles::none()
        },
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(style.width)
        .with_links(style.links)
        .with_link_display_text("")
        .with_break_words(false)
        .without_primary_span_start();
    let mut show = |diagnostic: &Diagnostic, more: Option<String>| {
        let mut text = String::new();
        handler
            .render_report(&mut text, &MietteDiagnostic::new(diagnostic, style.links))
            .map_err(io::Error::other)?;
        writeln!(out, "{}", text.trim_end())?;
        if let Some(more) = more {
            writeln!(out, "{more}")?;
        }
        writeln!(out)
    };
    let groups = (style.grouped && report.diagnostics.len() > grouped::MAX_UNGROUPED)
        .then(|| grouped::groups(&report.diagnostics));
    match &groups {
        Some(groups) => groups
            .iter()
            .try_for_each(|group| show(group.first(), group.others()))?,
        None => report
            .diagnostics
            .iter()
            .try_for_each(|one| show(one, None))?,
    }
    if style.summary {
        writeln!(out, "{}", summary_line(report))?;
        if let Some(groups) = &groups {
            write!(out, "{}", grouped::closing_lines(groups))?;
        }
    }
    Ok(())
}

/// Returns a line such as `3 packages checked: 1 error, 2 warnings`.
pub(super) fn summary_line(report: &Report) -> String {
    let ReportSummary {
        packages,
        errors,
        warnings,
        notes,
    } = report.summary();
    let others = report.lists;
    let checked = match (packages, others) {
        (0, 0) => count(report.files.len(), "file"),
        (_, 0) => count(packages, "package"),
        (0, _) => count(others, "precision list"),
        _ => format!(
            "{} and {}",
            count(packages, "package"),
            count(others, "precision list")
        ),
    };
    let findings: Vec<String> = [(errors, "error"), (warnings, "warning"), (notes, "note")]
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, noun)| count(number, noun))
        .collect();
    if findings.is_empty() {
        format!("{checked} checked, all clean")
    } else {
        format!("{checked} checked: {}", findings.join(", "))
    }
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Adapts a diagnostic to miette.
#[derive(Debug)]
struct MietteDiagnostic<'a> {
    diagnostic: &'a Diagnostic,
    message: String,
    help: Option<String>,
    snippet: Option<Snippet>,
    /// Whether the code links to the page of its rule.
    is_linked: bool,
}

impl<'a> MietteDiagnostic<'a> {
    fn new(diagnostic: &'a Diagnostic, is_linked: bool) -> Self {
        let snippet = Snippet::new(&diagnostic.source, diagnostic.span);
        let message = defuse_line(&diagnostic.message);
        Self {
            message: match snippet {
                Some(_) => message,
                None => format!("{}: {message}", defuse_line(&diagnostic.source.path)),
            },
            help: diagnostic.help.as_deref().map(defuse_line),
            snippet,
            is_linked,
            diagnostic,
        }
    }
}

impl fmt::Display for MietteDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MietteDiagnostic<'_> {}

impl miette::Diagnostic for MietteDiagnostic<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let Diagnostic { rule, severity, .. } = self.diagnostic;
        Some(Box::new(format!(
            "{}[{}] {}",
            severity.name(),
            rule.code,
            rule.name
        )))
    }

    fn url<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        // Without links the library would print the URL beside the code.
        let page = self.is_linked.then(|| self.diagnostic.rule.page())?;
        Some(Box::new(page))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = self.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        let snippet = self.snippet.as_ref()?;
        Some(snippet)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.snippet.as_ref()?.underline;
        let label = LabeledSpan::new(None, span.start, span.len());
        Some(Box::new(std::iter::once(label)))
    }
}
