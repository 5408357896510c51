//! A language server for configs and precision lists, over a pair of streams (LSP 3.17).
//!
//! This module implements the protocol and the features of editors; the checks themselves are in
//! `validate`.
//!
//! Invariant: every request gets an answer. All queues and stored texts are bounded. Documents that
//! are not files of packages are ignored.

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
use lost::UnknownTexts;
use mailbox::{Mailbox, ServerEvent};
use message::Incoming;
use server::Server;

/// Options of the server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Set if model files are opened.
    pub open_models: bool,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As the protocol requires: `shutdown`, then `exit`.
    Orderly,
    /// The client disconnected, or its input is unreadable.
    Broken,
}

/// Serves one client until the session ends. Returns an error if the output cannot be written.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
    options: &ServerOptions,
) -> io::Result<Ending> {
    let mailbox = Mailbox::default();
    let letters = mailbox.clone();
    // The thread is not joined, since it may block in a read forever.
    thread::spawn(move || read_all(input, &letters));
    Server::new(mailbox, output, options).run()
}

fn read_all(mut input: impl BufRead, mailbox: &Mailbox) {
    loop {
        match frame::read(&mut input) {
            Ok(Frame::Body(body)) => mailbox.queue_message(Incoming::read(&body), body.len()),
            Ok(Frame::TooLarge(size, head)) => {
                mailbox.queue_event(ServerEvent::TooLarge(size, UnknownTexts::with(&head)));
            }
            Ok(Frame::End) => return mailbox.queue_event(ServerEvent::Ended(None)),
            Err(error) => return mailbox.queue_event(ServerEvent::Ended(Some(error.to_string()))),
        }
    }
}
