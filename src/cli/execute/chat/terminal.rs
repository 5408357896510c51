//! Input and output of a chat in a terminal: reads typed lines, and prints answers as they are
//! generated.
//!
//! Invariant: text from a model cannot control the terminal. Only answers go to standard output.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use crate::cli::output;
use pkgtool_base::source::text::defuse;
use pkgtool_text::answer::Piece;
use pkgtool_text::generation::{FinishReason, Generated, GenerationEvent};

/// Prompt before a typed line.
const PROMPT: &str = "> ";

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The source of the user's messages.
pub(super) enum MessageSource<'a> {
    /// Messages from the command line.
    Given(std::slice::Iter<'a, String>),
    /// Lines from standard input.
    Typed { is_terminal: bool },
}

/// An answer that is being printed.
pub(super) struct AnswerPrinter {
    said: String,
    /// Set while reasoning is being printed, which happens only on a terminal.
    is_thinking: bool,
    has_color: bool,
    fault: Option<io::Error>,
}

impl<'a> MessageSource<'a> {
    pub(super) fn new(given: &'a [String]) -> Self {
        if given.is_empty() {
            Self::Typed {
                is_terminal: io::stdin().is_terminal(),
            }
        } else {
            Self::Given(given.iter())
        }
    }

    /// Returns whether the user can send another message after an error.
    pub(super) fn is_interactive(&self) -> bool {
        matches!(self, Self::Typed { is_terminal: true })
    }

    /// Returns the next message, or `None` at the end. Empty lines are skipped.
    pub(super) fn next_message(&mut self) -> io::Result<Option<String>> {
        let is_terminal = match self {
            Self::Given(given) => return Ok(given.next().cloned()),
            Self::Typed { is_terminal } => *is_terminal,
        };
        loop {
            if is_terminal {
                output::print_raw(PROMPT)?;
            }
            let mut line = String::new();
            let input = io::stdin().lock();
            let read =
                io::BufRead::read_line(&mut io::Read::take(input, MAX_LINE_BYTES), &mut line)?;
            if read == 0 {
                return Ok(None);
            }
            let line = line.trim();
            if !line.is_empty() {
                return Ok(Some(line.to_owned()));
            }
        }
    }
}

impl AnswerPrinter {
    pub(super) fn new() -> Self {
        Self {
            said: String::new(),
            is_thinking: false,
            has_color: output::stdout_has_color(),
            fault: None,
        }
    }

    /// Prints an event of the generation. Stops the generation if the output cannot be written.
    pub(super) fn print_event(&mut self, event: GenerationEvent) -> ControlFlow<()> {
        let shown = match event {
            GenerationEvent::Piece { piece, .. } => self.piece(piece),
            GenerationEvent::Token { .. } | GenerationEvent::Finish { .. } => Ok(()),
        };
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.fault = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the answer and returns its text.
    pub(super) fn end(mut self) -> io::Result<String> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.set_dimmed(false)?;
        output::print_raw("\n")?;
        Ok(self.said)
    }

    fn piece(&mut self, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Content(text) => {
                self.set_dimmed(false)?;
                self.said.push_str(&text);
                show(&text)
            }
            Piece::Reasoning(text) if self.has_color => {
                self.set_dimmed(true)?;
                show(&text)
            }
            // The request offers no tools, so the model cannot call any.
            Piece::Reasoning(_) | Piece::Call { .. } | Piece::Arguments { .. } => Ok(()),
        }
    }

    /// Switches dimmed output on or off.
    fn set_dimmed(&mut self, thinks: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.is_thinking, thinks) == thinks {
            return Ok(());
        }
        output::print_raw(if thinks { "\u{1b}[2m" } else { "\u{1b}[0m\n" })
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut out = output::stdout();
    out.write_all(defuse(text).as_bytes())?;
    out.flush()
}

/// Prints speed and token counts to standard error.
pub(super) fn print_usage(generated: &Generated) {
    let (usage, timings) = (&generated.usage, &generated.timings);
    let speed = usage
        .tokens_per_second(timings)
        .map(|speed| format!(", {speed:.1} tokens/s"));
    let cached = match usage.cached_tokens {
        0 => String::new(),
        cached => format!(" ({cached} cached)"),
    };
    let is_cut = generated
        .choices
        .iter()
        .any(|said| said.finish == Some(FinishReason::Length));
    let cut = if is_cut {
        "; the answer was cut off"
    } else {
        ""
    };
    output::note(&format!(
        "{} tokens{}; prompt of {}{cached} in {:.1} ms{cut}",
        usage.completion_tokens,
        speed.unwrap_or_default(),
        usage.prompt_tokens,
        timings.prefill.as_secs_f64() * 1e3,
    ));
}
