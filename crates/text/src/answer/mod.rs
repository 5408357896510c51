//! Parses a model's streamed answer into content, reasoning and tool calls.
//!
//! Invariant: the pieces together are the same however the text is split. Only the marks themselves
//! and the spaces around them are dropped. A call is emitted once it is complete and names an
//! offered tool; other text that looks like a call stays content. A call that the token limit cut
//! is emitted as far as it goes, once its name is known. If only calls were allowed, no part of a
//! call becomes content.

mod calls;
mod family;
mod harmony;
mod json;
mod marked;
mod parts;
mod python;
mod reasoning;
mod spoken;

use serde_json::Value;

pub use family::CallFamily;
pub use parts::Piece;
pub use reasoning::Reasoning;

use calls::CallScan;
use harmony::Harmony;
use parts::PieceBuffer;
use reasoning::ReasoningScan;

/// A tool that was offered to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// The schema of its arguments, for formats that write values as bare text or without names.
    pub parameters: Option<Value>,
}

/// Settings for parsing the answers of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerFormat {
    /// The model's format of tool calls; `None` leaves the text unparsed.
    pub family: Option<CallFamily>,
    /// The offered tools; without tools, no text is a call.
    pub tools: Vec<OfferedTool>,
    /// Expected reasoning at the beginning of the answer.
    pub reasoning: Reasoning,
}

impl AnswerFormat {
    /// Returns the settings for text completions, where everything is content.
    pub fn plain() -> Self {
        Self {
            family: None,
            tools: Vec::new(),
            reasoning: Reasoning::Absent,
        }
    }
}

/// A streamed answer and the state of its parser.
#[derive(Debug)]
pub struct AnswerParser {
    reading: ActiveParser,
    parts: PieceBuffer,
}

/// The active parser.
#[derive(Debug)]
enum ActiveParser {
    Plain,
    Marked {
        reasoning: ReasoningScan,
        calls: CallScan,
    },
    Harmony(Harmony),
}

impl AnswerParser {
    /// Begins an answer.
    pub fn new(reading: &AnswerFormat) -> Self {
        let scan = match reading.family {
            None if reading.reasoning == Reasoning::Absent => ActiveParser::Plain,
            Some(CallFamily::Harmony) => ActiveParser::Harmony(Harmony::new(reading)),
            family => ActiveParser::Marked {
                reasoning: ReasoningScan::new(reading.reasoning),
                calls: CallScan::new(family, &reading.tools),
            },
        };
        Self {
            reading: scan,
            parts: PieceBuffer::default(),
        }
    }

    /// Parses the next text and returns its pieces.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.reading {
            ActiveParser::Plain => self.parts.content(text),
            ActiveParser::Marked { reasoning, calls } => {
                let content = reasoning.push(text, &mut self.parts);
                calls.push(&content, &mut self.parts);
            }
            ActiveParser::Harmony(harmony) => harmony.push(text, &mut self.parts),
        }
        self.parts.take()
    }

    /// Ends the text and returns the pieces that were held back. If the answer `is_cut`, an
    /// incomplete call is returned with the arguments it has.
    pub fn finish(&mut self, is_cut: bool) -> Vec<Piece> {
        match &mut self.reading {
            ActiveParser::Plain => {}
            ActiveParser::Marked { reasoning, calls } => {
                let content = reasoning.finish(&mut self.parts);
                calls.push(&content, &mut self.parts);
                calls.finish(is_cut, &mut self.parts);
            }
            ActiveParser::Harmony(harmony) => harmony.finish(is_cut, &mut self.parts),
        }
        self.parts.take()
    }

    /// Returns whether the text is within reasoning, where constraints do not apply.
    pub fn is_reasoning(&self) -> bool {
        match &self.reading {
            ActiveParser::Plain => false,
            ActiveParser::Marked { reasoning, .. } => reasoning.is_within(),
            ActiveParser::Harmony(harmony) => harmony.is_reasoning(),
        }
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.parts.calls()
    }
}
