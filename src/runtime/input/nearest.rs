//! "Did you mean": the known name nearest to an unknown one.

/// Names of more bytes are no slips of known ones: comparing them would only take long.
const MAX_NAME: usize = 64;

/// Most names that are compared.
const MAX_KNOWN: usize = 100;

/// The one name that is at most a third of its letters away; `None` if there is none or two are as
/// near.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let lower = name.to_lowercase();
    let mut near: Vec<(usize, &str)> = known
        .filter(|candidate| candidate.len() <= MAX_NAME)
        .take(MAX_KNOWN)
        .map(|candidate| {
            let edits = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            (edits, candidate)
        })
        .filter(|(edits, candidate)| *edits <= (candidate.chars().count() / 3).clamp(1, 3))
        .collect();
    near.sort_unstable_by_key(|(edits, _)| *edits);
    match near[..] {
        // Of two that are as near, either would be a guess.
        [(first, _), (second, _), ..] if first == second => None,
        [(_, candidate), ..] => Some(candidate),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn suggests_what_was_meant() {
        let names = ["input_ids", "attention_mask", "x"];
        let meant = |name| nearest(name, names.into_iter());
        assert_eq!(meant("inputids"), Some("input_ids"));
        assert_eq!(meant("Attention_Mask"), Some("attention_mask"));
        assert_eq!(meant("pixel_values"), None);
        assert_eq!(meant(&"x".repeat(100_000)), None);
    }
}
