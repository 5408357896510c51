//! The only place that writes to the terminal.

use std::io::{self, BufRead, BufWriter, IsTerminal, Read, Write};

use pkgtool_base::source::text::{defuse_line, escape};

/// Standard output, buffered.
pub(super) fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

/// Writes text, which may be JSON, to standard output. Control characters and invisible characters
/// are escaped.
pub(super) fn print(text: &str) -> io::Result<()> {
    print_raw(&escape(text))
}

/// Returns a value as an indented JSON document with a final newline. JSON cannot represent infinite
/// numbers, so they become null.
pub(super) fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    text.expect("strings, numbers and lists can be written") + "\n"
}

/// Writes text with terminal control sequences.
pub(super) fn print_raw(text: &str) -> io::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Clears the screen if standard output is a terminal.
pub(super) fn clear_screen() -> io::Result<()> {
    if io::stdout().is_terminal() {
        // Moves the cursor to the upper left corner and deletes everything after it.
        print_raw("\u{1b}[H\u{1b}[2J")?;
    }
    Ok(())
}

/// Prints an error to standard error.
pub(super) fn error(message: &str) {
    print_message("error", message);
}

/// Prints a note to standard error.
pub(super) fn note(message: &str) {
    print_message("note", message);
}

/// Maximum length of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Asks on standard error and reads a line from standard input. Returns `None` at the end of input.
pub(super) fn ask(question: &str) -> io::Result<Option<String>> {
    let mut errors = io::stderr().lock();
    errors.write_all(defuse_line(question).as_bytes())?;
    errors.flush()?;
    let mut answer = String::new();
    let read = io::stdin()
        .lock()
        .take(MAX_ANSWER_BYTES)
        .read_line(&mut answer)?;
    Ok((read > 0).then_some(answer))
}

/// Formats a name with the number of its occurrences.
pub(super) fn times((name, count): (&String, &u64)) -> String {
    match count {
        1 => name.clone(),
        _ => format!("{name} ×{count}"),
    }
}

/// Returns whether to colour standard output: it is a terminal and `NO_COLOR` is not set.
pub(super) fn stdout_has_color() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !no_color
}

/// Returns whether to write links: standard output is a terminal that shows them.
pub(super) fn stdout_has_links() -> bool {
    supports_hyperlinks::on(supports_hyperlinks::Stream::Stdout)
}

/// Returns whether standard output is a terminal, which would interpret control sequences.
pub(super) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the width of the terminal in columns, or 100 without a terminal.
pub(super) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0).max(40))
}

/// Prints a message with a label such as `error`, `warning` or `note` to standard error.
pub(super) fn print_message(kind: &str, message: &str) {
    // If standard error is closed, the message is dropped.
    let _ = writeln!(io::stderr().lock(), "{kind}: {}", defuse_line(message));
}
