//! The figures of an agreement between two outputs, and tables of them.

use std::fmt::Write as _;

use crate::tensor::agreement::Agreement;

/// Names of the [`figures`].
pub(super) const FIGURES: [&str; 5] = ["max abs", "max rel", "cosine", "SNR", "top-1"];

/// Formats the figures of an agreement for a table.
pub(super) fn figures(found: &Agreement) -> [String; 5] {
    let snr = found.snr_db;
    let top1 = found.top1;
    [
        figure(Some(found.max_abs)),
        figure(Some(found.max_rel)),
        format!("{:.6}", found.cosine),
        snr.map_or("∞".to_owned(), |snr| format!("{snr:.1} dB")),
        top1.map_or("-".to_owned(), |top1| format!("{:.1}%", top1 * 100.0)),
    ]
}

/// Formats a number with three digits.
pub(super) fn figure(value: Option<f64>) -> String {
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

/// Writes rows as columns. Columns of numbers are aligned to the right.
pub(super) fn write_table(
    text: &mut String,
    rows: &[Vec<String>],
    is_number: impl Fn(usize) -> bool,
) -> std::fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if is_number(column) {
                write!(line, "  {cell:>width$}")?;
            } else {
                write!(line, "  {cell:width$}")?;
            }
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}
