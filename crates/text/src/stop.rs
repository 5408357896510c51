//! Stop strings: an answer ends before the first one, even when it spans several tokens.
//!
//! Invariant: the output is the same however the text is split into pieces. Returned text is never
//! withdrawn. Each byte is compared once per stop string.

use serde_json::Value;
use thiserror::Error;

use super::value::kind;

/// Maximum number of stop strings in a request.
pub const MAX_STOP_STRINGS: usize = 16;

/// Maximum length of a stop string, in bytes.
pub const MAX_STOP_STRING_BYTES: usize = 1024;

/// An invalid list of stop strings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{field}` must be {expected}, not {found}")]
pub struct StopError {
    /// The field: `stop`, or an item of it.
    pub field: String,
    /// The expected value.
    pub expected: String,
    /// The value in the request.
    pub found: String,
}

/// The strings that end an answer. The answer does not include them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopStrings(Vec<StopString>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct StopString {
    text: Box<[u8]>,
    /// For each length of a matched prefix, the length of the longest shorter prefix that still
    /// matches.
    fallback_lengths: Box<[usize]>,
}

impl StopStrings {
    /// Reads the field `stop` of a request: a string, a list of strings, or nothing.
    pub fn read(stop: Option<&Value>) -> Result<Self, StopError> {
        let expected = "a string or a list of strings";
        match stop {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::String(text)) => Self::new(&[("stop".to_owned(), text)]),
            Some(Value::Array(items)) => {
                let mut texts = Vec::new();
                if items.len() > MAX_STOP_STRINGS {
                    let expected = format!("at most {MAX_STOP_STRINGS} strings");
                    return Err(wrong("stop", &expected, format!("{} strings", items.len())));
                }
                for (place, item) in items.iter().enumerate() {
                    let field = format!("stop[{place}]");
                    let text = item.as_str();
                    let text = text.ok_or_else(|| wrong(&field, "a string", kind(item)))?;
                    texts.push((field, text));
                }
                Self::new(&texts)
            }
            Some(other) => Err(wrong("stop", expected, kind(other))),
        }
    }

    fn new<T: AsRef<str>>(texts: &[(String, T)]) -> Result<Self, StopError> {
        let mut stops = Vec::with_capacity(texts.len());
        for (field, text) in texts {
            let text = text.as_ref();
            if text.is_empty() {
                return Err(wrong(field, "at least one character", "an empty string"));
            }
            if text.len() > MAX_STOP_STRING_BYTES {
                let expected = format!("at most {MAX_STOP_STRING_BYTES} bytes");
                return Err(wrong(field, &expected, format!("{} bytes", text.len())));
            }
            stops.push(StopString::new(text));
        }
        Ok(Self(stops))
    }

    /// Begins a scan of a new text.
    pub fn scan(&self) -> StopScan {
        StopScan {
            matched: vec![0; self.0.len()],
            stops: self.0.clone(),
            pending_text: String::new(),
            stopped: false,
        }
    }
}

fn wrong(field: &str, expected: &str, found: impl Into<String>) -> StopError {
    StopError {
        field: field.to_owned(),
        expected: expected.to_owned(),
        found: found.into(),
    }
}

impl StopString {
    fn new(text: &str) -> Self {
        let text: Box<[u8]> = text.as_bytes().into();
        let mut shorter = vec![0; text.len() + 1].into_boxed_slice();
        let mut length = 0;
        for end in 1..text.len() {
            while length > 0 && text[length] != text[end] {
                length = shorter[length];
            }
            if text[length] == text[end] {
                length += 1;
            }
            shorter[end + 1] = length;
        }
        Self {
            text,
            fallback_lengths: shorter,
        }
    }

    /// Returns the length of the prefix that matches after one more byte, given the length before
    /// it.
    fn step(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.text.get(matched) != Some(&byte) {
            matched = self.fallback_lengths[matched];
        }
        if self.text[matched] == byte {
            matched + 1
        } else {
            0
        }
    }
}

/// A scan for stop strings in a text that comes in pieces.
#[derive(Debug, Clone)]
pub struct StopScan {
    stops: Vec<StopString>,
    /// For each stop string, the length of its prefix that the text ends with.
    matched: Vec<usize>,
    /// The end of the text, kept back while it may be the beginning of a stop string.
    pending_text: String,
    stopped: bool,
}

impl StopScan {
    /// Takes the next piece and returns the text that certainly comes before any stop string. Among
    /// stop strings that end at the same byte, the longest counts. Text after a stop string is
    /// dropped.
    pub fn push(&mut self, piece: &str) -> String {
        if self.stopped {
            return String::new();
        }
        if self.stops.is_empty() {
            return piece.to_owned();
        }
        let before = self.pending_text.len();
        self.pending_text.push_str(piece);
        for (place, byte) in piece.bytes().enumerate() {
            let mut longest = None;
            for (stop, matched) in self.stops.iter().zip(&mut self.matched) {
                *matched = stop.step(*matched, byte);
                if *matched == stop.text.len() {
                    longest = longest.max(Some(*matched));
                }
            }
            if let Some(length) = longest {
                self.stopped = true;
                self.pending_text.truncate(before + place + 1 - length);
                return std::mem::take(&mut self.pending_text);
            }
        }
        let open = self.matched.iter().copied().max().unwrap_or(0);
        let rest = self.pending_text.split_off(self.pending_text.len() - open);
        std::mem::replace(&mut self.pending_text, rest)
    }

    /// Returns whether a stop string occurred.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Ends the text and returns the part that was kept back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending_text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns the text before the stop string that ends first, by trying every position.
    fn naive<'t>(text: &'t str, stops: &[String]) -> &'t str {
        for end in 1..=text.len() {
            let ended = stops
                .iter()
                .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(longest) = ended.map(String::len).max() {
                return &text[..end - longest];
            }
        }
        text
    }

    proptest! {
        #[test]
        fn it_finds_what_the_naive_search_finds(
            text in "[ab€é]{0,40}",
            stops in proptest::collection::vec("[ab€é]{1,5}", 0..4),
            cuts in proptest::collection::vec(any::<bool>(), 41),
        ) {
            let strings = StopStrings::read(Some(&json!(stops))).expect("it is a list");
            let mut scan = strings.scan();
            let mut given = String::new();
            let mut piece = String::new();
            for (letter, cut) in text.chars().zip(cuts) {
                piece.push(letter);
                if cut {
                    given += &scan.push(&std::mem::take(&mut piece));
                }
            }
            given += &scan.push(&piece);
            prop_assert_eq!(scan.stopped(), naive(&text, &stops) != text
                || stops.iter().any(|stop| text.contains(stop.as_str())));
            given += &scan.finish();
            prop_assert_eq!(given, naive(&text, &stops));
        }
    }

    #[test]
    fn text_is_held_back_only_while_it_may_be_a_stop_string() {
        let strings = StopStrings::read(Some(&json!(["END", "\n\n"]))).expect("it is a list");
        let mut scan = strings.scan();
        assert_eq!(scan.push("the E"), "the ");
        assert_eq!(scan.push("NT"), "ENT");
        assert_eq!(scan.push("ENDed"), "");
        assert!(scan.stopped());
        assert_eq!(scan.push("more"), "");
        assert_eq!(scan.finish(), "");
    }

    #[test]
    fn a_list_that_cannot_be_is_refused_with_its_item() {
        for (stop, field) in [
            (json!(["a", ""]), "stop[1]"),
            (json!(""), "stop"),
            (json!(5), "stop"),
            (json!([[1]]), "stop[0]"),
            (json!(vec!["a"; MAX_STOP_STRINGS + 1]), "stop"),
            (json!(["x".repeat(MAX_STOP_STRING_BYTES + 1)]), "stop[0]"),
        ] {
            let error = StopStrings::read(Some(&stop)).expect_err("it is refused");
            assert_eq!(error.field, field, "{error}");
        }
        assert_eq!(
            StopStrings::read(Some(&Value::Null)),
            Ok(StopStrings::default())
        );
    }
}
