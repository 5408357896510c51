//! The base protocol of LSP: messages with `Content-Length` headers and a JSON body (LSP 3.17,
//! "Base Protocol").
//!
//! Invariant: memory is allocated only for bytes that arrived, not for an announced length. A body
//! larger than [`MAX_BODY_BYTES`] is skipped.

use std::io::{self, BufRead, Read, Write};

use serde_json::Value;

/// Maximum size of a body, in bytes. Fits a document of 4 MiB in which every byte is escaped.
pub(super) const MAX_BODY_BYTES: u64 = 28 * 1024 * 1024;
/// Number of bytes that are kept of a skipped body. The method and the document are near its
/// beginning.
const MAX_KEPT_BYTES: u64 = 4096;
/// Maximum length of a header line, in bytes.
const MAX_LINE_BYTES: u64 = 4096;
/// Maximum number of header lines.
const MAX_HEADERS: usize = 32;

/// A frame read from the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The body of a message.
    Body(Vec<u8>),
    /// A skipped message: its size in bytes and the beginning of its body.
    TooLarge(u64, Vec<u8>),
    /// The client has closed the input.
    End,
}

/// Reads one frame. After an error, the beginning of the next frame is unknown.
pub(super) fn read(input: &mut impl BufRead) -> io::Result<Frame> {
    let mut length = None;
    for count in 0.. {
        if count > MAX_HEADERS {
            return Err(broken("a message has too many header lines"));
        }
        let Some(line) = header(input)? else {
            return match count {
                0 => Ok(Frame::End),
                _ => Err(broken("the input ends in a header")),
            };
        };
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(broken("a header line has no `:`"));
        };
        if name.trim().eq_ignore_ascii_case("Content-Length") {
            let value = value.trim().parse::<u64>();
            length = Some(value.map_err(|_| broken("invalid Content-Length: expected a number"))?);
        }
    }
    let length = length.ok_or_else(|| broken("a message has no Content-Length"))?;
    if length > MAX_BODY_BYTES {
        let mut head = Vec::new();
        input.take(MAX_KEPT_BYTES).read_to_end(&mut head)?;
        io::copy(&mut input.take(length - MAX_KEPT_BYTES), &mut io::sink())?;
        return Ok(Frame::TooLarge(length, head));
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    if (body.len() as u64) < length {
        return Err(broken("the input ends in a message"));
    }
    Ok(Frame::Body(body))
}

/// Writes one message and flushes the output.
pub(super) fn write(output: &mut dyn Write, message: &Value) -> io::Result<()> {
    let body = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    output.flush()
}

fn header(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    input.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(broken("a header line is too long or truncated"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line)
        .map(Some)
        .map_err(|_| broken("a header line is not ASCII"))
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Frame, MAX_BODY_BYTES, read};

    fn all(bytes: &[u8]) -> Vec<Result<Frame, String>> {
        let mut input = bytes;
        let mut frames = Vec::new();
        loop {
            let frame = read(&mut input).map_err(|error| error.to_string());
            let last = !matches!(frame, Ok(Frame::Body(_) | Frame::TooLarge(..)));
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    #[test]
    fn frames_follow_one_another() {
        let two = b"Content-Length: 2\r\n\r\n{}content-length:3\r\nContent-Type: x\r\n\r\n[1]";
        let body = |text: &str| Ok(Frame::Body(text.into()));
        assert_eq!(all(two), [body("{}"), body("[1]"), Ok(Frame::End)]);
    }

    #[test]
    fn what_is_no_frame_is_an_error_and_a_large_one_is_passed_over() {
        for bytes in [
            &b"Content-Length: 9\r\n\r\n{}"[..],
            b"Content-Length: -1\r\n\r\n",
            b"Content-Length: 99999999999999999999999\r\n\r\n",
            b"{}\r\n",
            b"\r\n\r\n",
            b"Content-Length: 2",
            b"\xff: 1\r\n\r\n",
        ] {
            assert!(matches!(all(bytes)[..], [Err(_)]), "{bytes:?}");
        }
        assert!(matches!(all(&[b'a'; 10_000])[..], [Err(_)]));
        assert!(matches!(all(&b"a: b\n".repeat(50))[..], [Err(_)]));
        let length = usize::try_from(MAX_BODY_BYTES).expect("fits") + 1;
        let mut large = format!("Content-Length: {length}\r\n\r\n").into_bytes();
        large.resize(large.len() + length, b' ');
        large.extend(b"Content-Length: 2\r\n\r\n{}");
        let frames = all(&large);
        assert_eq!(
            frames[0],
            Ok(Frame::TooLarge(MAX_BODY_BYTES + 1, vec![b' '; 4096]))
        );
        assert_eq!(frames[1], Ok(Frame::Body(b"{}".into())));
        // The announced length is larger than the input.
        assert!(matches!(
            all(b"Content-Length: 20000000\r\n\r\n")[..],
            [Err(_)]
        ));
    }
}
