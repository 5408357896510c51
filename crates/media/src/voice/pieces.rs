//! Pieces of a text that a model takes at once, and the pauses between them.

/// Maximum number of phonemes of a text.
pub(crate) const MAX_PHONEMES: usize = 16_384;

/// Marks that end a sentence, and marks within one.
const ENDS: &[char] = &['.', '!', '?', '…', '。', '！', '？'];
const MARKS: &[char] = &[',', ';', ':', '—', '–', '、', '，', '；', '：'];

/// Pauses behind the marks of a piece, in seconds: the values of the library that the format comes from.
const PAUSES: [(char, f64); 8] = [
    ('.', 0.375),
    ('?', 0.5),
    ('!', 0.25),
    (';', 0.4),
    ('…', 0.6),
    (',', 0.13),
    (':', 0.25),
    ('—', 0.25),
];

/// Pause behind a piece that ends in another way, in seconds.
const SHORT_PAUSE: f64 = 0.13;

/// Splits phonemes into pieces of at most `most`: behind the end of a sentence, or else a mark, a space, or anywhere.
pub(crate) fn pieces(phonemes: &str, most: usize) -> Vec<String> {
    let most = most.max(1);
    let words: Vec<&str> = phonemes.split_whitespace().collect();
    let letters: Vec<char> = words.join(" ").chars().collect();
    let mut rest = &letters[..];
    let mut pieces = Vec::new();
    while rest.len() > most {
        // A space may follow the piece.
        let ends_piece = |at: &usize| rest.get(*at).is_none_or(|next| *next == ' ');
        let behind = |marks: &[char]| {
            let mut places = (1..=most).rev().filter(ends_piece);
            places.find(|at| marks.contains(&rest[at - 1]))
        };
        let spaces = || (1..=most).rev().find(ends_piece);
        let cut = behind(ENDS).or_else(|| behind(MARKS)).or_else(spaces);
        let (piece, others) = rest.split_at(cut.unwrap_or(most));
        pieces.push(piece.iter().collect());
        rest = others.strip_prefix(&[' ']).unwrap_or(others);
    }
    if !rest.is_empty() {
        pieces.push(rest.iter().collect());
    }
    pieces
}

/// Returns the pause behind a piece, in seconds.
pub(crate) fn pause(piece: &str) -> f64 {
    let last = piece.trim_end_matches(['"', '”', ')', ' ']).chars().last();
    let found = PAUSES.iter().find(|(mark, _)| last == Some(*mark));
    found.map_or(SHORT_PAUSE, |(_, pause)| *pause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_end_at_the_best_place() {
        assert_eq!(pieces("a b. c", 99), ["a b. c"]);
        assert_eq!(pieces(" ab.  cd, e f ", 8), ["ab.", "cd, e f"]);
        assert_eq!(pieces("ab, cd ef gh", 8), ["ab,", "cd ef gh"]);
        assert_eq!(pieces("ab cd ef", 6), ["ab cd", "ef"]);
        assert_eq!(pieces("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(pieces("1.5 apples", 5), ["1.5", "apple", "s"]);
        assert!(pieces(" \n", 4).is_empty());
        assert!((pause("ab?”") - 0.5).abs() < 1e-9);
        assert!((pause("ab") - SHORT_PAUSE).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn pieces_keep_every_letter(text in "[ab ,.?]{0,60}", most in 1_usize..20) {
            let split = pieces(&text, most);
            prop_assert!(split.iter().all(|piece| (1..=most).contains(&piece.chars().count())));
            let letters = |text: &str| text.replace(' ', "");
            prop_assert_eq!(letters(&split.concat()), letters(&text));
        }
    }
}
