//! Finds tool calls within content, for all model families that mark calls in the text.
//!
//! Invariant: content is passed on as soon as it certainly is not a call. Text that looked like a
//! call but is not one becomes content unchanged, and parsing continues after its mark.

use super::family::CallFamily;
use super::json::{self, EndScanner, ValueEnd};
use super::marked::{PrefixMatch, begins, first_mark, open};
use super::parts::{ParsedCall, PieceBuffer};
use super::{OfferedTool, python, spoken};

/// Maximum length of a name before the arguments in Mistral's newer form.
const MAX_NAME_BYTES: usize = 256;

/// A streaming scanner for tool calls.
#[derive(Debug)]
pub(super) struct CallScan {
    family: CallFamily,
    tools: Vec<OfferedTool>,
    state: CallsState,
    held: String,
}

#[derive(Debug)]
enum CallsState {
    /// No tools were offered, so everything is content.
    Off,
    /// Only spaces so far, at the beginning or after a call. A call may come without a mark here.
    Start {
        behind_call: bool,
    },
    Text,
    Body(PossibleCall),
    /// After a call, before its closing mark.
    Closing(&'static str),
}

/// A possible call. `held` begins with spaces and a mark.
#[derive(Debug)]
struct PossibleCall {
    /// Length of the spaces and the mark, in bytes.
    lead: usize,
    /// Number of bytes after the mark that were already searched for an end.
    seen: usize,
    brackets: EndScanner,
}

/// The result of parsing a body.
enum BodyParse {
    More,
    /// Calls, the number of bytes that they take, and the mark that may close them.
    Calls(Vec<ParsedCall>, usize, &'static str),
    No,
}

impl CallFamily {
    /// Returns the marks that begin a call.
    fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>"],
            Self::Xml => &["<tool_call>", spoken::CALL_BEGIN],
            Self::Llama => &["<|python_tag|>", spoken::CALL_BEGIN],
            Self::Mistral => &["[TOOL_CALLS]"],
            Self::Phi => &["<|tool_call|>", "functools["],
            Self::Granite => &["<|tool_call|>", "<tool_call>"],
            Self::Lfm => &["<|tool_call_start|>"],
            Self::Gemma => &["```tool_code", "```python", "```tool_call"],
            Self::Harmony | Self::Required => &[],
        }
    }

    /// Returns whether a call without a mark begins with this letter.
    fn is_bare(self, letter: char) -> bool {
        match self {
            Self::Llama => letter == '{',
            Self::Required => letter == '[' || letter == '{',
            _ => false,
        }
    }
}

impl CallScan {
    pub(super) fn new(family: Option<CallFamily>, tools: &[OfferedTool]) -> Self {
        let state = if family.is_none() || tools.is_empty() {
            CallsState::Off
        } else {
            CallsState::Start { behind_call: false }
        };
        Self {
            family: family.unwrap_or(CallFamily::Hermes),
            tools: tools.to_vec(),
            state,
            held: String::new(),
        }
    }

    pub(super) fn push(&mut self, text: &str, parts: &mut PieceBuffer) {
        self.held.push_str(text);
        while self.step(parts) {}
    }

    /// Advances by one step; returns whether another step is possible without more text.
    fn step(&mut self, parts: &mut PieceBuffer) -> bool {
        match &mut self.state {
            CallsState::Off => {
                parts.content(&self.held);
                self.held.clear();
                false
            }
            CallsState::Start { behind_call } => {
                let behind_call = *behind_call;
                self.start(behind_call)
            }
            CallsState::Text => self.text(parts),
            CallsState::Body(_) => self.body(parts),
            CallsState::Closing(mark) => {
                let mark = *mark;
                self.closing(mark)
            }
        }
    }

    fn start(&mut self, behind_call: bool) -> bool {
        if behind_call {
            // Llama separates calls with semicolons.
            let between =
                |c: char| c.is_whitespace() || self.family == CallFamily::Llama && c == ';';
            self.held = self.held.trim_start_matches(between).to_owned();
        }
        let text = self.held.trim_start();
        let Some(letter) = text.chars().next() else {
            return false;
        };
        self.state = if self.family.is_bare(letter) {
            CallsState::Body(PossibleCall::new(self.held.len() - text.len()))
        } else {
            CallsState::Text
        };
        true
    }

    fn text(&mut self, parts: &mut PieceBuffer) -> bool {
        let marks = self.family.marks();
        let Some(found) = first_mark(&self.held, marks) else {
            // Spaces before a call are not content.
            let sure = self.held.len() - open(&self.held, marks);
            let sure = self.held[..sure].trim_end().len();
            parts.content(&self.held[..sure]);
            self.held.drain(..sure);
            return false;
        };
        let content = self.held[..found.start].trim_end().len();
        parts.content(&self.held[..content]);
        self.held.drain(..content);
        let spaces = found.start - content;
        let mark = marks[found.mark];
        let length = match mark {
            // These marks are part of the parsed text.
            spoken::CALL_BEGIN => 0,
            "functools[" => mark.len() - 1,
            _ => mark.len(),
        };
        self.state = CallsState::Body(PossibleCall::new(spaces + length));
        true
    }

    fn body(&mut self, parts: &mut PieceBuffer) -> bool {
        let CallsState::Body(body) = &mut self.state else {
            return false;
        };
        match read(self.family, &self.tools, &self.held[body.lead..], body) {
            BodyParse::More => false,
            BodyParse::Calls(calls, length, close) => {
                let end = body.lead + length;
                self.held.drain(..end);
                for call in calls {
                    parts.call(call);
                }
                self.state = CallsState::Closing(close);
                true
            }
            BodyParse::No => {
                // An empty mark is part of the text, so at least one letter must be consumed.
                let rest = &self.held[body.lead..];
                let letter = rest.chars().next().map_or(0, char::len_utf8);
                let spaces = self.held.len() - self.held.trim_start().len();
                let bare = body.lead <= spaces;
                let lead = if bare { body.lead + letter } else { body.lead };
                parts.content(&self.held[..lead]);
                self.held.drain(..lead);
                self.state = CallsState::Text;
                true
            }
        }
    }

    fn closing(&mut self, mark: &'static str) -> bool {
        let rest = self.held.trim_start();
        match begins(rest, mark) {
            PrefixMatch::NotYet if !mark.is_empty() => return false,
            PrefixMatch::Yes => self.held = rest[mark.len()..].to_owned(),
            _ => self.held = rest.to_owned(),
        }
        self.state = CallsState::Start { behind_call: true };
        true
    }

    /// Ends the text; `is_cut` is true if the token limit cut the answer.
    pub(super) fn finish(&mut self, is_cut: bool, parts: &mut PieceBuffer) {
        let held = std::mem::take(&mut self.held);
        match &self.state {
            CallsState::Start { behind_call: true } | CallsState::Closing(_) => {}
            CallsState::Body(body) => {
                let rest = &held[body.lead..];
                // A call that ends with the answer needs no closing mark.
                match unclosed_calls(self.family, &self.tools, rest, is_cut) {
                    Some(calls) => calls.into_iter().for_each(|call| parts.call(call)),
                    None => parts.content(&held),
                }
            }
            // Ignore the rest of a list of calls that ends between two of them.
            CallsState::Start { .. } if self.family == CallFamily::Required => {}
            CallsState::Text if parts.calls() > 0 => parts.content(held.trim_end()),
            CallsState::Off | CallsState::Start { .. } | CallsState::Text => parts.content(&held),
        }
    }
}

impl PossibleCall {
    fn new(lead: usize) -> Self {
        Self {
            lead,
            seen: 0,
            brackets: EndScanner::default(),
        }
    }

    /// Finds a mark in the part of the text that was not searched yet.
    fn find(&mut self, text: &str, mark: &str) -> Option<usize> {
        let mut from = self.seen.saturating_sub(mark.len());
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        self.seen = text.len();
        text[from..].find(mark).map(|place| from + place)
    }
}

/// Parses a body, beginning after its mark.
fn read(
    family: CallFamily,
    tools: &[OfferedTool],
    text: &str,
    body: &mut PossibleCall,
) -> BodyParse {
    let start = text.trim_start();
    let spaces = text.len() - start.len();
    let Some(letter) = start.chars().next() else {
        return BodyParse::More;
    };
    let close = match family {
        CallFamily::Hermes | CallFamily::Xml | CallFamily::Granite => "</tool_call>",
        CallFamily::Phi => "<|/tool_call|>",
        CallFamily::Gemma => "```",
        _ => "",
    };
    let calls = |calls: Option<Vec<ParsedCall>>, length: usize, close: &'static str| match calls {
        Some(calls) => BodyParse::Calls(calls, length, close),
        None => BodyParse::No,
    };
    match family {
        CallFamily::Lfm => match body.find(text, "<|tool_call_end|>") {
            Some(end) => calls(
                python_or_json_calls(&text[..end], tools),
                end,
                "<|tool_call_end|>",
            ),
            None => BodyParse::More,
        },
        CallFamily::Gemma => match body.find(text, "```") {
            Some(end) => calls(python_or_json_calls(&text[..end], tools), end, close),
            None => BodyParse::More,
        },
        CallFamily::Mistral if letter != '[' && letter != '{' => named(text, tools, body),
        _ if letter == '{' || letter == '[' => match body.brackets.end(start) {
            ValueEnd::At(length) => {
                calls(json::calls(&start[..length], tools), spaces + length, close)
            }
            ValueEnd::Open => BodyParse::More,
            ValueEnd::Wrong => BodyParse::No,
        },
        CallFamily::Xml | CallFamily::Hermes | CallFamily::Llama => {
            match begins(start, spoken::CALL_BEGIN) {
                PrefixMatch::NotYet => BodyParse::More,
                PrefixMatch::Yes => match body.find(text, spoken::CALL_END) {
                    Some(end) => {
                        let call = spoken::call(&text[spaces..end], tools);
                        calls(
                            call.map(|call| vec![call]),
                            end + spoken::CALL_END.len(),
                            close,
                        )
                    }
                    None => BodyParse::More,
                },
                // A built-in tool of Llama, which is complete only when the answer ends.
                PrefixMatch::No if family == CallFamily::Llama => BodyParse::More,
                PrefixMatch::No => BodyParse::No,
            }
        }
        _ => BodyParse::No,
    }
}

/// Parses calls as Python or as JSON, for families that were trained on both.
fn python_or_json_calls(text: &str, tools: &[OfferedTool]) -> Option<Vec<ParsedCall>> {
    python::calls(text, tools).or_else(|| json::calls(text.trim(), tools))
}

/// Parses `name[ARGS]{…}`. The model may put an id of its own in between, which is ignored.
fn named(text: &str, tools: &[OfferedTool], body: &mut PossibleCall) -> BodyParse {
    let Some(open) = text.find('{') else {
        return if text.len() > MAX_NAME_BYTES {
            BodyParse::No
        } else {
            BodyParse::More
        };
    };
    let name = text[..open].split('[').next().unwrap_or_default().trim();
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        return BodyParse::No;
    };
    match body.brackets.end(&text[open..]) {
        ValueEnd::At(length) => match json::object_text(&text[open..open + length]) {
            Some(arguments) => {
                let call = ParsedCall {
                    name: tool.name.clone(),
                    arguments: arguments.to_owned(),
                };
                BodyParse::Calls(vec![call], open + length, "")
            }
            None => BodyParse::No,
        },
        ValueEnd::Open => BodyParse::More,
        ValueEnd::Wrong => BodyParse::No,
    }
}

/// Returns the calls of a body that the end of the answer closes or cuts.
fn unclosed_calls(
    family: CallFamily,
    tools: &[OfferedTool],
    text: &str,
    is_cut: bool,
) -> Option<Vec<ParsedCall>> {
    let whole = match family {
        CallFamily::Lfm | CallFamily::Gemma | CallFamily::Llama => {
            python_or_json_calls(text, tools)
        }
        _ => None,
    };
    let cut = || {
        let (mut calls, partial) = match mistral_call_cut(family, tools, text) {
            Some(call) => (Vec::new(), Some(call)),
            None => json::cut_calls(text, tools),
        };
        calls.extend(partial.filter(|_| is_cut));
        // Without a name it is not certainly a call, unless the constraint allows only calls.
        (family == CallFamily::Required || is_cut && !calls.is_empty()).then_some(calls)
    };
    whole.or_else(cut)
}

/// Parses `name[ARGS]{…` with incomplete arguments.
fn mistral_call_cut(family: CallFamily, tools: &[OfferedTool], text: &str) -> Option<ParsedCall> {
    let text = text.trim_start();
    if family != CallFamily::Mistral || text.starts_with(['[', '{']) {
        return None;
    }
    let (name, arguments) = text.split_at(text.find(['[', '{'])?);
    let tool = tools.iter().find(|tool| tool.name == name.trim())?;
    let arguments = arguments.find('{').map_or("", |open| &arguments[open..]);
    Some(ParsedCall {
        name: tool.name.clone(),
        arguments: arguments.to_owned(),
    })
}
