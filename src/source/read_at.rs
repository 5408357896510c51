//! Bounded random access to bytes: a file, ranges of one on a server, a buffer.
//!
//! Invariant: a read either fills the whole buffer or fails; nothing past `len` is ever returned.

use std::io;

/// Bytes that can be read at any offset.
pub trait ReadAt {
    /// Total number of bytes.
    fn len(&self) -> u64;

    /// Fills `buffer` from `offset`; an end of file on the way is an
    /// [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start
            .checked_add(buffer.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }
}
