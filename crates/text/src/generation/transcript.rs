//! A cache from earlier texts to their tokens, for prompts that begin with such a text.
//!
//! A model's tokens often differ from those that the tokenizer makes of the same text. If the next
//! prompt of a conversation were encoded anew, it would differ from the model's KV cache at the
//! first answer. So texts are kept with their original tokens, and a prompt that begins with a kept
//! text reuses them. Invariant: the reused tokens always decode to the prompt's text. The cache is
//! bounded.

use std::collections::VecDeque;

/// Maximum number of texts in the cache.
const MAX_TRANSCRIPTS: usize = 16;

/// Maximum total size of the texts, in bytes.
const MAX_TRANSCRIPT_BYTES: usize = 4 << 20;

/// Texts and their tokens, most recently used first. All of them belong to one caller; prompts of
/// other callers must not be looked up in them.
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
    /// Caches a prompt with its answer: the text of both and the tokens of both, without the end
    /// token.
    pub fn keep(&mut self, text: String, tokens: Vec<u32>) {
        if text.len() > MAX_TRANSCRIPT_BYTES {
            return;
        }
        // The new entry replaces earlier turns of the same conversation: every prompt that begins
        // with the new text also begins with theirs.
        let same =
            |kept: &Transcript| text.starts_with(&kept.text) && tokens.starts_with(&kept.tokens);
        self.kept.retain(|kept| !same(kept));
        self.kept.push_front(Transcript { text, tokens });
        self.bytes = self.kept.iter().map(|kept| kept.text.len()).sum();
        while self.kept.len() > MAX_TRANSCRIPTS || self.bytes > MAX_TRANSCRIPT_BYTES {
            let oldest = self.kept.pop_back();
            self.bytes -= oldest.map_or(0, |oldest| oldest.text.len());
        }
    }

    /// Returns the tokens of the longest cached text that the prompt begins with, and the rest of
    /// the prompt, which still has to be encoded.
    pub fn longest_prefix<'p>(&mut self, prompt: &'p str) -> (Vec<u32>, &'p str) {
        let fitting = self.kept.iter().enumerate();
        let fitting = fitting.filter(|(_, kept)| prompt.starts_with(&kept.text));
        let Some((place, _)) = fitting.max_by_key(|(_, kept)| kept.text.len()) else {
            return (Vec::new(), prompt);
        };
        // Move the entry to the front; the others keep their order.
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
        let (tokens, rest) = kept.longest_prefix("<u>Hi<a>Hello<e><u>More");
        assert_eq!((tokens, rest), (vec![1, 2, 3, 4, 5], "<e><u>More"));
        let (tokens, rest) = kept.longest_prefix("<u>Hi<a>Help");
        assert_eq!((tokens, rest), (vec![1, 2, 3], "Help"));
        let (tokens, rest) = kept.longest_prefix("<u>Ho");
        assert_eq!((tokens, rest), (vec![], "<u>Ho"));
        kept.keep("<u>Hi<a>Hello<e>".to_owned(), vec![1, 2, 3, 4, 5, 6]);
        assert_eq!(kept.kept.len(), 1, "what it grew out of is dropped");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Transcripts::default();
        for turn in 0..100 {
            kept.keep(
                format!("{turn} {}", "x".repeat(MAX_TRANSCRIPT_BYTES / 5)),
                vec![turn],
            );
        }
        assert!(kept.bytes <= MAX_TRANSCRIPT_BYTES && kept.kept.len() == 4);
        kept.keep("x".repeat(MAX_TRANSCRIPT_BYTES + 1), vec![]);
        assert_eq!(kept.kept.len(), 4);
        for turn in 0..100 {
            kept.keep(format!("{turn}."), vec![turn]);
        }
        assert_eq!(kept.kept.len(), MAX_TRANSCRIPTS);
    }
}
