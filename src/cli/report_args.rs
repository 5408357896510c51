//! Output formats of finding reports, and writing reports to files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::exit::Failure;
use super::output;
use pkgtool_base::diagnostic::Report;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle};
use pkgtool_base::package::Roots;

/// Parses the name of a report format.
pub(super) fn format_parser() -> impl TypedValueParser<Value = ReportFormat> {
    let values =
        ReportFormat::ALL.map(|format| PossibleValue::new(format.name()).help(help(format)));
    PossibleValuesParser::new(values)
        .map(|name| ReportFormat::from_name(&name).expect("only names of formats are possible"))
}

/// Describes a format in the help.
fn help(format: ReportFormat) -> &'static str {
    match format {
        ReportFormat::Human => "Source snippets with the offending text underlined",
        ReportFormat::Json => "One JSON document",
        ReportFormat::Sarif => "SARIF 2.1.0",
        ReportFormat::Github => "GitHub Actions annotations",
        ReportFormat::Junit => "JUnit XML",
        ReportFormat::Concise => "One finding per line: path:line:column: severity code message",
        ReportFormat::Grouped => "Findings grouped by their cause",
        ReportFormat::Gitlab => "GitLab Code Quality report",
        ReportFormat::Rdjson => "Reviewdog Diagnostic ReportFormat, with fixes as suggestions",
    }
}

/// The file name that means standard output.
const STDOUT: &str = "-";

/// Returns whether a report goes to standard output, so that nothing else may be written there. At
/// most one report may.
pub(super) fn take_stdout(targets: &[(ReportFormat, PathBuf)]) -> Result<bool, Failure> {
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
    targets: &[(ReportFormat, PathBuf)],
    report: &Report,
    style: &ReportStyle<'_>,
) -> Result<(), Failure> {
    for (format, path) in targets {
        if path.as_os_str() == STDOUT {
            let mut out = output::stdout();
            format.render(report, style, &mut out)?;
            out.flush()?;
            continue;
        }
        let write = || {
            let mut file = BufWriter::new(File::create(path)?);
            format.render(report, style, &mut file)?;
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

/// Returns whether a format shows paths as the user wrote them: formats for people, and the tool's
/// own JSON.
pub(super) fn keeps_paths(format: ReportFormat) -> bool {
    matches!(
        format,
        ReportFormat::Human | ReportFormat::Json | ReportFormat::Concise | ReportFormat::Grouped
    )
}

/// Parses `FORMAT=FILE`.
pub(super) fn parse(text: &str) -> Result<(ReportFormat, PathBuf), String> {
    let (format, path) = text
        .split_once('=')
        .ok_or("expected FORMAT=FILE, for example sarif=findings.sarif")?;
    let format = ReportFormat::from_name(format).ok_or_else(|| {
        let known = ReportFormat::ALL.map(ReportFormat::name).join(", ");
        format!("unknown format `{format}`: expected one of {known}")
    })?;
    if path.is_empty() {
        return Err("expected a file name after `=`".to_owned());
    }
    Ok((format, PathBuf::from(path)))
}
