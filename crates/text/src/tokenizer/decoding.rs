//! Limits for decoding, which runs in the serving process: the maximum growth of the decoded text.
//!
//! Invariant: a tokenizer that passed [`check`] decodes each byte of its tokens to at most
//! [`MAX_GROWTH`] bytes, and each token has at most [`MAX_TOKEN_BYTES`] bytes. So every piece of an
//! answer is bounded.

use std::path::Path;

use serde_json::Value;

use super::read::broken_file;
use super::{Tokenizer, TokenizerError};

/// Maximum number of bytes that a decoder may make of one byte.
const MAX_GROWTH: u64 = 64;

/// Maximum length of a token, in bytes. The longest known ones are indentations of some hundred
/// spaces.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// Maximum length of a pattern in a decoder, in bytes.
const MAX_PATTERN_BYTES: usize = 256;

/// Rejects a tokenizer whose decoder is not bounded.
pub(super) fn check(path: &Path, tokenizer: &Tokenizer) -> Result<(), TokenizerError> {
    let decoder = &tokenizer.shared.decoder;
    if max_growth(decoder).is_none_or(|growth| growth > MAX_GROWTH) {
        let reason = format!(
            "its `decoder` may turn one byte into more than {MAX_GROWTH}; \
             do not replace texts by longer ones"
        );
        return Err(broken_file(path, reason));
    }
    let vocabulary = tokenizer.vocabulary();
    let ids = (0..vocabulary.len()).filter_map(|id| u32::try_from(id).ok());
    let long = ids.filter_map(|id| Some((id, vocabulary.bytes(id)?.len())));
    match long.max_by_key(|(_, length)| *length) {
        Some((id, length)) if length > MAX_TOKEN_BYTES => {
            let reason = format!(
                "token {id} is too long: expected at most {MAX_TOKEN_BYTES} bytes, got {length}"
            );
            Err(broken_file(path, reason))
        }
        _ => Ok(()),
    }
}

/// Returns the maximum number of bytes that a decoder makes of one byte; `None` if it is unbounded.
fn max_growth(decoder: &Value) -> Option<u64> {
    let text = |key: &str| decoder.get(key).and_then(Value::as_str).unwrap_or_default();
    // An empty pattern matches between all characters.
    let replaced =
        |from: usize, to: usize| (to.div_ceil(from.max(1)) as u64 + u64::from(from == 0)).max(1);
    match text("type") {
        "Sequence" => {
            let steps = decoder.get("decoders")?.as_array()?;
            steps
                .iter()
                .try_fold(1_u64, |all, step| all.checked_mul(max_growth(step)?))
        }
        "Replace" => {
            let content = text("content").len();
            let pattern = decoder.get("pattern")?;
            if let Some(from) = pattern.get("String").and_then(Value::as_str) {
                return Some(replaced(from.len(), content));
            }
            let regex = pattern.get("Regex")?.as_str()?;
            (regex.len() <= MAX_PATTERN_BYTES).then(|| replaced(0, content))
        }
        "BPEDecoder" => Some(replaced(text("suffix").len(), 1)),
        "CTC" => Some(replaced(text("word_delimiter_token").len(), 1)),
        "WordPiece" => Some(text("prefix").len() as u64 + 2),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replace(from: &str, to: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": from}, "content": to})
    }

    #[test]
    fn replacements_multiply() {
        assert_eq!(max_growth(&Value::Null), Some(1));
        assert_eq!(max_growth(&replace("\u{2581}", " ")), Some(1));
        assert_eq!(max_growth(&replace("a", "aaaa")), Some(4));
        assert_eq!(max_growth(&replace("", "ab")), Some(3));
        let steps = vec![replace("a", "aaaa"); 3];
        assert_eq!(
            max_growth(&json!({"type": "Sequence", "decoders": steps})),
            Some(64)
        );
        let steps = vec![replace("a", &"a".repeat(1 << 20)); 4];
        assert_eq!(
            max_growth(&json!({"type": "Sequence", "decoders": steps})),
            None
        );
    }
}
