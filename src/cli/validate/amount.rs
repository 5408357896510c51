//! How much of a report is printed: `--statistics` and `--max-findings`.

use std::io::Write;

use crate::cli::exit::Failure;
use crate::cli::output;
use crate::cli::report_args::FormatArg;
use crate::diagnostic::Report;
use crate::diagnostic::render::{Style, statistics, statistics_json};

/// Options about the amount.
#[derive(Debug, clap::Args)]
pub(super) struct AmountArgs {
    /// Print how many findings each rule has, instead of the findings (human, concise, grouped, json)
    #[arg(long)]
    statistics: bool,

    /// Report at most N findings, the worst first. All of them still count for the summary and the exit
    /// code
    #[arg(long, value_name = "N")]
    max_findings: Option<usize>,
}

impl AmountArgs {
    /// Whether statistics are asked for; fails where the format has none.
    pub(super) fn statistics(&self, format: FormatArg) -> Result<bool, Failure> {
        if self.statistics && !format.keeps_paths() {
            let name = format.format().name();
            return Err(Failure::Other(format!(
                "--statistics has no {name} form; use --format human, concise, grouped or json"
            )));
        }
        Ok(self.statistics)
    }

    /// Takes out of a report what is too much.
    pub(super) fn limit(&self, report: &mut Report, quiet: bool) {
        // Statistics are of everything.
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
    format: FormatArg,
    style: &Style<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        FormatArg::Json => statistics_json(report, out)?,
        _ => statistics(report, style, out)?,
    }
    Ok(())
}
