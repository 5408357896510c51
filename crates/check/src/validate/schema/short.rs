//! Shortens texts for messages.

use std::fmt::{self, Display, Write};

/// Maximum length of a value quoted in a message, in characters.
pub(super) const MAX_QUOTE_CHARS: usize = 60;
/// Maximum length of a reason in a message, in bytes.
const MAX_REASON_BYTES: usize = 300;

/// Shortens a value for a message.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Formats the beginning of a reason, which may quote a large schema.
pub(super) fn reason(reason: &impl Display) -> String {
    let mut beginning = Beginning(String::new());
    let is_whole = write!(beginning, "{reason}").is_ok();
    let mark = if is_whole { "" } else { "…" };
    beginning.0 + mark
}

/// A text that takes no more than `MAX_REASON_BYTES`.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = MAX_REASON_BYTES - self.0.len();
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(left)]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_REASON_BYTES, reason};

    #[test]
    fn long_reasons_end_early() {
        assert_eq!(reason(&"a"), "a");
        let long = reason(&"ë".repeat(1000));
        assert_eq!(long.len(), MAX_REASON_BYTES + "…".len());
        assert!(long.ends_with("ë…"));
    }
}
