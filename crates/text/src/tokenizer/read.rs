//! Reads tokenizer files within a size limit.

use std::io::{self, Read};
use std::path::Path;

use super::TokenizerError;
use pkgtool_base::source::{self, lfs::Pointer};

/// Reads a file of at most `limit` bytes.
pub(super) fn bounded(path: &Path, limit: u64) -> Result<Vec<u8>, TokenizerError> {
    let unreadable = |error: io::Error| TokenizerError::Unreadable {
        file: path.to_owned(),
        reason: error.to_string(),
    };
    let file = source::open(path).map_err(unreadable)?;
    let bytes = file.size().map_err(unreadable)?;
    let too_large = |bytes| TokenizerError::TooLarge {
        file: path.to_owned(),
        bytes,
        limit,
    };
    if bytes > limit {
        return Err(too_large(bytes));
    }
    let mut content = Vec::new();
    // The limit also applies to pipes and growing files, whose reported size may be smaller.
    let mut file = file.take(limit + 1);
    file.read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > limit {
        return Err(too_large(content.len() as u64));
    }
    if Pointer::parse(&content).is_some() {
        return Err(TokenizerError::LfsPointer {
            file: path.to_owned(),
        });
    }
    Ok(content)
}

/// Creates the error of a file with invalid content.
pub(super) fn broken_file(path: &Path, reason: String) -> TokenizerError {
    TokenizerError::Broken {
        file: path.to_owned(),
        reason,
    }
}
