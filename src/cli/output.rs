//! The only place that writes to the terminal.

use std::io::{self, BufRead, BufWriter, IsTerminal, Read, Write};

use crate::source::text::{defuse_line, escape};

/// Standard output, buffered.
pub(super) fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Writes a text, which may be JSON, to standard output. Hidden characters of files are written out.
pub(super) fn print(text: &str) -> io::Result<()> {
    print_raw(&escape(text))
}

/// Writes a text that steers the terminal.
pub(super) fn print_raw(text: &str) -> io::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Empties the screen, if standard output is a terminal.
pub(super) fn clear_screen() -> io::Result<()> {
    if io::stdout().is_terminal() {
        // To the upper left corner, everything from there on deleted.
        print_raw("\u{1b}[H\u{1b}[2J")?;
    }
    Ok(())
}

/// Tells the user what went wrong.
pub(super) fn error(message: &str) {
    tell("error", message);
}

/// Tells the user something beside the command's output.
pub(super) fn note(message: &str) {
    tell("note", message);
}

/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 4096;

/// Asks on standard error and reads a line from standard input; `None` where that has ended.
pub(super) fn ask(question: &str) -> io::Result<Option<String>> {
    let mut errors = io::stderr().lock();
    errors.write_all(defuse_line(question).as_bytes())?;
    errors.flush()?;
    let mut answer = String::new();
    let read = io::stdin().lock().take(MAX_ANSWER).read_line(&mut answer)?;
    Ok((read > 0).then_some(answer))
}

/// Whether standard output shows colours: it is a terminal and `NO_COLOR` is not set.
pub(super) fn stdout_has_color() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !no_color
}

/// Whether standard output is a terminal, which obeys what is written to it.
pub(super) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal, 100 where there is none.
pub(super) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0).max(40))
}

/// Tells the user something of this kind: `error`, `warning`, `note`.
pub(super) fn tell(kind: &str, message: &str) {
    // If standard error is closed there is no way left to tell anybody.
    let _ = writeln!(io::stderr().lock(), "{kind}: {}", defuse_line(message));
}
