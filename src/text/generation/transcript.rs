//! Tokens of what was said before, for prompts that begin with it.
//!
//! A model's tokens are seldom those that a tokenizer gives for the same text. A conversation's next
//! prompt would part from what the model holds at the first answer. So texts are kept with the tokens
//! they had; a prompt that begins with one of them gets these.
//! Invariant: the text of the tokens is the text of the prompt, always; what is kept is bounded.

use std::collections::VecDeque;

/// Most texts that are kept.
const MOST: usize = 16;

/// Most bytes of all of them.
const MOST_BYTES: usize = 4 << 20;

/// Texts and their tokens, those used last first. They are one caller's: nobody else's prompts may be
/// looked up in them.
#[derive(Debug, Clone, Default)]
pub struct Transcripts {
    kept: VecDeque<Transcript>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Transcript {
    text: String,
    tokens: Vec<u32>,
}

impl Transcripts {
    /// Keeps a prompt and the answer to it: the text of both, and the tokens of both, without the token
    /// that ended it.
    pub fn keep(&mut self, text: String, tokens: Vec<u32>) {
        if text.len() > MOST_BYTES {
            return;
        }
        // An earlier turn of the same conversation is of no more use: what begins with the new one
        // begins with it, too.
        let same =
            |kept: &Transcript| text.starts_with(&kept.text) && tokens.starts_with(&kept.tokens);
        self.kept.retain(|kept| !same(kept));
        self.kept.push_front(Transcript { text, tokens });
        self.bytes = self.kept.iter().map(|kept| kept.text.len()).sum();
        while self.kept.len() > MOST || self.bytes > MOST_BYTES {
            let oldest = self.kept.pop_back();
            self.bytes -= oldest.map_or(0, |oldest| oldest.text.len());
        }
    }

    /// The tokens of the longest text that a prompt begins with, and the rest of the prompt, which is
    /// still to be encoded.
    pub fn beginning<'p>(&mut self, prompt: &'p str) -> (Vec<u32>, &'p str) {
        let fitting = self.kept.iter().enumerate();
        let fitting = fitting.filter(|(_, kept)| prompt.starts_with(&kept.text));
        let Some((place, _)) = fitting.max_by_key(|(_, kept)| kept.text.len()) else {
            return (Vec::new(), prompt);
        };
        // To the front, behind which the others keep their order.
        self.kept.make_contiguous()[..=place].rotate_right(1);
        let found = &self.kept[0];
        (found.tokens.clone(), &prompt[found.text.len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_gets_the_tokens_that_its_beginning_had() {
        let mut kept = Transcripts::default();
        kept.keep("<u>Hi<a>Hello".to_owned(), vec![1, 2, 3, 4, 5]);
        kept.keep("<u>Hi<a>".to_owned(), vec![1, 2, 3]);
        let (tokens, rest) = kept.beginning("<u>Hi<a>Hello<e><u>More");
        assert_eq!((tokens, rest), (vec![1, 2, 3, 4, 5], "<e><u>More"));
        let (tokens, rest) = kept.beginning("<u>Hi<a>Help");
        assert_eq!((tokens, rest), (vec![1, 2, 3], "Help"));
        let (tokens, rest) = kept.beginning("<u>Ho");
        assert_eq!((tokens, rest), (vec![], "<u>Ho"));
        kept.keep("<u>Hi<a>Hello<e>".to_owned(), vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(kept.kept.len(), 1, "what it grew out of is dropped");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Transcripts::default();
        for turn in 0..100 {
            kept.keep(format!("{turn} {}", "x".repeat(MOST_BYTES / 5)), vec![turn]);
        }
        assert!(kept.bytes <= MOST_BYTES && kept.kept.len() == 4);
        kept.keep("x".repeat(MOST_BYTES + 1), vec![]);
        assert_eq!(kept.kept.len(), 4);
        for turn in 0..100 {
            kept.keep(format!("{turn}."), vec![turn]);
        }
        assert_eq!(kept.kept.len(), MOST);
    }
}
