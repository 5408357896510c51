//! Text from files, made safe to show.

/// Replaces what a terminal would obey by something harmless of the same length in UTF-8.
pub fn defuse(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' | '\r' => c,
        _ if c.is_ascii_control() => '?',
        '\u{80}'..='\u{9f}' => '¿',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    };
    let text: String = text.chars().map(harmless).collect();
    // Alone, a carriage return would let the rest of a line overwrite its beginning.
    if text.contains('\r') {
        let lines: Vec<String> = text
            .split("\r\n")
            .map(|line| line.replace('\r', "?"))
            .collect();
        return lines.join("\r\n");
    }
    text
}

/// The same for a text that is to stay on one line.
pub fn defuse_line(text: &str) -> String {
    defuse(&text.replace(['\n', '\r', '\t'], "?"))
}
