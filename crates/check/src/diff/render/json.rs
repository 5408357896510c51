//! pkgtool's own JSON output: version 1 of a contract that only grows.

use std::io::{self, Write};

use serde::Serialize;

use super::DiffStyle;
use crate::diff::{Change, ChangeLevel, ChangeLocation, ChangeSummary, Difference};
use pkgtool_base::source::text::write_json;

#[derive(Serialize)]
struct DiffOutput<'a> {
    version: u32,
    old: &'a str,
    new: &'a str,
    compared: usize,
    summary: ChangeSummary,
    changes: Vec<ChangeEntry<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ChangeEntry<'a> {
    level: ChangeLevel,
    kind: &'static str,
    #[serde(flatten)]
    place: &'a ChangeLocation,
    subject: &'a str,
    old: Option<&'a str>,
    new: Option<&'a str>,
    note: Option<&'a str>,
    message: String,
}

pub(super) fn render(
    difference: &Difference,
    style: &DiffStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let output = DiffOutput {
        version: 1,
        old: style.old,
        new: style.new,
        compared: difference.compared,
        summary: difference.summary(),
        changes: difference.changes.iter().map(entry).collect(),
        notes: &difference.notes,
    };
    write_json(&output, out)
}

fn entry(change: &Change) -> ChangeEntry<'_> {
    ChangeEntry {
        level: change.kind.level,
        kind: change.kind.name,
        place: &change.place,
        subject: &change.subject,
        old: change.old.as_deref(),
        new: change.new.as_deref(),
        note: change.note.as_deref(),
        message: change.message(),
    }
}
