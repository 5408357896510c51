//! Compares the bytes of two files, and computes the SHA-256 of a file.
//!
//! Invariant: files are read as streams, so memory use does not depend on their size.

use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::file_source::open;
use super::text::hexadecimal;

/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Returns whether both files have the same bytes; reading stops at the first difference.
pub fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (open(one)?, open(other)?);
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let count = fill(&mut one, &mut left)?;
        if count != fill(&mut other, &mut right)? || left[..count] != right[..count] {
            return Ok(false);
        }
        if count < CHUNK_BYTES {
            return Ok(true);
        }
    }
}

/// Fills the buffer as far as the file goes; returns the number of bytes.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns the SHA-256 of a file's bytes, in lower-case hexadecimal digits.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = fill(&mut file, &mut buffer)?;
        hash.update(&buffer[..count]);
        if count < CHUNK_BYTES {
            return Ok(hexadecimal(&hash.finalize()));
        }
    }
}
