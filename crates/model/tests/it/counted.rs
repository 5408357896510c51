//! Counts the bytes that a reader reads.

use std::cell::Cell;
use std::io;

use pkgtool_base::source::ReadAt;

/// A byte source that counts the bytes read from it.
pub(crate) struct Counted<'a, S: ?Sized> {
    source: &'a S,
    read: Cell<u64>,
}

impl<'a, S: ?Sized> Counted<'a, S> {
    pub(crate) fn new(source: &'a S) -> Self {
        Self {
            source,
            read: Cell::new(0),
        }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }
}

impl<S: ReadAt + ?Sized> ReadAt for Counted<'_, S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + buffer.len() as u64);
        self.source.read_exact_at(offset, buffer)
    }
}
