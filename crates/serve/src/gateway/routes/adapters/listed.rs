//! Ids, times and parts of lists, for files and batches.

use super::super::super::error::GatewayError;
use super::super::super::extract::list_limit;
use crate::account::number;
use crate::batch::{BatchId, ListPage, StoredFileId};
use crate::database::Timestamp;

/// Default and maximum number of entries of a list.
const DEFAULT_ENTRIES: usize = 20;
const MAX_ENTRIES: usize = 10_000;

/// Returns the id of a file in the API.
pub(super) fn file_id(id: StoredFileId) -> String {
    format!("file-{}", id.0)
}

/// Parses the id of a file.
pub(super) fn read_file_id(text: &str) -> Result<StoredFileId, GatewayError> {
    let number = text.strip_prefix("file-").and_then(number);
    number
        .map(StoredFileId)
        .ok_or_else(|| GatewayError::no_entity("file", text))
}

/// Returns a time in seconds.
pub(super) fn seconds(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}

/// Returns the part of a list to read for a request: one entry more than it wants, for [`cut`].
pub(super) fn page(
    after: Option<i64>,
    limit: Option<usize>,
    ascending: bool,
) -> Result<ListPage, GatewayError> {
    Ok(ListPage {
        after,
        most: list_limit(limit, DEFAULT_ENTRIES, MAX_ENTRIES)? + 1,
        ascending,
    })
}

/// Returns the id of a batch in the API.
pub(super) fn batch_id(id: BatchId) -> String {
    format!("batch_{}", id.0)
}

/// Parses the id of a batch.
pub(super) fn read_batch_id(text: &str) -> Result<BatchId, GatewayError> {
    let number = text.strip_prefix("batch_").and_then(number);
    number
        .map(BatchId)
        .ok_or_else(|| GatewayError::no_entity("batch", text))
}

/// Cuts what was read for a part of a list to its size. Returns whether there is more.
pub(super) fn cut<T>(read: &mut Vec<T>, page: ListPage) -> bool {
    let has_more = read.len() == page.most;
    read.truncate(page.most - 1);
    has_more
}
