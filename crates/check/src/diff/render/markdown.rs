//! Markdown output for release notes: one section per level, breaking changes first, and one list
//! per package.
//!
//! Text from packages is escaped: no markup, no line breaks, no mentions.

use std::io::{self, Write};

use super::{DiffStyle, counts};
use crate::diff::{Change, ChangeLevel, Difference};
use pkgtool_base::source::text::defuse_line;

pub(super) fn render(
    difference: &Difference,
    style: &DiffStyle<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (old, new) = (code(style.old), code(style.new));
    writeln!(out, "## Changes from {old} to {new}\n")?;
    let mut total = counts(difference);
    if let Some(first) = total.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    writeln!(out, "{total}.")?;
    for level in ChangeLevel::ALL {
        let of_level = |change: &&Change| change.kind.level == level;
        let changes: Vec<&Change> = difference.changes.iter().filter(of_level).collect();
        if changes.is_empty() {
            continue;
        }
        writeln!(out, "\n### {}\n", title(level))?;
        let mut last = None;
        for change in changes {
            let place = &change.place;
            if last != Some((&place.package, &place.config)) {
                writeln!(out, "- **{}**", plain(&place.package))?;
                last = Some((&place.package, &place.config));
            }
            let inside = match place.inside() {
                inside if inside.is_empty() => String::new(),
                inside => format!("{}: ", code(&inside)),
            };
            writeln!(out, "  - {inside}{}", plain(&change.message()))?;
        }
    }
    Ok(())
}

fn title(level: ChangeLevel) -> &'static str {
    match level {
        ChangeLevel::Breaking => "Breaking",
        ChangeLevel::Compatible => "Compatible",
        ChangeLevel::Cosmetic => "Cosmetic",
    }
}

/// Formats a text as inline code, with as many backticks as needed.
fn code(text: &str) -> String {
    let text = defuse_line(text);
    let (mut longest, mut run) = (0, 0);
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Keeps the parts of a text in backticks as code and escapes all other markup.
fn plain(text: &str) -> String {
    let text = defuse_line(text);
    let pieces: Vec<&str> = text.split('`').collect();
    let balanced = pieces.len() % 2 == 1;
    let mut out = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            out.push_str(if balanced { "`" } else { "\\`" });
        }
        if balanced && at % 2 == 1 {
            out.push_str(piece);
            continue;
        }
        for c in piece.chars() {
            match c {
                '\\' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '!' => {
                    out.push('\\');
                    out.push(c);
                }
                // A mention would notify the user of that name.
                '@' => out.push_str("&#64;"),
                c => out.push(c),
            }
        }
    }
    out
}
