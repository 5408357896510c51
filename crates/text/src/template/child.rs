//! The worker's side of rendering: parses and renders templates in a sandboxed process.
//!
//! Invariant: the worker caches templates, but keeps nothing of a conversation.

use std::error::Error as _;
use std::io;

use minijinja::{Error, ErrorKind};

use super::environment::{ParsedTemplate, RaisedMessage};
use super::protocol::{RenderReply, RenderRequest, TemplateFailure};
use pkgtool_engine::runtime::parsers::{ContentCache, ContentId, JobAnswer, ParserTask};
use pkgtool_engine::runtime::process::frame::MAX_HEAD_BYTES;

/// Maximum number of cached templates.
const MAX_CACHED_TEMPLATES: usize = 16;

/// Maximum length of a rendered text, in bytes.
const MAX_TEXT_BYTES: usize = (MAX_HEAD_BYTES - 1024) / 6;

/// Maximum length of an error message, in bytes. A template can raise messages of any length.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Renders templates and caches the parsed ones.
pub struct Rendering(ContentCache<ParsedTemplate>);

impl Default for Rendering {
    fn default() -> Self {
        Self(ContentCache::new(MAX_CACHED_TEMPLATES))
    }
}

impl Rendering {
    /// Executes one rendering job.
    pub fn work(&mut self, task: &ParserTask) -> io::Result<JobAnswer> {
        let id = task.id.ok_or(io::ErrorKind::InvalidData)?;
        let request: RenderRequest = task.ask()?;
        if self.0.get(id).is_none() {
            let Some(text) = &task.content else {
                return Ok(JobAnswer::Unknown);
            };
            if let Err(error) = self.parse(id, text, request.steps) {
                return JobAnswer::of(&failed(&error, true));
            }
        }
        match self.0.get(id) {
            Some(ready) => JobAnswer::of(&rendered(ready, &request)),
            None => Ok(JobAnswer::Unknown),
        }
    }

    fn parse(&mut self, id: ContentId, text: &[u8], steps: u64) -> Result<(), Error> {
        let text = String::from_utf8_lossy(text);
        self.0.put(id, ParsedTemplate::new(&text, steps)?);
        Ok(())
    }
}

fn rendered(ready: &ParsedTemplate, request: &RenderRequest) -> RenderReply {
    match ready.render(&request.conversation, &request.tokens, request.now) {
        Ok(text) if text.len() > MAX_TEXT_BYTES => RenderReply::Failed {
            failure: TemplateFailure::Length,
            line: None,
            message: format!(
                "the limit of {MAX_TEXT_BYTES} bytes, with a text of {}",
                text.len()
            ),
        },
        Ok(text) => RenderReply::Rendered(text),
        Err(error) => failed(&error, false),
    }
}

fn failed(error: &Error, reading: bool) -> RenderReply {
    let (failure, message) = match raised_message(error) {
        Some(message) => (TemplateFailure::Raised, message.to_owned()),
        None if reading || error.kind() == ErrorKind::SyntaxError => {
            (TemplateFailure::Syntax, error_message(error))
        }
        None if error.kind() == ErrorKind::OutOfFuel => (TemplateFailure::Steps, String::new()),
        None => (TemplateFailure::Other, error_message(error)),
    };
    RenderReply::Failed {
        failure,
        line: error.line(),
        message: cut(message),
    }
}

/// Returns the message that the template itself raised, however deep in the call stack.
fn raised_message(error: &Error) -> Option<&str> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(RaisedMessage(message)) = error.downcast_ref() {
            return Some(message);
        }
        cause = error.source();
    }
    None
}

fn error_message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}
