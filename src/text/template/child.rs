//! The side of a process that renders.
//!
//! Invariant: it keeps templates, and nothing of a conversation.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::{Error, ErrorKind};

use super::environment::{Raised, Ready};
use super::protocol::{Failure, Reply, Request};
use crate::runtime::process::frame::{self, MAX_HEAD};
use crate::runtime::process::{limit_memory, panic_text, requests};

/// Most templates that are kept.
const KEPT: usize = 16;

/// Longest text that is answered, in bytes: escaped six times over it still fits a frame.
const MAX_TEXT: usize = (MAX_HEAD - 1024) / 6;

/// Longest message of a failure, in bytes: a template can raise anything.
const MAX_MESSAGE: usize = 4096;

/// Renders for the parent at the other end of standard input until it is gone.
pub fn serve() -> io::Result<()> {
    let (requests, mut to_parent) = requests(next)?;
    let mut kept = Kept::default();
    for request in requests {
        let reply = answer(&mut kept, &request);
        frame::send(&mut to_parent, &reply)?;
    }
    Ok(())
}

fn next(stream: &mut dyn Read) -> io::Result<Request<'static>> {
    frame::receive(stream)
}

/// Templates that were read, the latest last.
#[derive(Default)]
struct Kept(VecDeque<(u64, Ready)>);

impl Kept {
    fn get(&mut self, id: u64) -> Option<&Ready> {
        let place = self.0.iter().position(|(known, _)| *known == id)?;
        let found = self.0.remove(place)?;
        self.0.push_back(found);
        self.0.back().map(|(_, ready)| ready)
    }

    fn put(&mut self, id: u64, ready: Ready) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((id, ready));
    }
}

fn answer(kept: &mut Kept, request: &Request) -> Reply {
    limit_memory(request.memory);
    let outcome = catch_unwind(AssertUnwindSafe(|| rendered(kept, request)));
    outcome.unwrap_or_else(|panic| Reply::Failed {
        failure: Failure::Other,
        line: None,
        message: cut(format!("it panicked: {}", panic_text(panic.as_ref()))),
    })
}

fn rendered(kept: &mut Kept, request: &Request) -> Reply {
    if kept.get(request.template).is_none() {
        let Some(text) = &request.text else {
            return Reply::Unknown;
        };
        match Ready::new(text, request.steps) {
            Ok(ready) => kept.put(request.template, ready),
            Err(error) => return failed(&error, true),
        }
    }
    let Some(ready) = kept.get(request.template) else {
        return Reply::Unknown;
    };
    match ready.render(&request.conversation, &request.tokens, request.now) {
        Ok(text) if text.len() > MAX_TEXT => Reply::Failed {
            failure: Failure::Length,
            line: None,
            message: format!(
                "the limit of {MAX_TEXT} bytes, with a text of {}",
                text.len()
            ),
        },
        Ok(text) => Reply::Rendered(text),
        Err(error) => failed(&error, false),
    }
}

fn failed(error: &Error, reading: bool) -> Reply {
    let (failure, message) = match raised(error) {
        Some(message) => (Failure::Raised, message.to_owned()),
        None if reading || error.kind() == ErrorKind::SyntaxError => (Failure::Syntax, told(error)),
        None if error.kind() == ErrorKind::OutOfFuel => (Failure::Steps, String::new()),
        None => (Failure::Other, told(error)),
    };
    Reply::Failed {
        failure,
        line: error.line(),
        message: cut(message),
    }
}

/// What the template itself said, however deep within calls.
fn raised(error: &Error) -> Option<&str> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message);
        }
        cause = error.source();
    }
    None
}

fn told(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}
