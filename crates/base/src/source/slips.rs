//! Better error messages for common mistakes in JSON that a parser reports poorly, such as Python
//! literals or merge conflicts.
//!
//! Invariant: one pass over the text, ignoring strings. The reported position is always inside the
//! text.

use super::Span;
use super::syntax::SyntaxError;

/// Words of other notations, with the remedy in JSON.
const FOREIGN_WORDS: [(&str, &str); 9] = [
    (
        "NaN",
        "JSON has no such number: leave the field out, or write `null` where that is allowed",
    ),
    (
        "-NaN",
        "JSON has no such number: leave the field out, or write `null` where that is allowed",
    ),
    ("Infinity", "JSON has no such number: leave the field out"),
    ("-Infinity", "JSON has no such number: leave the field out"),
    ("None", "write `null`"),
    ("undefined", "write `null`, or leave the field out"),
    ("True", "write `true`"),
    ("False", "write `false`"),
    (
        "nan",
        "JSON has no such number: leave the field out, or write `null` where that is allowed",
    ),
];

/// Returns a better error for a syntax error of `text`; `None` if the parser's is good.
pub(super) fn name(text: &str, error: &SyntaxError) -> Option<SyntaxError> {
    conflict_error(text)
        .or_else(|| nul_error(text))
        .or_else(|| other_notation(text))
        .or_else(|| foreign_character(text, error))
        .or_else(|| foreign_word(text, error.span.start))
        .or_else(|| bracket_error(text, error))
}

/// Detects that a text is something else than JSON, from its content. `text` may be only its
/// beginning.
pub fn detect_cause(text: &str) -> Option<SyntaxError> {
    conflict_error(text)
        .or_else(|| nul_error(text))
        .or_else(|| other_notation(text))
}

/// Returns the name of a character that editors and chats put in place of an ASCII one, and the
/// remedy.
fn foreign_name(c: char) -> Option<(&'static str, &'static str)> {
    Some(match c {
        '\u{a0}' => ("a no-break space", "write a plain space"),
        '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => {
            ("a space of unusual width", "write a plain space")
        }
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => {
            ("an invisible character", "delete it")
        }
        '\u{201c}'..='\u{201f}' => ("a curly quotation mark", "write `\"`"),
        '\u{2018}'..='\u{201b}' => ("a curly single quotation mark", "write `\"`"),
        _ => return None,
    })
}

/// Finds the first such character outside of strings, if the parser stopped there.
pub(super) fn foreign_character(text: &str, error: &SyntaxError) -> Option<SyntaxError> {
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if in_string {
            (in_string, escaped) = (c != '"' || escaped, c == '\\' && !escaped);
        } else if c == '"' {
            in_string = true;
        } else if let Some((name, help)) = foreign_name(c) {
            // The parser may have stopped at the previous token.
            let between = text.get(error.span.end..at).unwrap_or_default();
            let is_next = between.bytes().all(|byte| b" \t\r\n:,".contains(&byte));
            return is_next.then(|| SyntaxError {
                message: format!("U+{:04X}, {name}, is outside of a string", u32::from(c)),
                span: Span::new(at, at + c.len_utf8()),
                help: help.into(),
            });
        }
    }
    None
}

fn conflict_error(text: &str) -> Option<SyntaxError> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
            let end = at + line.trim_end().len();
            return Some(SyntaxError {
                message: "The file has a merge conflict marker".to_owned(),
                span: Span::new(at, end),
                help: "decide between the two sides, and delete the lines `<<<<<<<`, `=======` and `>>>>>>>`".into(),
            });
        }
        at += line.len();
    }
    None
}

/// Finds a NUL character, which never occurs in JSON and usually comes from a broken disk or
/// download.
fn nul_error(text: &str) -> Option<SyntaxError> {
    let at = text.find('\0')?;
    Some(SyntaxError {
        message: "The file has NUL characters".to_owned(),
        span: Span::new(at, at + 1),
        help: "the file is incomplete or not a text: write or fetch it again".into(),
    })
}

fn other_notation(text: &str) -> Option<SyntaxError> {
    let start = text.len() - text.trim_ascii_start().len();
    let rest = &text[start..];
    let first = rest.lines().next().unwrap_or_default();
    let lower = first.to_ascii_lowercase();
    let (message, help) = if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        (
            "The file is a page of HTML, not JSON",
            "most likely a download that was answered with an error page: fetch the file again",
        )
    } else if lower.starts_with("<?xml") {
        ("The file is XML, not JSON", "fetch or write the file again")
    } else if is_yaml(first, rest) {
        (
            "The file is YAML, not JSON",
            "write it as JSON: keys and texts in double quotes, objects in braces",
        )
    } else {
        return None;
    };
    Some(SyntaxError {
        message: message.to_owned(),
        span: Span::new(start, start + first.trim_end().len()),
        help: help.into(),
    })
}

fn is_yaml(first: &str, rest: &str) -> bool {
    if first.trim_end() == "---" {
        return true;
    }
    let is_entry = |line: &str| {
        let key = line.split_once(':').map(|(key, _)| key);
        key.is_some_and(|key| {
            !key.is_empty()
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_$-".contains(&b))
        })
    };
    let lines = rest
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let mut lines = lines.filter(|line| !line.trim().is_empty());
    lines.next().is_some_and(is_entry)
}

fn foreign_word(text: &str, at: usize) -> Option<SyntaxError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    let before = &text[..text.floor_char_boundary(at)];
    let start = before.trim_end_matches(is_part).len();
    let rest = &text[start..];
    let end = start + (rest.len() - rest.trim_start_matches(is_part).len());
    let found = &text[start..end];
    let (_, help) = FOREIGN_WORDS.iter().find(|(word, _)| *word == found)?;
    Some(SyntaxError {
        message: format!("`{found}` is not a JSON value"),
        span: Span::new(start, end),
        help: (*help).into(),
    })
}

/// An open bracket, and the indentation of its line.
struct OpenBracket {
    bracket: u8,
    at: usize,
    indentation: usize,
}

/// Finds a bracket that is never closed, or closed by another kind. The error points to where it
/// was opened.
fn bracket_error(text: &str, error: &SyntaxError) -> Option<SyntaxError> {
    let is = |beginnings: &[&str]| beginnings.iter().any(|it| error.message.starts_with(it));
    let at_end = is(&["Unterminated object", "Unterminated array"]);
    // Any other error is its own cause, whatever follows it.
    if !at_end && !is(&["Expected", "Unexpected"]) {
        return None;
    }
    let scan = BracketScan::run(text, error.span.start);
    if let Some((open, close)) = scan.mismatch
        && (at_end || scan.open_at_error == Some(open))
    {
        return Some(unclosed(text, open, Some(close)));
    }
    if scan.cut_in_string || !at_end {
        return None;
    }
    scan.unclosed.map(|open| unclosed(text, open, None))
}

fn unclosed(text: &str, at: usize, close: Option<usize>) -> SyntaxError {
    let bracket = &text[at..=at];
    let wanted = if bracket == "{" { "}" } else { "]" };
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let help = match close {
        Some(close) => format!(
            "write `{wanted}` before the `{}` in line {}",
            &text[close..=close],
            line(close)
        ),
        None => format!("write the `{wanted}` that closes it; or is the file cut off?"),
    };
    SyntaxError {
        message: format!("This `{bracket}` is never closed"),
        span: Span::new(at, at + 1),
        help: help.into(),
    }
}

/// The result of one pass over the brackets.
#[derive(Default)]
struct BracketScan {
    /// An opening bracket and the closing one of the wrong kind.
    mismatch: Option<(usize, usize)>,
    /// A bracket that is still open at the end of the text.
    unclosed: Option<usize>,
    /// The innermost bracket that is open at the parser's position.
    open_at_error: Option<usize>,
    cut_in_string: bool,
}

impl BracketScan {
    fn run(text: &str, error_at: usize) -> Self {
        let mut scan = Self::default();
        let mut open: Vec<OpenBracket> = Vec::new();
        // The innermost bracket whose closing one has another indentation than its line.
        let mut misaligned = None;
        let (mut in_string, mut escaped) = (false, false);
        let (mut line_start, mut indentation) = (true, 0);
        for (at, byte) in text.bytes().enumerate() {
            if at == error_at {
                scan.open_at_error = open.last().map(|open| open.at);
            }
            if line_start && (byte == b' ' || byte == b'\t') {
                indentation += 1;
            } else if byte == b'\n' {
                (line_start, indentation) = (true, 0);
            } else if in_string {
                line_start = false;
                (in_string, escaped) = (byte != b'"' || escaped, byte == b'\\' && !escaped);
            } else {
                match byte {
                    b'"' => in_string = true,
                    b'{' | b'[' => open.push(OpenBracket {
                        bracket: byte,
                        at,
                        indentation,
                    }),
                    b'}' | b']' => {
                        let Some(opened) = open.pop() else { break };
                        let pairs = (opened.bracket == b'{') == (byte == b'}');
                        if !pairs {
                            scan.mismatch = Some((opened.at, at));
                            if at == error_at {
                                scan.open_at_error = Some(opened.at);
                            }
                            break;
                        }
                        if line_start && misaligned.is_none() && opened.indentation > indentation {
                            misaligned = Some(opened.at);
                        }
                    }
                    _ => {}
                }
                line_start = false;
            }
        }
        scan.cut_in_string = in_string;
        let innermost = open.last().map(|open| open.at);
        scan.unclosed = innermost.map(|innermost| misaligned.unwrap_or(innermost));
        scan
    }
}

#[cfg(test)]
mod tests {
    use crate::source::Document;

    #[track_caller]
    fn check(text: &str, message: &str, at: &str) {
        let error = Document::parse(text).expect_err("broken");
        assert!(error.message.contains(message), "{error:?}");
        assert_eq!(&text[error.span.start..error.span.end], at, "{error:?}");
    }

    #[test]
    fn slips_are_named() {
        check("{\"a\": NaN}", "`NaN` is not a JSON value", "NaN");
        check(
            "{\"a\": -Infinity}",
            "`-Infinity` is not a JSON value",
            "-Infinity",
        );
        check("{\"a\": None, \"b\": 1}", "`None`", "None");
        check(
            "{\n<<<<<<< HEAD\n\"a\": 1\n=======\n\"a\": 2\n>>>>>>> b\n}",
            "conflict marker",
            "<<<<<<< HEAD",
        );
        check("{\"a\": 1}\n\0\0\0", "NUL", "\0");
        check("<!DOCTYPE html>\n<html></html>", "HTML", "<!DOCTYPE html>");
        check("model: tiny\nfamily: tiny\n", "YAML", "model: tiny");
        check("# a config\nmodel: tiny\n", "YAML", "# a config");
        check("{\u{a0}\"a\": 1}", "U+00A0, a no-break space", "\u{a0}");
        check("{\u{201c}a\u{201d}: 1}", "curly quotation mark", "\u{201c}");
        check("{\"a\": \u{2019}b\u{2019}}", "curly single", "\u{2019}");
    }

    #[test]
    fn open_brackets_are_named_where_they_were_opened() {
        check("{\"a\": [1, 2, \"b\": {}}", "This `[` is never closed", "[");
        check(
            "{\n  \"a\": {\n    \"b\": 1\n  \n}\n",
            "This `{` is never closed",
            "{",
        );
        let text = "{\n  \"x\": {\n    \"y\": 1,\n  \"z\": 2\n}\n";
        let error = Document::parse(text).expect_err("broken");
        assert_eq!(
            error.span.start,
            text.find("{\n    \"y\"").expect("it is there")
        );
        // A text that ends within a string was cut off, which the parser reports well.
        let cut = Document::parse("{\"a\": \"b").expect_err("broken");
        assert!(cut.message.contains("Unterminated"), "{cut:?}");
    }
}
