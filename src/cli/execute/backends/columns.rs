//! Wraps lines for terminals of 80 columns.
//!
//! Invariant: words are never broken, so that paths and commands can be copied. A continuation line
//! is indented to the second column of its first line.

/// Width of a narrow terminal, in columns.
const TERMINAL_WIDTH: usize = 80;
/// Maximum indentation of a continuation line, in columns.
const MAX_CONTINUATION_COLUMN: usize = 14;

/// Wraps the long lines of a text between words.
pub(super) fn wrap_lines(text: &str) -> String {
    let mut fitted = String::new();
    for line in text.lines() {
        wrap_line(line, &mut fitted);
    }
    fitted
}

fn wrap_line(line: &str, fitted: &mut String) {
    if line.chars().count() <= TERMINAL_WIDTH {
        fitted.push_str(line);
        fitted.push('\n');
        return;
    }
    let hang = continuation_column(line);
    let indentation = line.len() - line.trim_start_matches(' ').len();
    let mut current = " ".repeat(indentation);
    let mut is_empty = true;
    // Spaces that align columns stay with the word before them.
    for word in line[indentation..].split_inclusive(' ') {
        let width = word.trim_end().chars().count();
        if !is_empty && width > 0 && current.chars().count() + width > TERMINAL_WIDTH {
            fitted.push_str(current.trim_end());
            fitted.push('\n');
            current = " ".repeat(hang);
        }
        current.push_str(word);
        is_empty = false;
    }
    fitted.push_str(current.trim_end());
    fitted.push('\n');
}

/// Returns the column of the second word group, if a gap of two or more spaces precedes it.
fn continuation_column(line: &str) -> usize {
    let indentation = line.len() - line.trim_start_matches(' ').len();
    let rest = &line[indentation..];
    let second = rest.find("  ").map(|gap| {
        let after = &rest[gap..];
        indentation + gap + (after.len() - after.trim_start_matches(' ').len())
    });
    second
        .filter(|column| *column <= MAX_CONTINUATION_COLUMN)
        .unwrap_or(indentation + 2)
}

#[cfg(test)]
mod tests {
    use super::wrap_lines;

    #[test]
    fn lines_fit_and_words_stay_whole() {
        let words = "word ".repeat(40);
        let path = "/a/long/path".repeat(10);
        let text = format!("short\n  tract  {words}\n         {path} (found)\n");
        let fitted = wrap_lines(&text);
        assert!(fitted.contains(&path), "{fitted}");
        for line in fitted.lines().filter(|line| !line.contains(&path)) {
            assert!(line.chars().count() <= 80, "{line}");
            assert!(
                line == "short"
                    || line.starts_with("  tract  word")
                    || line.starts_with("         "),
                "{line}"
            );
        }
        let same = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(same(&fitted), same(&text), "nothing is lost");
    }
}
