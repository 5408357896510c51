//! Options that limit the printed report: `--statistics` and `--max-findings`.

use std::io::Write;

use crate::cli::exit::Failure;
use crate::cli::output;
use crate::cli::report_args::keeps_paths;
use pkgtool_base::diagnostic::Report;
use pkgtool_base::diagnostic::render::{ReportFormat, ReportStyle, statistics, statistics_json};

/// Options for the size of the report.
#[derive(Debug, clap::Args)]
pub(super) struct AmountArgs {
    /// Print the number of findings per rule instead of the findings (human, concise, grouped,
    /// json)
    #[arg(long)]
    statistics: bool,

    /// Maximum number of findings to report, most severe first. The summary and the exit code count
    /// all of them
    #[arg(long, value_name = "N")]
    max_findings: Option<usize>,
}

impl AmountArgs {
    /// Returns whether to print statistics. Fails if the format does not support them.
    pub(super) fn statistics(&self, format: ReportFormat) -> Result<bool, Failure> {
        if self.statistics && !keeps_paths(format) {
            let name = format.name();
            return Err(Failure::Other(format!(
                "--statistics does not support --format {name}: use human, concise, grouped or json"
            )));
        }
        Ok(self.statistics)
    }

    /// Removes the findings above the limit from a report.
    pub(super) fn limit(&self, report: &mut Report, quiet: bool) {
        // Statistics include all findings.
        let Some(most) = self.max_findings.filter(|_| !self.statistics) else {
            return;
        };
        let others = report.keep_worst(most);
        if others > 0 && !quiet {
            let noun = if others == 1 {
                "finding is"
            } else {
                "findings are"
            };
            output::note(&format!(
                "{others} more {noun} not shown (--max-findings {most})"
            ));
        }
    }
}

/// Writes the statistics.
pub(super) fn print(
    report: &Report,
    format: ReportFormat,
    style: &ReportStyle<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        ReportFormat::Json => statistics_json(report, out)?,
        _ => statistics(report, style, out)?,
    }
    Ok(())
}
