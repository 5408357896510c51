//! Splits off reasoning: `<think>…</think>` at the beginning of an answer.
//!
//! Invariant: only the beginning of an answer can be reasoning; later marks are ordinary text.
//! Spaces between a mark and the adjacent text are dropped.

use super::marked::{PrefixMatch, begins, first_mark, open};
use super::parts::PieceBuffer;

const THINK_BEGIN: &str = "<think>";
const THINK_END: &str = "</think>";

/// Expected reasoning at the beginning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// The template has no reasoning marks.
    Absent,
    /// The model may begin reasoning.
    Possible,
    /// The prompt ended within reasoning.
    Begun,
}

impl Reasoning {
    /// Detects reasoning from the template's text and the rendered prompt.
    pub fn of(template: &str, prompt: &str) -> Self {
        let last = prompt.rfind(THINK_BEGIN);
        let within = last.is_some_and(|start| {
            let after = &prompt[start + THINK_BEGIN.len()..];
            after.trim().is_empty()
        });
        if within {
            Self::Begun
        } else if template.contains(THINK_END) || template.contains(THINK_BEGIN) {
            Self::Possible
        } else {
            Self::Absent
        }
    }
}

/// A streaming parser that splits off reasoning.
#[derive(Debug)]
pub(super) struct ReasoningScan {
    state: ReasoningState,
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningState {
    /// Only spaces so far.
    Start,
    /// Within reasoning; only spaces so far.
    Opened,
    /// Same as `Opened`, but the model has repeated the opening mark; a further one is text.
    OpenedAgain,
    Within,
    /// After reasoning; only spaces so far.
    Closed,
    Content,
}

impl ReasoningScan {
    pub(super) fn new(reasoning: Reasoning) -> Self {
        Self {
            state: match reasoning {
                Reasoning::Absent => ReasoningState::Content,
                Reasoning::Possible => ReasoningState::Start,
                Reasoning::Begun => ReasoningState::Opened,
            },
            held: String::new(),
        }
    }

    pub(super) fn is_within(&self) -> bool {
        matches!(
            self.state,
            ReasoningState::Opened | ReasoningState::OpenedAgain | ReasoningState::Within
        )
    }

    /// Parses the next text and returns the part that is content.
    pub(super) fn push(&mut self, text: &str, parts: &mut PieceBuffer) -> String {
        self.held.push_str(text);
        loop {
            match self.state {
                ReasoningState::Start => match begins(self.held.trim_start(), THINK_BEGIN) {
                    PrefixMatch::NotYet => return String::new(),
                    PrefixMatch::No => self.state = ReasoningState::Content,
                    PrefixMatch::Yes => {
                        self.drop_mark();
                        self.state = ReasoningState::Opened;
                    }
                },
                // Some models repeat the opening mark that the prompt already has.
                ReasoningState::Opened => match begins(self.held.trim_start(), THINK_BEGIN) {
                    PrefixMatch::NotYet => return String::new(),
                    PrefixMatch::No => self.state = ReasoningState::OpenedAgain,
                    PrefixMatch::Yes => {
                        self.drop_mark();
                        self.state = ReasoningState::OpenedAgain;
                    }
                },
                ReasoningState::OpenedAgain => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return String::new();
                    }
                    self.state = ReasoningState::Within;
                }
                ReasoningState::Within => {
                    let Some(found) = first_mark(&self.held, &[THINK_END]) else {
                        self.emit(parts);
                        return String::new();
                    };
                    parts.reasoning(self.held[..found.start].trim_end());
                    self.held.drain(..found.start + THINK_END.len());
                    self.state = ReasoningState::Closed;
                }
                ReasoningState::Closed => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        return String::new();
                    }
                    self.state = ReasoningState::Content;
                }
                ReasoningState::Content => return std::mem::take(&mut self.held),
            }
        }
    }

    /// Drops the leading mark and the spaces before it.
    fn drop_mark(&mut self) {
        let spaces = self.held.len() - self.held.trim_start().len();
        self.held.drain(..spaces + THINK_BEGIN.len());
    }

    /// Emits reasoning, except for trailing spaces and a possible beginning of a mark.
    fn emit(&mut self, parts: &mut PieceBuffer) {
        let sure = self.held.len() - open(&self.held, &[THINK_END]);
        let sure = self.held[..sure].trim_end().len();
        parts.reasoning(&self.held[..sure]);
        self.held.drain(..sure);
    }

    pub(super) fn finish(&mut self, parts: &mut PieceBuffer) -> String {
        let held = std::mem::take(&mut self.held);
        match self.state {
            ReasoningState::Start | ReasoningState::Content => held,
            ReasoningState::Opened | ReasoningState::OpenedAgain | ReasoningState::Within => {
                parts.reasoning(held.trim_end());
                String::new()
            }
            ReasoningState::Closed => String::new(),
        }
    }
}
