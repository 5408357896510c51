//! Output formats of finding reports, and writing reports to files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::exit::Failure;
use super::output;
use pkgtool_base::diagnostic::Report;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::package::Roots;

/// A report format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormatArg {
    /// Source snippets with the offending text underlined
    Human,
    /// One JSON document
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// GitHub Actions annotations
    Github,
    /// JUnit XML
    Junit,
    /// One finding per line: path:line:column: severity code message
    Concise,
    /// Findings grouped by their cause
    Grouped,
    /// GitLab Code Quality report
    Gitlab,
    /// Reviewdog Diagnostic Format, with fixes as suggestions
    Rdjson,
}

/// The file name that means standard output.
const STDOUT: &str = "-";

/// Returns whether a report goes to standard output, so that nothing else may be written there. At
/// most one report may.
pub(super) fn take_stdout(targets: &[(ReportFormatArg, PathBuf)]) -> Result<bool, Failure> {
    let count = targets
        .iter()
        .filter(|(_, path)| path.as_os_str() == STDOUT)
        .count();
    if count > 1 {
        let reason = "only one report can go to standard output (`-`)";
        return Err(Failure::Other(reason.to_owned()));
    }
    Ok(count == 1)
}

/// Returns the paths that machine-readable reports show: relative to `root` if it is given,
/// otherwise to the root of the checkout that contains the file.
pub(super) fn machine_paths(report: &Report, root: Option<&Path>) -> BTreeMap<String, String> {
    let roots = Roots::new();
    let root = root.map(|root| roots.absolute(root));
    let sources = report
        .diagnostics
        .iter()
        .map(|one| one.source.path.as_str());
    let mut paths = BTreeMap::new();
    for shown in report.files.iter().map(String::as_str).chain(sources) {
        // Addresses are kept unchanged.
        if paths.contains_key(shown) || shown.contains("://") || shown.starts_with("hf:") {
            continue;
        }
        let absolute = roots.absolute(Path::new(shown));
        let checkout = || roots.checkout(absolute.parent()?);
        let base = root.clone().or_else(checkout);
        let below = base.and_then(|base| Some(absolute.strip_prefix(base).ok()?.to_owned()));
        let below = below.and_then(|below| Some(below.to_str()?.replace('\\', "/")));
        paths.insert(shown.to_owned(), below.unwrap_or_else(|| shown.to_owned()));
    }
    paths
}

/// Writes a report to each file, in its format.
pub(super) fn write(
    targets: &[(ReportFormatArg, PathBuf)],
    report: &Report,
    style: &ReportStyle<'_>,
) -> Result<(), Failure> {
    for (format, path) in targets {
        if path.as_os_str() == STDOUT {
            let mut out = output::stdout();
            format.format().render(report, style, &mut out)?;
            out.flush()?;
            continue;
        }
        let write = || {
            let mut file = BufWriter::new(File::create(path)?);
            format.format().render(report, style, &mut file)?;
            file.flush()
        };
        write().map_err(|error| {
            Failure::Other(format!(
                "cannot write the report {}: {error}",
                path.display()
            ))
        })?;
    }
    Ok(())
}

impl ReportFormatArg {
    /// Returns whether paths are shown as the user wrote them: in formats for people, and in the
    /// tool's own JSON.
    pub(super) fn keeps_paths(self) -> bool {
        matches!(
            self,
            Self::Human | Self::Json | Self::Concise | Self::Grouped
        )
    }

    /// Returns the renderer of this format.
    pub(super) fn format(self) -> ReportFormat {
        match self {
            Self::Human => ReportFormat::Human,
            Self::Json => ReportFormat::Json,
            Self::Sarif => ReportFormat::Sarif,
            Self::Github => ReportFormat::Github,
            Self::Junit => ReportFormat::Junit,
            Self::Concise => ReportFormat::Concise,
            Self::Grouped => ReportFormat::Grouped,
            Self::Gitlab => ReportFormat::Gitlab,
            Self::Rdjson => ReportFormat::Rdjson,
        }
    }
}

/// Parses `FORMAT=FILE`.
pub(super) fn parse(text: &str) -> Result<(ReportFormatArg, PathBuf), String> {
    let (format, path) = text
        .split_once('=')
        .ok_or("expected FORMAT=FILE, for example sarif=findings.sarif")?;
    let format = ReportFormatArg::from_str(format, false).map_err(|_| {
        let known = ReportFormat::ALL.map(ReportFormat::name).join(", ");
        format!("unknown format `{format}`: expected one of {known}")
    })?;
    if path.is_empty() {
        return Err("expected a file name after `=`".to_owned());
    }
    Ok((format, PathBuf::from(path)))
}
