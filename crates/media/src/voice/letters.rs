//! Phonemes of English words that no dictionary has, by rules for their letters.

/// Letters at the start of a word and their phonemes.
const STARTS: [(&str, &str); 8] = [
    ("kn", "n"),
    ("gn", "n"),
    ("wr", "ɹ"),
    ("ps", "s"),
    ("pn", "n"),
    ("rh", "ɹ"),
    ("x", "z"),
    ("y", "j"),
];

/// Letters at the end of a word and their phonemes.
const ENDS: [(&str, &str); 10] = [
    ("able", "əbᵊl"),
    ("ous", "əs"),
    ("tle", "tᵊl"),
    ("ble", "bᵊl"),
    ("ple", "pᵊl"),
    ("dle", "dᵊl"),
    ("ism", "ɪzᵊm"),
    ("ed", "d"),
    ("y", "i"),
    ("e", ""),
];

/// Other letters and their phonemes, longer ones first.
const LETTERS: &[(&str, &str)] = &[
    ("tion", "ʃᵊn"),
    ("sion", "ʒᵊn"),
    ("ture", "ʧəɹ"),
    ("ough", "O"),
    ("augh", "ɔ"),
    ("eigh", "A"),
    ("tch", "ʧ"),
    ("dge", "ʤ"),
    ("igh", "I"),
    ("chr", "kɹ"),
    ("ch", "ʧ"),
    ("sh", "ʃ"),
    ("th", "θ"),
    ("ph", "f"),
    ("gh", "ɡ"),
    ("wh", "w"),
    ("ck", "k"),
    ("qu", "kw"),
    ("ng", "ŋ"),
    ("ce", "sɛ"),
    ("ci", "sɪ"),
    ("cy", "sI"),
    ("ee", "i"),
    ("ea", "i"),
    ("oo", "u"),
    ("ou", "W"),
    ("ow", "O"),
    ("oi", "Y"),
    ("oy", "Y"),
    ("ai", "A"),
    ("ay", "A"),
    ("au", "ɔ"),
    ("aw", "ɔ"),
    ("ie", "i"),
    ("ei", "A"),
    ("oa", "O"),
    ("ue", "u"),
    ("ew", "u"),
    ("ar", "ɑɹ"),
    ("er", "əɹ"),
    ("ir", "ɜɹ"),
    ("or", "ɔɹ"),
    ("ur", "ɜɹ"),
    ("a", "æ"),
    ("b", "b"),
    ("c", "k"),
    ("d", "d"),
    ("e", "ɛ"),
    ("f", "f"),
    ("g", "ɡ"),
    ("h", "h"),
    ("i", "ɪ"),
    ("j", "ʤ"),
    ("k", "k"),
    ("l", "l"),
    ("m", "m"),
    ("n", "n"),
    ("o", "ɑ"),
    ("p", "p"),
    ("q", "k"),
    ("r", "ɹ"),
    ("s", "s"),
    ("t", "t"),
    ("u", "ʌ"),
    ("v", "v"),
    ("w", "w"),
    ("x", "ks"),
    ("y", "ɪ"),
    ("z", "z"),
];

/// The long phonemes of vowels, in front of a consonant and a final `e`.
const LONG: [(char, &str); 6] = [
    ('a', "A"),
    ('e', "i"),
    ('i', "I"),
    ('o', "O"),
    ('u', "u"),
    ('y', "I"),
];

/// Phonemes that may carry the stress.
const VOWELS: &str = "AIOWYæɑɛɪɔəɜʌʊiu";

/// Returns the phonemes of a word of ASCII letters; other characters are left out.
pub(super) fn phonemes(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let mut rest: &str = &lower;
    let mut phonemes = String::new();
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        if let Some((_, long)) = LONG.iter().find(|(it, _)| *it == letter && is_long(behind)) {
            phonemes.push_str(long);
            rest = behind;
            continue;
        }
        let starts = STARTS.iter().filter(|_| rest.len() == lower.len());
        let ends = ENDS
            .iter()
            .filter(|(letters, _)| *letters == rest && rest.len() < lower.len());
        let mut rules = starts.chain(ends).chain(LETTERS);
        let rule = rules.find(|(letters, _)| rest.starts_with(letters));
        let (letters, made) = rule.copied().unwrap_or((&rest[..letter.len_utf8()], ""));
        phonemes.push_str(made);
        let end = letters.chars().last();
        rest = &rest[letters.len()..];
        // A doubled consonant is spoken once.
        let is_double = end.is_some_and(|end| rest.starts_with(end) && !"aeiou".contains(end));
        if is_double {
            rest = &rest[1..];
        }
    }
    let first = phonemes.find(|phoneme| VOWELS.contains(phoneme));
    phonemes.insert_str(first.unwrap_or(0), if first.is_some() { "ˈ" } else { "" });
    phonemes
}

/// Returns whether a vowel is long in front of these letters: one consonant and a final `e`.
fn is_long(behind: &str) -> bool {
    match behind.as_bytes() {
        [consonant, b'e'] | [consonant, b'e', b's' | b'd'] => !b"aeiouyrxw".contains(consonant),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_follow_the_rules() {
        for (word, expected) in [
            ("blorp", "blˈɔɹp"),
            ("knake", "nˈAk"),
            ("zappy", "zˈæpi"),
            ("Shreeble", "ʃɹˈibᵊl"),
            ("quotion", "kwˈɑʃᵊn"),
            ("tmp", "tmp"),
            ("é1", ""),
            ("", ""),
        ] {
            assert_eq!(phonemes(word), expected, "{word}");
        }
    }
}
