//! What a model says, taken apart while it comes: content, reasoning, calls of tools.
//!
//! Invariant: the pieces put together are the same however the text came; no text is lost but for the
//! marks themselves and the spaces around them. A call is given out when it is whole and names a tool
//! that was offered; what only looks like one stays content. A call that a limit of tokens cut is given out as far as
//! it goes, once its name is known; where nothing but calls was allowed, no part of one is content.

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

pub use family::Family;
pub use parts::Piece;
pub use reasoning::Reasoning;

use calls::CallScan;
use harmony::Harmony;
use parts::Parts;
use reasoning::ReasoningScan;

/// A tool that was offered to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// The schema of its arguments, for forms that write values as bare text or without names.
    pub parameters: Option<Value>,
}

/// How answers of a request are to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// How the model writes calls; `None` reads the text as it is.
    pub family: Option<Family>,
    /// The tools; without any no text is a call.
    pub tools: Vec<Offered>,
    /// Whether there may be reasoning, and whether the prompt began it.
    pub reasoning: Reasoning,
}

impl Reading {
    /// Of text that is no chat: all of it is content.
    pub fn plain() -> Self {
        Self {
            family: None,
            tools: Vec::new(),
            reasoning: Reasoning::Absent,
        }
    }
}

/// An answer in the making.
#[derive(Debug)]
pub struct Answer {
    reading: Scan,
    parts: Parts,
}

/// Who reads next.
#[derive(Debug)]
enum Scan {
    Plain,
    Marked {
        reasoning: ReasoningScan,
        calls: CallScan,
    },
    Harmony(Harmony),
}

impl Answer {
    /// The beginning of one.
    pub fn new(reading: &Reading) -> Self {
        let scan = match reading.family {
            None if reading.reasoning == Reasoning::Absent => Scan::Plain,
            Some(Family::Harmony) => Scan::Harmony(Harmony::new(reading)),
            family => Scan::Marked {
                reasoning: ReasoningScan::new(reading.reasoning),
                calls: CallScan::new(family, &reading.tools),
            },
        };
        Self {
            reading: scan,
            parts: Parts::default(),
        }
    }

    /// Takes the next text.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.reading {
            Scan::Plain => self.parts.content(text),
            Scan::Marked { reasoning, calls } => {
                let content = reasoning.push(text, &mut self.parts);
                calls.push(&content, &mut self.parts);
            }
            Scan::Harmony(harmony) => harmony.push(text, &mut self.parts),
        }
        self.parts.take()
    }

    /// The text is over: what was held back. If it `is_cut`, a call that was begun comes with what there is of its
    /// arguments.
    pub fn finish(&mut self, is_cut: bool) -> Vec<Piece> {
        match &mut self.reading {
            Scan::Plain => {}
            Scan::Marked { reasoning, calls } => {
                let content = reasoning.finish(&mut self.parts);
                calls.push(&content, &mut self.parts);
                calls.finish(is_cut, &mut self.parts);
            }
            Scan::Harmony(harmony) => harmony.finish(is_cut, &mut self.parts),
        }
        self.parts.take()
    }

    /// Whether the text is within reasoning: no constraint holds there.
    pub fn is_reasoning(&self) -> bool {
        match &self.reading {
            Scan::Plain => false,
            Scan::Marked { reasoning, .. } => reasoning.is_within(),
            Scan::Harmony(harmony) => harmony.is_reasoning(),
        }
    }

    /// How many calls there were so far.
    pub fn calls(&self) -> usize {
        self.parts.calls()
    }
}
