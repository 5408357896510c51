//! English texts to phonemes.
//!
//! Invariant: the library sees ASCII only, since it fails on other letters in front of some endings.

use std::sync::LazyLock;

use misaki_rs::fallback::FallbackError;
use misaki_rs::{Fallback, G2P, Language};
use unicode_normalization::UnicodeNormalization as _;

use super::letters;
use super::pieces::MAX_PHONEMES;

/// Stands in the library's answer for a word without phonemes.
const UNKNOWN: char = '❓';

/// Stands for marks that are not ASCII, or that the library leaves out with the words around them.
const MARKS: [(char, &str); 17] = [
    ('/', " "),
    ('\\', " "),
    ('_', " "),
    ('|', " "),
    ('=', " equals "),
    ('‘', "'"),
    ('’', "'"),
    ('“', "\""),
    ('”', "\""),
    ('«', "\""),
    ('»', "\""),
    ('–', " - "),
    ('—', " - "),
    // They would begin the library's own notation.
    ('[', "("),
    (']', ")"),
    ('æ', "ae"),
    ('ß', "ss"),
];

static AMERICAN: LazyLock<G2P> = LazyLock::new(|| {
    let spelled = Box::new(SpelledWord);
    G2P::with_fallback(Language::EnglishUS, Some(spelled))
});

/// Converts words that no dictionary has, by their letters.
struct SpelledWord;

impl Fallback for SpelledWord {
    fn phonemize(&self, word: &str) -> Result<String, FallbackError> {
        Ok(letters::phonemes(word))
    }
}

/// Converts an English text to phonemes.
pub fn english(text: &str) -> Result<String, String> {
    if text.len() > MAX_PHONEMES {
        return Err(format!(
            "the text has {} bytes, more than {MAX_PHONEMES}: send it in parts",
            text.len()
        ));
    }
    let (phonemes, _) = AMERICAN
        .g2p(&in_ascii(text))
        .map_err(|error| error.to_string())?;
    let phonemes = phonemes.replace(UNKNOWN, "");
    if !phonemes.chars().any(char::is_alphabetic) {
        return Err("the text has no English word: phonemes (IPA) may be given instead".to_owned());
    }
    Ok(phonemes)
}

fn in_ascii(text: &str) -> String {
    let mut ascii = String::new();
    for letter in text.nfkd() {
        match MARKS.iter().find(|(mark, _)| *mark == letter) {
            Some((_, instead)) => ascii.push_str(instead),
            None if letter.is_ascii() && !letter.is_ascii_control() => ascii.push(letter),
            // An accent.
            None if unicode_normalization::char::is_combining_mark(letter) => {}
            None => ascii.push(' '),
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_become_phonemes() {
        for (text, expected) in [
            ("Hello world.", "həlˈO wˈɜɹld."),
            ("I read it yesterday.", "ˌI ɹˈɛd ɪt jˈɛstəɹdˌA."),
            ("“I’ll live here”", "“ˌIl lˈɪv hˈɪɹ”"),
            ("42 cafés", "fˈɔɹTi tˈu kæfˈAz"),
            ("a blorping", "ɐ blˈɔɹpɪŋ"),
            ("1/2 of it", "wˈʌn tˈu ʌv ɪt"),
        ] {
            assert_eq!(english(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "日本", "...", "🙂"] {
            assert!(english(text).is_err(), "{text}");
        }
        assert!(english(&"a ".repeat(MAX_PHONEMES)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_text_fails(parts in proptest::collection::vec(
            prop::sample::select(vec![
                "a", "ing", "ed", "'s", "1", "1999", "$", "3.50", "%", "-", "...", "NASA", "Dr.", "é", "”", "[", "](/",
                "1st", "12:30", "²", "٣", "日", "🙂", "\u{301}", "\0", "_", "O'Neil", "http://a.b/c", "#", " ", "read",
            ]),
            1..10,
        )) {
            let _ = english(&parts.concat());
            let _ = english(&parts.join(" "));
        }
    }
}
