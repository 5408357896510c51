//! A stored answer: its content and its media type.

use super::record::StoredContent;

/// Maximum length of a stored media type, in bytes. Real ones are about a tenth of it.
const MAX_MEDIA_TYPE_BYTES: usize = 256;

/// Replaces a media type that is invalid.
const FALLBACK_MEDIA_TYPE: &str = "application/octet-stream";

/// An answer to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Its content. A blob is already in the blob store.
    pub content: StoredContent,
    /// Its media type; `None` means JSON.
    pub media_type: Option<String>,
    /// The attached instance that gave it.
    pub worker: Option<String>,
}

/// Wraps content as a JSON answer.
impl From<StoredContent> for StoredAnswer {
    fn from(content: StoredContent) -> Self {
        Self {
            content,
            media_type: None,
            worker: None,
        }
    }
}

impl StoredAnswer {
    /// Normalizes a media type for storage. JSON becomes `None` and loses its parameters.
    pub fn media_type(name: &str) -> Option<String> {
        let name = name.trim();
        let essence = name.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            return None;
        }
        let is_sound = essence.contains('/')
            && name.len() <= MAX_MEDIA_TYPE_BYTES
            && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        Some(if is_sound { name } else { FALLBACK_MEDIA_TYPE }.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{FALLBACK_MEDIA_TYPE, StoredAnswer};

    #[test]
    fn media_types_are_kept_as_they_came_but_for_json() {
        for json in ["application/json", "Application/JSON ; charset=utf-8"] {
            assert_eq!(StoredAnswer::media_type(json), None, "{json}");
        }
        for other in [
            "text/plain",
            "text/plain; charset=latin1",
            "application/problem+json",
            "application/jsonl",
        ] {
            assert_eq!(StoredAnswer::media_type(other).as_deref(), Some(other));
        }
        let long = format!("text/{}", "x".repeat(1000));
        for none in ["", "text", "text/pl\u{e4}in", "text/plain\r\nx: y", &long] {
            let kept = StoredAnswer::media_type(none);
            assert_eq!(kept.as_deref(), Some(FALLBACK_MEDIA_TYPE), "{none}");
        }
    }
}
