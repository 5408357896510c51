//! Server-sent events as they pass: where one ends, and what is in their data.
//!
//! Invariant: bytes leave in their order and unchanged, as soon as their event is whole; only an event that
//! is too long to be held leaves in pieces.

use bytes::{Bytes, BytesMut};

/// Most bytes of an event that are held until it is whole.
const MOST_HELD: usize = 1 << 20;

/// The last event of a stream.
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// What keeps a connection alive while nothing comes.
pub(super) const COMMENT: &str = ": keep-alive\n\n";

/// Tells whole events from what is still to come of one.
#[derive(Debug, Default)]
pub(super) struct Framer {
    held: BytesMut,
    /// What left last was no whole event.
    is_amid: bool,
}

impl Framer {
    /// More bytes; what of all of them leaves now.
    pub(super) fn push(&mut self, mut chunk: Bytes) -> Option<Bytes> {
        if self.held.is_empty() {
            // Nearly always a chunk is one event, or several: nothing is copied.
            let end = end_of_last(&chunk, 0).unwrap_or(0);
            self.held.extend_from_slice(&chunk[end..]);
            chunk.truncate(end);
            if end > 0 {
                self.is_amid = false;
                return Some(chunk);
            }
        } else {
            let looked_at = self.held.len();
            self.held.extend_from_slice(&chunk);
            if let Some(end) = end_of_last(&self.held, looked_at) {
                self.is_amid = false;
                return Some(self.held.split_to(end).freeze());
            }
        }
        if self.held.len() <= MOST_HELD {
            return None;
        }
        self.is_amid = true;
        Some(self.held.split().freeze())
    }

    /// What is left at the end of a stream.
    pub(super) fn finish(&mut self) -> Bytes {
        self.is_amid |= !self.held.is_empty();
        self.held.split().freeze()
    }

    /// Whether what left so far ends within an event: then nothing else may be said.
    pub(super) fn is_amid(&self) -> bool {
        self.is_amid
    }
}

/// Where the last whole event ends: after the last empty line. Of the bytes, so many were looked at before.
fn end_of_last(bytes: &[u8], looked_at: usize) -> Option<usize> {
    // An empty line may have begun in what was looked at.
    let from = looked_at.saturating_sub(3);
    let tail = &bytes[from..];
    let ends: [&[u8]; 3] = [b"\n\n", b"\n\r\n", b"\r\r"];
    let found = ends.into_iter().filter_map(|end| {
        let at = tail.windows(end.len()).rposition(|window| window == end)?;
        Some(from + at + end.len())
    });
    found.max()
}

/// The data lines of events, in their order.
pub(super) fn data(events: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = events.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter_map(|line| {
        let data = line.strip_prefix(b"data:")?;
        Some(data.strip_prefix(b" ").unwrap_or(data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leaves of a text that comes in pieces of so many bytes.
    fn passed(text: &str, size: usize) -> (Vec<String>, String) {
        let mut framer = Framer::default();
        let pieces = text.as_bytes().chunks(size);
        let out = pieces.filter_map(|piece| framer.push(Bytes::copy_from_slice(piece)));
        let text = |bytes: Bytes| String::from_utf8(bytes.into()).expect("it is text");
        let out = out.map(text).collect();
        (out, text(framer.finish()))
    }

    #[test]
    fn whole_events_leave_whatever_they_come_in() {
        for end in ["\n", "\r\n", "\r"] {
            let events =
                format!("data: a{end}{end}: comment{end}{end}event: x{end}data: ü{end}{end}");
            let whole = format!("{events}data: half");
            for size in 1..=whole.len() {
                let (out, rest) = passed(&whole, size);
                assert_eq!(out.concat() + &rest, whole);
                assert_eq!(out.concat().trim_end(), events.trim_end(), "{size} {end:?}");
                for part in &out {
                    let is_end = |end: &str| part.ends_with(end);
                    assert!(
                        is_end("\n\n") || is_end("\n\r\n") || is_end("\r\r"),
                        "{part:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_not_held() {
        let mut framer = Framer::default();
        let piece = Bytes::from(vec![b'x'; MOST_HELD / 2 + 1]);
        assert_eq!(framer.push(piece.clone()), None);
        assert!(!framer.is_amid());
        let left = framer.push(piece).expect("too much is held");
        assert!(left.len() > MOST_HELD && framer.is_amid());
        let end = framer.push(Bytes::from_static(b"\n\ndata"));
        assert_eq!(end.as_deref(), Some(&b"\n\n"[..]));
        assert!(!framer.is_amid());
        assert_eq!(framer.finish(), "data");
        assert!(framer.is_amid());
    }

    #[test]
    fn data_is_found_in_events() {
        let events = b": c\ndata: a\ndata:b\r\n\r\nevent: data\ndata:  c\n\n";
        let found: Vec<_> = data(events).collect();
        assert_eq!(found, [&b"a"[..], b"b", b" c"]);
    }
}
