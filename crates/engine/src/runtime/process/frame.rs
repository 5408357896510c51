//! Frames: the wire format of messages that go through a channel.
//!
//! A frame begins with the length of a JSON head (u32, little endian) and the head. The protocol
//! defines what follows. Both ends are the same binary, so the format has no version. Invariant: a
//! length is checked against a limit before memory is allocated for it.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum size of a head, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 << 20;

/// Maximum size of heads and parts that are copied into one piece, in bytes. Larger parts are sent
/// without copying.
const MAX_COPIED_BYTES: usize = 8 << 10;

/// Size of the length before a head, in bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Encodes a head with its length.
fn framed(head: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, head)?;
    let length =
        u32::try_from(frame.len() - LENGTH_BYTES).map_err(|_| io::ErrorKind::InvalidData)?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Sends a head in one piece.
pub fn send(stream: &mut impl Write, head: &impl Serialize) -> io::Result<()> {
    send_with(stream, head, [])
}

/// Sends a head and the bytes that it announces.
pub fn send_with<'p>(
    stream: &mut (impl Write + ?Sized),
    head: &impl Serialize,
    parts: impl IntoIterator<Item = &'p [u8]>,
) -> io::Result<()> {
    let mut piece = framed(head)?;
    for part in parts {
        if piece.len() + part.len() > MAX_COPIED_BYTES {
            stream.write_all(&piece)?;
            piece.clear();
        }
        if part.len() > MAX_COPIED_BYTES {
            stream.write_all(part)?;
        } else {
            piece.extend_from_slice(part);
        }
    }
    stream.write_all(&piece)?;
    stream.flush()
}

/// Receives a head.
pub fn receive<T: DeserializeOwned>(stream: &mut (impl Read + ?Sized)) -> io::Result<T> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length));
    let length = length.map_err(|_| io::ErrorKind::InvalidData)?;
    if length > MAX_HEAD_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_way() {
        let mut bytes = Vec::new();
        send(&mut bytes, &["a", "ü"]).expect("memory can be written");
        let mut stream = &bytes[..];
        let received: Vec<String> = receive(&mut stream).expect("it is whole");
        assert_eq!(received, ["a", "ü"]);
        assert!(stream.is_empty());
    }

    #[test]
    fn a_lying_length_allocates_nothing() {
        let frame = u32::MAX.to_le_bytes();
        assert!(receive::<String>(&mut &frame[..]).is_err());
    }
}
