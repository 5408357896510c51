//! Errors in words and letters.

use super::{Figure, Outcome, share};
use crate::dataset::ItemTruth;

/// Differences, and the length of the truth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ErrorCount {
    wrong: u64,
    all: u64,
}

impl ErrorCount {
    /// Adds the difference of two lists.
    fn add<T: PartialEq + Clone>(&mut self, truth: &[T], found: &[T]) {
        let wrong = strsim::generic_levenshtein(&truth.to_vec(), &found.to_vec());
        self.wrong += wrong as u64;
        self.all += truth.len() as u64;
    }

    /// Returns the errors per word or letter of the truth.
    fn rate(self) -> f64 {
        share(self.wrong, self.all)
    }
}

/// Differences of texts: in words, in letters, and as a whole. The width of spaces is no difference.
#[derive(Debug, Default)]
pub(super) struct TextErrors {
    words: ErrorCount,
    letters: ErrorCount,
    equal: u64,
    all: u64,
}

impl TextErrors {
    /// Adds a text. Returns whether it equals the truth.
    pub(super) fn add(&mut self, truth: &str, found: &str) -> bool {
        let (truth, found) = (split(truth), split(found));
        let letters = |words: &[&str]| words.join(" ").chars().collect::<Vec<_>>();
        self.words.add(&truth, &found);
        self.letters.add(&letters(&truth), &letters(&found));
        let is_equal = truth == found;
        self.equal += u64::from(is_equal);
        self.all += 1;
        is_equal
    }

    /// Returns the error rates of words and letters, and the share of equal texts.
    pub(super) fn figures(&self) -> [Figure; 3] {
        [
            Figure::share("WER", self.words.rate()),
            Figure::share("CER", self.letters.rate()),
            Figure::share("equal", share(self.equal, self.all)),
        ]
    }
}

/// Returns word and character error rates of speech: without case, punctuation and the width of spaces.
pub(super) fn of_speech(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let mut errors = TextErrors::default();
    for (truth, found) in texts(results) {
        errors.add(&spoken(truth), &spoken(found));
    }
    errors.figures().into()
}

/// Returns the character error rate of texts in pictures, as they are but for the width of spaces.
pub(super) fn of_pictures(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let mut errors = TextErrors::default();
    for (truth, found) in texts(results) {
        errors.add(truth, found);
    }
    let [_, letters, equal] = errors.figures();
    vec![letters, equal]
}

fn texts<'r>(results: &[(&'r ItemTruth, &'r Outcome)]) -> impl Iterator<Item = (&'r str, &'r str)> {
    results.iter().filter_map(|pair| match pair {
        (ItemTruth::Text(truth), Outcome::Text(found)) => Some((truth.as_str(), found.as_str())),
        _ => None,
    })
}

/// Returns the words of a text as they are spoken: in lower case, without marks but apostrophes within words.
pub(super) fn spoken(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let is_letter = |place: Option<usize>| {
        place.is_some_and(|place| letters.get(place).is_some_and(|c| c.is_alphanumeric()))
    };
    let plain = letters.iter().enumerate().map(|(place, c)| match c {
        '\'' | '’' if is_letter(place.checked_sub(1)) && is_letter(Some(place + 1)) => '\'',
        c if c.is_alphanumeric() => *c,
        _ => ' ',
    });
    let text: String = plain.flat_map(char::to_lowercase).collect();
    split(&text).join(" ")
}

fn split(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_as_they_are_spoken() {
        assert_eq!(
            spoken("  Don’t stop,\nMr. O'Neil! 'No' "),
            "don't stop mr o'neil no"
        );
        assert_eq!(spoken("Über-Größe: 25 %"), "über größe 25");
    }

    #[test]
    fn rates_count_every_difference() {
        let results = [("the cat sat", "The cat."), ("a", "a b c")];
        let truths: Vec<ItemTruth> = results
            .iter()
            .map(|(it, _)| ItemTruth::Text((*it).into()))
            .collect();
        let found: Vec<Outcome> = results
            .iter()
            .map(|(_, it)| Outcome::Text((*it).into()))
            .collect();
        let pairs: Vec<_> = truths.iter().zip(&found).collect();
        let figures = of_speech(&pairs);
        let shown: Vec<String> = figures.iter().map(Figure::shown).collect();
        assert_eq!(shown, ["75.0%", "66.7%", "0.0%"]);
        assert_eq!(of_speech(&[])[0].shown(), "-");
    }
}
