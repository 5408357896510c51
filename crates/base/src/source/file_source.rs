//! Opens files by path, for random access or for reading from the beginning.
//!
//! Invariant: all code below `cli` reads files through this module, so that remote files (see
//! `elsewhere`) are read like any others. For a file on disk, this costs only a look at a counter.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::elsewhere::{self, RemoteBytes};
use super::{ReadAt, opener};

/// A regular file, opened once. Its length is determined when it is opened.
#[derive(Debug)]
pub struct FileSource {
    bytes: Bytes,
    len: u64,
}

enum Bytes {
    Disk(File),
    Far(RemoteBytes),
}

/// A reader of a file's bytes from beginning to end.
#[derive(Debug)]
pub struct FileReader {
    bytes: Bytes,
    /// Number of bytes read so far; a file on disk tracks that itself.
    at: u64,
}

impl FileSource {
    /// Opens `path`. Rejects everything except regular files (pipes, devices, folders), and links
    /// that lead out of the package.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = open(path)?;
        Ok(Self {
            len: opened.size()?,
            bytes: opened.bytes,
        })
    }
}

/// Opens the file at `path` for reading from the beginning. Rejects links that lead out of the
/// package. Never blocks on a pipe or a device.
pub fn open(path: &Path) -> io::Result<FileReader> {
    let bytes = match elsewhere::open(path) {
        Some(far) => Bytes::Far(far?),
        None => Bytes::Disk(opener::open(path)?),
    };
    Ok(FileReader { bytes, at: 0 })
}

/// Reads the regular file at `path`, of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    file.size()?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("too large: more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Reads the regular file at `path` as text, of at most `most` bytes.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    String::from_utf8(read(path, most)?).map_err(invalid)
}

impl FileReader {
    /// Returns the file's length in bytes; fails if it is not a regular file.
    pub fn size(&self) -> io::Result<u64> {
        match &self.bytes {
            Bytes::Disk(file) => {
                let metadata = file.metadata()?;
                let size = metadata.is_file().then_some(metadata.len());
                size.ok_or_else(opener::not_regular)
            }
            Bytes::Far(far) => Ok(far.len()),
        }
    }
}

impl Read for FileReader {
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
            Self::Far(far) => write!(f, "{} remote bytes", far.len()),
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
