//! A language server for configs and precision lists, over a pair of streams (LSP 3.17).
//!
//! Owns the protocol and what editors ask for; what is right and wrong is `validate`'s. Invariant: whatever a
//! client sends, it gets an answer or none is due; what waits and what is kept is bounded; documents that are no
//! files of packages are left alone.

mod action;
mod capabilities;
mod checker;
mod client;
mod completion;
mod document;
mod finding;
mod frame;
mod hover;
mod job;
mod lenient;
mod lost;
mod mailbox;
mod message;
mod parent;
mod place;
mod pull;
mod rename;
mod server;
mod shape;
mod symbol;
mod text;
mod uri;
mod view;
mod watch;

use std::io::{self, BufRead, Write};
use std::thread;

use frame::Frame;
use lost::Lost;
use mailbox::{Event, Mailbox};
use message::Incoming;
use server::Server;

/// How the server works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether model files are opened.
    pub open_models: bool,
    /// The page on which each rule has its code as a heading.
    pub rules_page: Option<String>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As the protocol has it: `shutdown`, then `exit`.
    Orderly,
    /// The client went away, or nobody can tell where its next message begins.
    Broken,
}

/// Serves one client until it is done. Fails if the output cannot be written.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
    options: &Options,
) -> io::Result<Ending> {
    let mailbox = Mailbox::default();
    let letters = mailbox.clone();
    // Not waited for: it may stand in a read for ever.
    thread::spawn(move || read_all(input, &letters));
    Server::new(mailbox, output, options).run()
}

fn read_all(mut input: impl BufRead, mailbox: &Mailbox) {
    loop {
        match frame::read(&mut input) {
            Ok(Frame::Body(body)) => mailbox.bring(Incoming::read(&body), body.len()),
            Ok(Frame::TooLarge(size, head)) => {
                mailbox.post(Event::TooLarge(size, Lost::with(&head)));
            }
            Ok(Frame::End) => return mailbox.post(Event::Ended(None)),
            Err(error) => return mailbox.post(Event::Ended(Some(error.to_string()))),
        }
    }
}
