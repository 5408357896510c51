//! The figures of an agreement between two outputs, and tables of them.

use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_engine::tensor::agreement::Agreement;

/// Names of the [`format_figures`].
pub(super) const FIGURES: [&str; 5] = ["max abs", "max rel", "cosine", "SNR", "top-1"];

/// Formats the figures of an agreement for a table.
pub(super) fn format_figures(found: &Agreement) -> [String; 5] {
    let snr = found.snr_db;
    let top1 = found.top1;
    [
        format_figure(Some(found.max_abs)),
        format_figure(Some(found.max_rel)),
        format!("{:.6}", found.cosine),
        snr.map_or("∞".to_owned(), |snr| format!("{snr:.1} dB")),
        top1.map_or("-".to_owned(), |top1| format!("{:.1}%", top1 * 100.0)),
    ]
}

/// Formats a number with three digits.
pub(super) fn format_figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if (1e-3..1e4).contains(&value.abs()) => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(value) => format!("{value:.2e}"),
    }
}

/// Creates a table with a column of names and the figures.
pub(super) fn table(name: &str) -> TextTable {
    let columns = [Align::Left]
        .into_iter()
        .chain(FIGURES.map(|_| Align::Right));
    let mut table = TextTable::new(columns).indented();
    table.row([name].into_iter().chain(FIGURES));
    table
}
