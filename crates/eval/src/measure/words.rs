//! Errors in words and letters.

use super::{Figure, Outcome, share};
use crate::dataset::ItemTruth;

/// Differences, and the length of the truth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ErrorCount {
    wrong: u64,
    all: u64,
}

impl ErrorCount {
    /// Adds the difference of two lists.
    pub(super) fn add<T: PartialEq + Clone>(&mut self, truth: &[T], found: &[T]) {
        let wrong = strsim::generic_levenshtein(&truth.to_vec(), &found.to_vec());
        self.wrong += wrong as u64;
        self.all += truth.len() as u64;
    }

    /// Returns the errors per word or letter of the truth.
    pub(super) fn rate(self) -> f64 {
        share(self.wrong, self.all)
    }
}

/// Returns word and character error rates of speech: without case, punctuation and the width of spaces.
pub(super) fn of_speech(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let (mut words, mut letters) = (ErrorCount::default(), ErrorCount::default());
    let (mut equal, mut all) = (0, 0);
    for (truth, found) in texts(results) {
        let (truth, found) = (spoken(truth), spoken(found));
        let count = |text: &str| text.chars().collect::<Vec<_>>();
        words.add(&split(&truth), &split(&found));
        letters.add(&count(&truth), &count(&found));
        equal += u64::from(truth == found);
        all += 1;
    }
    vec![
        Figure::share("WER", words.rate()),
        Figure::share("CER", letters.rate()),
        Figure::share("equal", share(equal, all)),
    ]
}

/// Returns the character error rate of texts in pictures, as they are but for the width of spaces.
pub(super) fn of_pictures(results: &[(&ItemTruth, &Outcome)]) -> Vec<Figure> {
    let mut letters = ErrorCount::default();
    let (mut equal, mut all) = (0, 0);
    for (truth, found) in texts(results) {
        let (truth, found) = (split(truth).join(" "), split(found).join(" "));
        let count = |text: &str| text.chars().collect::<Vec<_>>();
        letters.add(&count(&truth), &count(&found));
        equal += u64::from(truth == found);
        all += 1;
    }
    vec![
        Figure::share("CER", letters.rate()),
        Figure::share("equal", share(equal, all)),
    ]
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

pub(super) fn split(text: &str) -> Vec<&str> {
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
