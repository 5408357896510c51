//! A file by its path, for random access and from its beginning.
//!
//! Invariant: everything below `cli` that wants a file's bytes gets them here, so that a file whose
//! bytes are elsewhere is read as any other. A file on disk costs one look at a counter more.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::ReadAt;
use super::elsewhere::{self, Far};

/// A regular file, opened once, its length taken at opening.
#[derive(Debug)]
pub struct FileSource {
    bytes: Bytes,
    len: u64,
}

enum Bytes {
    Disk(File),
    Far(Far),
}

/// A file's bytes from the first to the last.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
    /// How many were read; a file on disk keeps that itself.
    at: u64,
}

impl FileSource {
    /// Opens `path`. Anything but a regular file (a pipe, a device, a directory) is refused before
    /// it is opened, so that nothing here can block.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if let Some(far) = elsewhere::open(path) {
            let far = far?;
            return Ok(Self {
                len: far.len(),
                bytes: Bytes::Far(far),
            });
        }
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self {
            bytes: Bytes::Disk(file),
            len,
        })
    }
}

/// Opens the file at `path` for reading from its beginning.
pub fn open(path: &Path) -> io::Result<Reader> {
    let bytes = match elsewhere::open(path) {
        Some(far) => Bytes::Far(far?),
        None => Bytes::Disk(File::open(path)?),
    };
    Ok(Reader { bytes, at: 0 })
}

impl Reader {
    /// The file's length in bytes.
    pub fn size(&self) -> io::Result<u64> {
        match &self.bytes {
            Bytes::Disk(file) => Ok(file.metadata()?.len()),
            Bytes::Far(far) => Ok(far.len()),
        }
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let far = match &mut self.bytes {
            Bytes::Disk(file) => return file.read(buffer),
            Bytes::Far(far) => far,
        };
        let left = far.len().saturating_sub(self.at);
        let count = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        far.read_exact_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(file) => file.fmt(f),
            Self::Far(far) => write!(f, "{} bytes elsewhere", far.len()),
        }
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match &self.bytes {
            Bytes::Disk(file) => read_exact_at(file, offset, buffer),
            Bytes::Far(far) => far.read_exact_at(offset, buffer),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while done < buffer.len() {
        match file.seek_read(&mut buffer[done..], offset + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}
