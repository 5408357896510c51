//! Text output for people: each package with its changes, one per line.

use std::io::{self, Write};

use super::{DiffStyle, counts};
use crate::diff::{Change, ChangeLevel, Difference};
use pkgtool_base::source::text::defuse_line;

pub(super) fn render(
    difference: &Difference,
    style: &DiffStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut last = None;
    let level = ChangeLevel::ALL.map(|level| level.name().len());
    let level = level.into_iter().max().unwrap_or_default();
    let kinds = difference.changes.iter().map(|one| one.kind.name.len());
    let kind = kinds.max().unwrap_or_default();
    for change in &difference.changes {
        let package = (&change.place.package, &change.place.config);
        if last != Some(package) {
            if last.is_some() {
                writeln!(out)?;
            }
            writeln!(out, "{}", heading(change))?;
            last = Some(package);
        }
        let name = change.kind.level.name();
        let pad = " ".repeat(level - name.len());
        let inside = match change.place.inside() {
            inside if inside.is_empty() => String::new(),
            inside => format!("{}: ", defuse_line(&inside)),
        };
        writeln!(
            out,
            "  {}{pad}  {:kind$}  {inside}{}",
            coloured(change.kind.level, style.color),
            change.kind.name,
            defuse_line(&change.message()),
        )?;
    }
    if last.is_some() {
        writeln!(out)?;
    }
    let compared = match difference.compared {
        1 => "1 config compared".to_owned(),
        count => format!("{count} configs compared"),
    };
    writeln!(out, "{compared}: {}", counts(difference))
}

/// Formats a heading like `spotter s xnnpack (s/xnnpack/config.json)`.
fn heading(change: &Change) -> String {
    let place = &change.place;
    if place.package == place.config {
        return defuse_line(&place.config);
    }
    let (package, config) = (defuse_line(&place.package), defuse_line(&place.config));
    format!("{package} ({config})")
}

fn coloured(level: ChangeLevel, color: bool) -> String {
    let name = level.name();
    let code = match level {
        ChangeLevel::Breaking => "31",
        ChangeLevel::Compatible => "32",
        ChangeLevel::Cosmetic => "2",
    };
    if color {
        format!("\u{1b}[{code}m{name}\u{1b}[0m")
    } else {
        name.to_owned()
    }
}
