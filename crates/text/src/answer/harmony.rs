//! Parses Harmony, the message format of gpt-oss: the head of each message names its channel and
//! its recipient.
//!
//! `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`; a tool
//! call is a message to `functions.NAME`.

use super::json::object_text;
use super::marked::{first_mark, open};
use super::parts::{ParsedCall, PieceBuffer};
use super::{AnswerFormat, OfferedTool};

const MESSAGE_MARK: &str = "<|message|>";

/// Tokens that end a message. Those that also end the answer seldom appear in the text.
const MESSAGE_ENDS: [&str; 5] = [
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|start|>",
    "<|channel|>",
];

/// Possible beginnings of a head; any other text is content without a head.
const HEAD_STARTS: [&str; 4] = ["<|channel|>", "<|start|>", "to=", "assistant"];

/// Maximum length of a head, in bytes.
const MAX_HEAD_BYTES: usize = 512;

/// A streaming parser of messages.
#[derive(Debug)]
pub(super) struct Harmony {
    tools: Vec<OfferedTool>,
    state: HarmonyState,
    held: String,
}

#[derive(Debug, PartialEq, Eq)]
enum HarmonyState {
    Head,
    Reasoning,
    Content,
    /// A call of an offered tool; its arguments are held back.
    Call(String),
}

impl Harmony {
    pub(super) fn new(reading: &AnswerFormat) -> Self {
        Self {
            tools: reading.tools.clone(),
            state: HarmonyState::Head,
            held: String::new(),
        }
    }

    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self.state, HarmonyState::Head | HarmonyState::Reasoning)
    }

    pub(super) fn push(&mut self, text: &str, parts: &mut PieceBuffer) {
        self.held.push_str(text);
        loop {
            if self.state == HarmonyState::Head {
                if !self.head() {
                    return;
                }
                continue;
            }
            let Some(found) = first_mark(&self.held, &MESSAGE_ENDS) else {
                let sure = self.held.len() - open(&self.held, &MESSAGE_ENDS);
                match &self.state {
                    HarmonyState::Reasoning => parts.reasoning(&self.held[..sure]),
                    HarmonyState::Content => parts.content(&self.held[..sure]),
                    HarmonyState::Call(_) | HarmonyState::Head => return,
                }
                self.held.drain(..sure);
                return;
            };
            let message: String = self.held.drain(..found.start).collect();
            self.close(&message, parts);
            let mark = MESSAGE_ENDS[found.mark];
            // A head begins with these marks, so they stay in the text.
            if !mark.starts_with("<|start") && !mark.starts_with("<|channel") {
                self.held.drain(..mark.len());
            }
        }
    }

    /// Ends the text; `is_cut` is true if the token limit cut the answer.
    pub(super) fn finish(&mut self, is_cut: bool, parts: &mut PieceBuffer) {
        let held = std::mem::take(&mut self.held);
        if self.state == HarmonyState::Head
            && HEAD_STARTS
                .iter()
                .any(|head| held.trim_start().starts_with(head))
        {
            // The answer was cut within a head, which is incomplete.
            return;
        }
        if let HarmonyState::Call(name) = &self.state
            && is_cut
        {
            return parts.call(ParsedCall {
                name: name.clone(),
                arguments: held.trim_start().to_owned(),
            });
        }
        self.close(&held, parts);
    }

    /// Emits a whole message, or the rest of one.
    fn close(&mut self, message: &str, parts: &mut PieceBuffer) {
        match std::mem::replace(&mut self.state, HarmonyState::Head) {
            HarmonyState::Reasoning => parts.reasoning(message),
            HarmonyState::Content | HarmonyState::Head => parts.content(message),
            HarmonyState::Call(name) => match object_text(message) {
                Some(arguments) => parts.call(ParsedCall {
                    name,
                    arguments: arguments.to_owned(),
                }),
                None => parts.content(message),
            },
        }
    }

    /// Parses a head if it is complete; returns whether to continue.
    fn head(&mut self) -> bool {
        let text = self.held.trim_start();
        if text.is_empty() {
            return false;
        }
        let may_be = |head: &&str| text.starts_with(*head) || head.starts_with(text);
        if !HEAD_STARTS.iter().any(may_be) {
            self.state = HarmonyState::Content;
            return true;
        }
        let Some(found) = first_mark(&self.held, &[MESSAGE_MARK]) else {
            if self.held.len() > MAX_HEAD_BYTES {
                self.state = HarmonyState::Content;
                return true;
            }
            return false;
        };
        let head: String = self
            .held
            .drain(..found.start + MESSAGE_MARK.len())
            .collect();
        self.state = self.meaning(&head[..found.start]);
        true
    }

    fn meaning(&self, head: &str) -> HarmonyState {
        let word = |mark: &str| {
            let (_, after) = head.split_once(mark)?;
            after.split(|c: char| c.is_whitespace() || c == '<').next()
        };
        if let Some(to) = word("to=") {
            let name = to.strip_prefix("functions.").unwrap_or(to);
            if self.tools.iter().any(|tool| tool.name == name) {
                return HarmonyState::Call(name.to_owned());
            }
        }
        match word("<|channel|>") {
            Some("analysis") => HarmonyState::Reasoning,
            _ => HarmonyState::Content,
        }
    }
}
