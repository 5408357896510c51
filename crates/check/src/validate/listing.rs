//! Word lists in messages, with a bounded length.

/// Maximum number of words written out.
const MAX_WORDS: usize = 20;
/// Maximum length of a word written out in full, in characters.
const MAX_WORD_CHARS: usize = 200;

/// Returns `a, b, c`, or the first words and the number of omitted ones.
pub(super) fn listed<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut words = words.into_iter();
    let shown: Vec<String> = words
        .by_ref()
        .take(MAX_WORDS)
        .map(|word| cut(word.as_ref()))
        .collect();
    let text = shown.join(", ");
    match words.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn cut(word: &str) -> String {
    match word.char_indices().nth(MAX_WORD_CHARS) {
        Some((at, _)) => format!("{}…", &word[..at]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(Vec::<String>::new()), "");
        let many = listed((0..1000).map(|i| i.to_string()));
        assert!(many.ends_with("18, 19 and 980 more"), "{many}");
        assert!(listed(["é".repeat(9000)]).len() < 500);
    }
}
