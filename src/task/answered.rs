//! An answer as it is kept: its bytes, and their media type unless it is JSON, which nearly all are.

use super::record::Content;

/// The longest media type that is kept, in bytes: real ones are a tenth of it.
const LONGEST: usize = 256;

/// What a media type becomes that can be none.
const UNKNOWN: &str = "application/octet-stream";

/// An answer to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Its bytes. A blob is in the store already.
    pub content: Content,
    /// Its media type; `None` is JSON.
    pub media_type: Option<String>,
}

/// JSON.
impl From<Content> for Answered {
    fn from(content: Content) -> Self {
        Self {
            content,
            media_type: None,
        }
    }
}

impl Answered {
    /// A media type as it is kept. JSON is JSON, whatever parameters it came with.
    pub fn media_type(name: &str) -> Option<String> {
        let name = name.trim();
        let essence = name.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            return None;
        }
        let is_sound = essence.contains('/')
            && name.len() <= LONGEST
            && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        Some(if is_sound { name } else { UNKNOWN }.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Answered, UNKNOWN};

    #[test]
    fn media_types_are_kept_as_they_came_but_for_json() {
        for json in ["application/json", "Application/JSON ; charset=utf-8"] {
            assert_eq!(Answered::media_type(json), None, "{json}");
        }
        for other in [
            "text/plain",
            "text/plain; charset=latin1",
            "application/problem+json",
            "application/jsonl",
        ] {
            assert_eq!(Answered::media_type(other).as_deref(), Some(other));
        }
        let long = format!("text/{}", "x".repeat(1000));
        for none in ["", "text", "text/pl\u{e4}in", "text/plain\r\nx: y", &long] {
            let kept = Answered::media_type(none);
            assert_eq!(kept.as_deref(), Some(UNKNOWN), "{none}");
        }
    }
}
