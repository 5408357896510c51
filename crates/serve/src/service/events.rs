//! Splits a stream of server-sent events into whole events, and reads their data.
//!
//! Invariant: bytes leave unchanged and in order, as soon as their event is complete. Only an event
//! that exceeds the buffer leaves in pieces.

use bytes::{Bytes, BytesMut};

/// Maximum number of bytes that are buffered until an event is complete.
const MAX_BUFFERED_BYTES: usize = 1 << 20;

/// The last event of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A comment that keeps an idle connection alive.
pub(crate) const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// Buffers incomplete events.
#[derive(Debug, Default)]
pub(crate) struct EventFramer {
    held: BytesMut,
    /// The last output ended within an event.
    is_within_event: bool,
}

impl EventFramer {
    /// Adds bytes, and returns those that can leave now.
    pub(crate) fn push(&mut self, mut chunk: Bytes) -> Option<Bytes> {
        if self.held.is_empty() {
            // Usually a chunk is one or more whole events, and nothing is copied.
            let end = end_of_last(&chunk, 0).unwrap_or(0);
            self.held.extend_from_slice(&chunk[end..]);
            chunk.truncate(end);
            if end > 0 {
                self.is_within_event = false;
                return Some(chunk);
            }
        } else {
            let looked_at = self.held.len();
            self.held.extend_from_slice(&chunk);
            if let Some(end) = end_of_last(&self.held, looked_at) {
                self.is_within_event = false;
                return Some(self.held.split_to(end).freeze());
            }
        }
        if self.held.len() <= MAX_BUFFERED_BYTES {
            return None;
        }
        self.is_within_event = true;
        Some(self.held.split().freeze())
    }

    /// Returns the remaining bytes at the end of a stream.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.is_within_event |= !self.held.is_empty();
        self.held.split().freeze()
    }

    /// Returns `true` if the output so far ends within an event. Then only the rest of that event
    /// may follow.
    pub(crate) fn is_amid(&self) -> bool {
        self.is_within_event
    }
}

/// Returns the end of the last whole event, after its empty line. The first `looked_at` bytes were
/// searched before.
fn end_of_last(bytes: &[u8], looked_at: usize) -> Option<usize> {
    // An empty line may have begun in the bytes that were searched before.
    let from = looked_at.saturating_sub(3);
    let tail = &bytes[from..];
    let ends: [&[u8]; 3] = [b"\n\n", b"\n\r\n", b"\r\r"];
    let found = ends.into_iter().filter_map(|end| {
        let at = tail.windows(end.len()).rposition(|window| window == end)?;
        Some(from + at + end.len())
    });
    found.max()
}

/// Returns the data lines of events, in order.
pub(crate) fn data(events: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = events.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter_map(|line| {
        let data = line.strip_prefix(b"data:")?;
        Some(data.strip_prefix(b" ").unwrap_or(data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output for a text that arrives in pieces of `size` bytes.
    fn passed(text: &str, size: usize) -> (Vec<String>, String) {
        let mut framer = EventFramer::default();
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
        let mut framer = EventFramer::default();
        let piece = Bytes::from(vec![b'x'; MAX_BUFFERED_BYTES / 2 + 1]);
        assert_eq!(framer.push(piece.clone()), None);
        assert!(!framer.is_amid());
        let left = framer.push(piece).expect("too much is held");
        assert!(left.len() > MAX_BUFFERED_BYTES && framer.is_amid());
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
