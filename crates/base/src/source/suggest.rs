//! Suggests the known word nearest to an unknown one ("did you mean").

/// Maximum length of a word that is compared, in bytes. Longer ones are hardly misspellings and
/// would take long.
const MAX_WORD_BYTES: usize = 64;

/// Maximum number of known words that a word is compared with: more than the gateway has settings.
const MAX_KNOWN_WORDS: usize = 256;

/// Returns the word of `known` that `word` most likely means; `None` if none is near, or if two are
/// equally near.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let lower = word.to_lowercase();
    let sorted = letters(&lower);
    let mut near: Vec<(usize, &str)> = known
        .take(MAX_KNOWN_WORDS)
        .filter_map(|candidate| Some((distance(&lower, &sorted, candidate)?, candidate)))
        .collect();
    near.sort_unstable_by_key(|(distance, _)| *distance);
    match near[..] {
        // Of two equally near words, either would be a guess.
        [(first, _), (second, _), ..] if first == second => None,
        [(_, candidate), ..] => Some(candidate),
        [] => None,
    }
}

/// Returns the edit distance of two words; `None` if it is too large for a suggestion. The same
/// letters in another order (`8w4da` for `8da4w`) count as one edit. `sorted` are the word's
/// letters.
fn distance(word: &str, sorted: &[char], candidate: &str) -> Option<usize> {
    if word == candidate {
        return Some(0);
    }
    if candidate.len() > MAX_WORD_BYTES {
        return None;
    }
    if letters(candidate) == sorted {
        return Some(1);
    }
    let allowed = (candidate.chars().count() / 3).clamp(1, 3);
    // Each surplus or missing character is an edit.
    if word.chars().count().abs_diff(candidate.chars().count()) > allowed {
        return None;
    }
    let edits = strsim::damerau_levenshtein(word, candidate);
    (edits <= allowed).then_some(edits)
}

fn letters(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = word.chars().filter(|c| *c != '_' && *c != '-').collect();
    letters.sort_unstable();
    letters
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_what_was_meant() {
        let tokens = ["int8", "int4", "8da4w", "fp32", "fp16", "bf16"];
        let meant = |word| nearest(word, tokens.into_iter());
        assert_eq!(meant("8w4da"), Some("8da4w"));
        assert_eq!(meant("FP32"), Some("fp32"));
        assert_eq!(meant("in8"), Some("int8"));
        assert_eq!(meant("something"), None);
        assert_eq!(meant("int"), None, "int8 or int4");
        assert_eq!(meant(&"int8".repeat(100_000)), None);
        let long = "a".repeat(100_000);
        assert_eq!(nearest("a", std::iter::once(long.as_str())), None);
    }
}
