//! Makes text from files safe to show.
//!
//! Terminals obey control characters, and readers trust the visible order of characters. So no
//! output format shows hidden characters of a file's text as they are.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

/// Returns bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns whether a character controls a terminal, reorders other characters, or is invisible.
/// Line ends and tabs count as well.
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        // The soft hyphen, the Arabic letter mark, the Mongolian vowel separator.
        | '\u{ad}' | '\u{61c}' | '\u{180e}'
        // Zero-width characters; joiner and non-joiner are part of many scripts, and therefore
        // allowed.
        | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        // Tag characters.
        | '\u{e0000}'..='\u{e007f}')
}

/// Replaces hidden characters by harmless ones of the same length in UTF-8. Line ends and tabs
/// stay.
pub fn defuse(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' | '\r' => c,
        _ if !is_hidden(c) => c,
        _ => match c.len_utf8() {
            1 => '?',
            2 => '¿',
            3 => '\u{fffd}',
            _ => '\u{1fbc4}',
        },
    };
    let text: String = text.chars().map(harmless).collect();
    // A lone carriage return would let the rest of a line overwrite its beginning.
    if text.contains('\r') {
        let lines: Vec<String> = text
            .split("\r\n")
            .map(|line| line.replace('\r', "?"))
            .collect();
        return lines.join("\r\n");
    }
    text
}

/// Like [`defuse`], for a text that must stay on one line.
pub fn defuse_line(text: &str) -> String {
    defuse(&text.replace(['\n', '\r', '\t'], "?"))
}

/// Escapes hidden characters as JSON does, `\u202e`. Line ends and tabs stay. A JSON document keeps
/// its values, because such characters occur only in its strings.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_all(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'))
}

/// Like [`escape`], for a text that must stay on one line.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    escape_all(text, is_hidden)
}

/// Writes a value as indented JSON with a final line end.
pub fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(out, "{}", escape(&text))
}

fn escape_all(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut units = [0; 2];
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let is_line_end = c == '\r' && characters.peek() == Some(&'\n') && !is_escaped('\n');
        if is_line_end || !is_escaped(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            let written = write!(escaped, "\\u{unit:04x}");
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::{defuse, escape, escape_line};

    #[test]
    fn hidden_characters_are_written_out() {
        assert_eq!(escape("plain\ttext\r\n"), "plain\ttext\r\n");
        assert_eq!(escape_line("a\nb"), "a\\u000ab");
        assert_eq!(escape("a\u{1b}[31m\rb"), "a\\u001b[31m\\u000db");
        assert_eq!(escape("\u{202e}\u{9b}\u{7f}"), "\\u202e\\u009b\\u007f");
        assert_eq!(escape("\u{e0041}"), "\\udb40\\udc41");
        assert_eq!(escape("👩\u{200d}🔬 ü"), "👩\u{200d}🔬 ü");
    }

    #[test]
    fn defusing_keeps_offsets() {
        let text = "a\u{1b}b\u{9b}c\u{61c}d\u{202e}e\u{e0041}f\r";
        let safe = defuse(text);
        assert_eq!(safe.len(), text.len());
        assert!(!safe.chars().any(super::is_hidden));
        assert_eq!(safe.find('f'), text.find('f'));
    }
}
