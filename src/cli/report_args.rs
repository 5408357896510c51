//! Reports of findings: their formats on the command line, and writing them to files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::exit::Failure;
use crate::diagnostic::Report;
use crate::diagnostic::render::{Format, Style};

/// A format of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
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
}

/// Writes a report to each file, in its format.
pub(super) fn write(
    targets: &[(FormatArg, PathBuf)],
    report: &Report,
    style: &Style<'_>,
) -> Result<(), Failure> {
    for (format, path) in targets {
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

impl FormatArg {
    /// The renderer.
    pub(super) fn format(self) -> Format {
        match self {
            Self::Human => Format::Human,
            Self::Json => Format::Json,
            Self::Sarif => Format::Sarif,
            Self::Github => Format::Github,
            Self::Junit => Format::Junit,
        }
    }
}

/// `FORMAT=FILE`.
pub(super) fn parse(text: &str) -> Result<(FormatArg, PathBuf), String> {
    let (format, path) = text
        .split_once('=')
        .ok_or("expected FORMAT=FILE, for example sarif=findings.sarif")?;
    let format = FormatArg::from_str(format, false).map_err(|_| {
        format!("unknown format `{format}`; one of human, json, sarif, github, junit")
    })?;
    if path.is_empty() {
        return Err("expected a file name after `=`".to_owned());
    }
    Ok((format, PathBuf::from(path)))
}
