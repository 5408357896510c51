//! Follows the requests in the bytes of an HTTP/1 connection, to detect a request that declares its
//! length twice.
//!
//! Such a request allows request smuggling, and the HTTP library accepts it. Other malformed
//! requests are left to the library.
//!
//! Invariant: only the current head is kept, up to [`MAX_HEAD_BYTES`].

/// Maximum size of a head that is kept, in bytes. The library rejects longer ones.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// Follows the requests of a connection.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    part: RequestPart,
    /// The unfinished head or line.
    line: Vec<u8>,
}

/// The part of a request that comes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RequestPart {
    /// The head of a request.
    #[default]
    Head,
    /// Remaining bytes of a body.
    Body(u64),
    /// The size of a chunk.
    ChunkSize,
    /// Remaining bytes of a chunk, with its line break.
    Chunk(u64),
    /// Fields after the last chunk.
    Trailers,
    /// The position is lost; the rest is ignored.
    Lost,
}

/// The lengths that a head declares for its body.
#[derive(Debug, Default, PartialEq, Eq)]
struct DeclaredLengths {
    length: Option<u64>,
    has_length: bool,
    has_coding: bool,
}

impl RequestFraming {
    /// Processes bytes. Returns the position after the first head that has both `Content-Length`
    /// and `Transfer-Encoding`.
    pub(super) fn ambiguous_head(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.part {
                RequestPart::Lost => return None,
                RequestPart::Body(left) | RequestPart::Chunk(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    at += taken;
                    self.skipped(left - taken as u64);
                }
                RequestPart::Head | RequestPart::ChunkSize | RequestPart::Trailers => {
                    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                        self.keep(rest);
                        return None;
                    };
                    at += end + 1;
                    self.keep(&rest[..=end]);
                    if self.line_ended() {
                        return Some(at);
                    }
                }
            }
        }
        None
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_HEAD_BYTES {
            self.part = RequestPart::Lost;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    /// Processes the end of a piece of a body or chunk with `left` bytes left.
    fn skipped(&mut self, left: u64) {
        self.part = match (self.part, left) {
            (RequestPart::Body(_), 0) => RequestPart::Head,
            (RequestPart::Body(_), left) => RequestPart::Body(left),
            (_, 0) => RequestPart::ChunkSize,
            (_, left) => RequestPart::Chunk(left),
        };
    }

    /// Processes the end of a line; returns `true` if it ended a head with two lengths.
    fn line_ended(&mut self) -> bool {
        let is_blank = |line: &[u8]| line.ends_with(b"\n\n") || line.ends_with(b"\n\r\n");
        match self.part {
            RequestPart::Head => {
                // Empty lines before a request are skipped.
                if self.line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                    self.line.clear();
                    return false;
                }
                if !is_blank(&self.line) {
                    return false;
                }
                let lengths = DeclaredLengths::of(&self.line);
                self.line.clear();
                self.part = lengths.next_part();
                lengths.has_length && lengths.has_coding
            }
            RequestPart::ChunkSize => {
                let size = chunk_size(&self.line);
                self.line.clear();
                self.part = match size {
                    Some(0) => RequestPart::Trailers,
                    Some(size) => RequestPart::Chunk(size.saturating_add(2)),
                    None => RequestPart::Lost,
                };
                false
            }
            RequestPart::Trailers => {
                let is_end = self.line == b"\r\n" || self.line == b"\n" || is_blank(&self.line);
                if is_end {
                    self.line.clear();
                    self.part = RequestPart::Head;
                }
                false
            }
            RequestPart::Body(_) | RequestPart::Chunk(_) | RequestPart::Lost => false,
        }
    }
}

impl DeclaredLengths {
    fn of(head: &[u8]) -> Self {
        let mut lengths = Self::default();
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let name = line[..colon].trim_ascii();
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                lengths.has_coding = true;
            } else if name.eq_ignore_ascii_case(b"content-length") {
                lengths.has_length = true;
                let value = std::str::from_utf8(line[colon + 1..].trim_ascii());
                lengths.length = value.ok().and_then(|value| value.parse().ok());
            }
        }
        lengths
    }

    /// Returns the part that follows the head.
    fn next_part(&self) -> RequestPart {
        match (self.has_coding, self.has_length, self.length) {
            (true, _, _) => RequestPart::ChunkSize,
            (false, true, Some(0)) | (false, false, _) => RequestPart::Head,
            (false, true, Some(length)) => RequestPart::Body(length),
            (false, true, None) => RequestPart::Lost,
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let digits = text.split(';').next()?.trim();
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWICE: &str =
        "POST / HTTP/1.1\r\ncontent-length: 3\r\nTransfer-Encoding : chunked\r\n\r\n";

    #[test]
    fn a_head_with_two_lengths_is_found_wherever_it_stands() {
        for before in [
            "",
            "\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 22\r\n\r\nPOST / HTTP/1.1\r\n\r\nabc",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5;x\r\nabcde\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\na\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\nx: y\r\n\r\n",
        ] {
            let text = format!("{before}{TWICE}3\r\nabc\r\n0\r\n\r\n");
            let end = before.len() + TWICE.len();
            let mut whole = RequestFraming::default();
            assert_eq!(whole.ambiguous_head(text.as_bytes()), Some(end), "{text}");
            let mut pieces = RequestFraming::default();
            let found = text
                .as_bytes()
                .iter()
                .position(|byte| pieces.ambiguous_head(&[*byte]).is_some());
            assert_eq!(found, Some(end - 1), "{text}");
        }
    }

    #[test]
    fn other_requests_pass() {
        for text in [
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(3),
            format!(
                "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{TWICE}",
                TWICE.len()
            ),
            format!(
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{TWICE}\r\n0\r\n\r\n",
                TWICE.len()
            ),
            "POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n".to_owned() + TWICE,
            "x".repeat(2 << 20),
        ] {
            assert_eq!(
                RequestFraming::default().ambiguous_head(text.as_bytes()),
                None
            );
        }
    }
}
