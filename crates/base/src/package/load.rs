//! Loads a JSON file of a package within size limits, and records why loading failed instead of
//! returning early.
//!
//! Invariant: at most [`MAX_SIZE`] bytes are read, and only from regular files.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::source::json::SyntaxError;
use crate::source::{self, Document, FileReader, Span, lfs};

/// Maximum size of a config or precision list, in bytes. Real ones have some kilobytes.
pub const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// A file's text and its parsed document.
#[derive(Debug)]
pub struct LoadedFile {
    /// The valid UTF-8 part of the text; empty if the file could not be read.
    pub text: String,
    /// The parsed document, or the reason why it is missing.
    pub document: Result<Document, LoadFault>,
}

/// The reason why a file could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadFault {
    /// The file cannot be read; holds the reason.
    Unreadable(String),
    /// The file is larger than [`MAX_SIZE`]; holds its size in bytes, as far as known.
    TooLarge(u64),
    /// The file is empty or contains only white space.
    Empty,
    /// The file is a Git LFS pointer, not the real file.
    LfsPointer(lfs::Pointer),
    /// The file is invalid JSON.
    Syntax(SyntaxError),
}

/// Completes a sentence after the file's name: `it is empty`.
impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(reason) => write!(f, "it cannot be read: {reason}"),
            Self::TooLarge(size) => write!(f, "it has {size} bytes, the limit is {MAX_SIZE}"),
            Self::Empty => f.write_str("it is empty"),
            Self::LfsPointer(_) => f.write_str("it is a Git LFS pointer"),
            Self::Syntax(error) => write!(f, "it is invalid JSON: {}", error.message),
        }
    }
}

impl LoadedFile {
    /// Reads and parses the file at `path`.
    pub fn read(path: &Path) -> Self {
        Self::read_sized(path, None)
    }

    /// Like [`Self::read`], for a file that may already be known to be regular and of this size in
    /// bytes.
    pub fn read_sized(path: &Path, size: Option<u64>) -> Self {
        match read_bounded(path, size) {
            Ok(bytes) => Self::from_bytes(bytes),
            Err(fault) => Self {
                text: String::new(),
                document: Err(fault),
            },
        }
    }

    /// Parses the bytes of a file.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        if let Some(pointer) = lfs::Pointer::parse(&bytes) {
            return Self {
                text: String::from_utf8_lossy(&bytes).into_owned(),
                document: Err(LoadFault::LfsPointer(pointer)),
            };
        }
        if is_utf16(&bytes) {
            return Self {
                text: String::new(),
                document: Err(LoadFault::Syntax(SyntaxError {
                    message: "The file is UTF-16 without a byte order mark; JSON is UTF-8"
                        .to_owned(),
                    span: Span::new(0, 0),
                    help: "save it as UTF-8".into(),
                })),
            };
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Self::from_broken_utf8(&error),
        };
        let document = if text.trim_ascii().is_empty() {
            Err(LoadFault::Empty)
        } else if text.starts_with('\u{feff}') {
            Err(LoadFault::Syntax(SyntaxError {
                message: "The file begins with a byte order mark".to_owned(),
                span: Span::new(0, '\u{feff}'.len_utf8()),
                help: "save it as UTF-8 without a byte order mark".into(),
            }))
        } else {
            Document::parse(&text).map_err(LoadFault::Syntax)
        };
        Self { text, document }
    }

    fn from_broken_utf8(error: &std::string::FromUtf8Error) -> Self {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let (message, help) = match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => (
                "The file is UTF-16; JSON is UTF-8".to_owned(),
                "save it as UTF-8",
            ),
            [0x1f, 0x8b, ..] => ("The file is packed by gzip".to_owned(), "unpack it"),
            [b'P', b'K', 3, 4, ..] => ("The file is a ZIP archive".to_owned(), "unpack it"),
            _ => {
                let message = format!("Byte 0x{:02x} at offset {at} is not UTF-8", bytes[at]);
                (message, "save it as UTF-8")
            }
        };
        Self {
            text: String::from_utf8_lossy(&bytes[..at]).into_owned(),
            document: Err(LoadFault::Syntax(SyntaxError {
                message,
                span: Span::new(at, at),
                help: help.into(),
            })),
        }
    }
}

/// Returns whether every other byte at the beginning is 0, as in Latin text in UTF-16.
fn is_utf16(bytes: &[u8]) -> bool {
    const HEAD: usize = 16;
    let head = bytes.get(..HEAD).unwrap_or(&bytes[..bytes.len() / 2 * 2]);
    let is = |first: bool| {
        let mut pairs = head.chunks_exact(2);
        pairs.all(|pair| (pair[0] == 0) == first && (pair[1] == 0) != first)
    };
    head.len() >= 4 && (is(true) || is(false))
}

fn unreadable(error: &io::Error) -> LoadFault {
    LoadFault::Unreadable(error.to_string())
}

/// Opens a file and returns it with its size. It must be a regular file unless `size` is known.
fn open(path: &Path, size: Option<u64>) -> Result<(FileReader, u64), LoadFault> {
    let file = source::open(path).map_err(|error| match fs::read_link(path) {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => LoadFault::Unreadable(format!(
            "it is a symbolic link to {}, which does not exist",
            target.display()
        )),
        _ => unreadable(&error),
    })?;
    let size = size.map_or_else(|| file.size(), Ok);
    let size = size.map_err(|error| unreadable(&error))?;
    Ok((file, size))
}

fn read_bounded(path: &Path, size: Option<u64>) -> Result<Vec<u8>, LoadFault> {
    let (mut file, size) = open(path, size)?;
    if size > MAX_SIZE {
        return Err(LoadFault::TooLarge(size));
    }
    // The size is at most MAX_SIZE. One extra byte detects the end of the file without growing the
    // buffer.
    let capacity = usize::try_from(size + 1).unwrap_or_default();
    let mut bytes = vec![0; capacity];
    let first = file.read(&mut bytes).map_err(|error| unreadable(&error))?;
    bytes.truncate(first);
    // The reported size may be wrong. Then the rest is read, up to one byte more than allowed.
    if first as u64 != size {
        let mut rest = file.take(MAX_SIZE + 1 - first as u64);
        rest.read_to_end(&mut bytes)
            .map_err(|error| unreadable(&error))?;
    }
    if bytes.len() as u64 > MAX_SIZE {
        return Err(LoadFault::TooLarge(bytes.len() as u64));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(bytes: &[u8]) -> LoadFault {
        LoadedFile::from_bytes(bytes.to_vec())
            .document
            .expect_err("broken")
    }

    #[test]
    fn faults_say_what_the_file_is() {
        assert_eq!(fault(b""), LoadFault::Empty);
        assert_eq!(fault(b" \n\t"), LoadFault::Empty);
        let LoadFault::Syntax(error) = fault(b"\xff\xfe{\0}\0") else {
            panic!("not a syntax fault");
        };
        assert!(error.message.contains("UTF-16"));
        for text in [&b"{\0\"\0a\0"[..], b"\0{\0\"\0a\0\""] {
            let LoadFault::Syntax(error) = fault(text) else {
                panic!("not a syntax fault");
            };
            assert!(error.message.contains("UTF-16 without"), "{error:?}");
        }
        for (packed, what) in [
            (&b"\x1f\x8b\x08\0\0\0\0\0"[..], "gzip"),
            (b"PK\x03\x04\x14\0\xff", "ZIP"),
        ] {
            let LoadFault::Syntax(error) = fault(packed) else {
                panic!("not a syntax fault");
            };
            assert!(error.message.contains(what), "{error:?}");
            assert_eq!(error.help, "unpack it");
        }
        let LoadFault::Syntax(error) = fault(b"{\"a\": \"\xe9\"}") else {
            panic!("not a syntax fault");
        };
        assert_eq!(error.span, Span::new(7, 7));
        assert!(matches!(
            fault(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
            LoadFault::LfsPointer(_)
        ));
    }
}
