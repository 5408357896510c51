//! "Did you mean": the known word nearest to an unknown one.

/// The word of `known` that `word` most likely meant; `None` if none is near
/// or two are as near.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|candidate| Some((distance(&lower, candidate)?, candidate)))
        .collect();
    near.sort_unstable_by_key(|(distance, _)| *distance);
    match near[..] {
        // Of two that are as near, either would be a guess.
        [(first, _), (second, _), ..] if first == second => None,
        [(_, candidate), ..] => Some(candidate),
        [] => None,
    }
}

/// How far apart two words are; `None` if too far to suggest one for the other. The same letters
/// in another order (`8w4da` for `8da4w`) are one slip.
fn distance(word: &str, candidate: &str) -> Option<usize> {
    if word == candidate {
        return Some(0);
    }
    if letters(word) == letters(candidate) {
        return Some(1);
    }
    let edits = strsim::damerau_levenshtein(word, candidate);
    let allowed = (candidate.chars().count() / 3).clamp(1, 3);
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
    }
}
