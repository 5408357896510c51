//! Placement of the bytes of a body or an answer: short ones in the task's row, longer ones in the
//! `content` table, the longest in the blob store.
//!
//! Invariant: a content belongs to one task, as its body until the task ends and as its answer
//! afterwards. It is inserted and deleted in the transaction that changes the task's row.

use rusqlite::{Connection, OptionalExtension};

use crate::task::StoredContent;

/// The database columns that describe stored content.
#[derive(Debug, Default)]
pub(super) struct PlacedContent<'a> {
    /// The bytes, if they are in the row.
    pub(super) inline: Option<&'a [u8]>,
    /// Row number in the `content` table.
    pub(super) number: Option<i64>,
    /// Size in bytes, if they are outside of the row.
    pub(super) size: Option<i64>,
    /// Checksum of a blob.
    pub(super) sha256: Option<&'a [u8]>,
}

impl<'a> PlacedContent<'a> {
    /// Stores content, unless it is a blob, which is already stored.
    pub(super) fn place(
        connection: &Connection,
        content: &'a StoredContent,
    ) -> rusqlite::Result<Self> {
        match content {
            StoredContent::Inline(bytes) => Self::place_bytes(connection, bytes),
            StoredContent::Blob { size, sha256 } => Ok(Self {
                size: Some(signed(*size)),
                sha256: Some(sha256),
                ..Self::default()
            }),
        }
    }

    /// Stores bytes in the row or in the `content` table.
    pub(super) fn place_bytes(connection: &Connection, bytes: &'a [u8]) -> rusqlite::Result<Self> {
        if StoredContent::fits_inline(bytes) {
            return Ok(Self {
                inline: Some(bytes),
                ..Self::default()
            });
        }
        let mut insert = connection.prepare_cached("INSERT INTO content (bytes) VALUES (?1)")?;
        Ok(Self {
            number: Some(insert.insert([bytes])?),
            size: Some(signed(bytes.len() as u64)),
            ..Self::default()
        })
    }

    /// Returns the size in bytes, wherever they are stored.
    pub(super) fn bytes(&self) -> u64 {
        let inline = self.inline.map_or(0, <[u8]>::len) as u64;
        inline
            + self
                .size
                .and_then(|size| u64::try_from(size).ok())
                .unwrap_or(0)
    }
}

/// Reads the bytes of a row of the `content` table.
pub(super) fn find(connection: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut read = connection.prepare_cached("SELECT bytes FROM content WHERE number = ?1")?;
    read.query_row([number], |row| row.get(0)).optional()
}

/// Deletes a row of the `content` table, if a number is given.
pub(super) fn remove(connection: &Connection, number: Option<i64>) -> rusqlite::Result<()> {
    if let Some(number) = number {
        let mut delete = connection.prepare_cached("DELETE FROM content WHERE number = ?1")?;
        delete.execute([number])?;
    }
    Ok(())
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
