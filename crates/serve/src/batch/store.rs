//! The interface of batch stores, independent of the database behind it.

use super::record::{
    BatchId, BatchState, FilePurpose, LineFault, LineOutcome, NewBatch, NewFile, StoredBatch,
    StoredFile, StoredFileId,
};
use crate::account::AccountId;
use crate::database::{DatabaseResult, Timestamp};

/// Result of creating a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchCreation {
    /// The batch was stored.
    Done(Box<StoredBatch>),
    /// The account has no such file.
    NoInput,
    /// The account has reached its limit of open batches.
    TooMany,
}

/// Result of deleting a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDeletion {
    /// The account has no such file.
    Unknown,
    /// An open batch needs the file.
    Needed(BatchId),
    /// The file was deleted.
    Done(Box<StoredFile>),
}

/// Part of an account's list: up to `most` entries after one of them.
#[derive(Debug, Clone, Copy)]
pub struct ListPage {
    /// The last entry of the previous part.
    pub after: Option<i64>,
    /// Maximum number of entries.
    pub most: usize,
    /// Oldest first instead of newest first.
    pub ascending: bool,
}

/// Totals of an account's files and batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileTotals {
    /// Number of files.
    pub files: u64,
    /// Bytes of files and of answers of open batches.
    pub bytes: u64,
}

/// A store of files and batches. Every method is one atomic operation that is durable when it
/// returns.
#[async_trait::async_trait]
pub trait BatchStore: Send + Sync {
    /// Stores a file.
    async fn create_file(&self, new: NewFile, now: Timestamp) -> DatabaseResult<StoredFile>;

    /// Returns a file of an account.
    async fn file(
        &self,
        account: AccountId,
        id: StoredFileId,
    ) -> DatabaseResult<Option<StoredFile>>;

    /// Lists an account's files, optionally of one purpose.
    async fn files(
        &self,
        account: AccountId,
        purpose: Option<FilePurpose>,
        page: ListPage,
    ) -> DatabaseResult<Vec<StoredFile>>;

    /// Lists the files of all accounts.
    async fn all_files(&self) -> DatabaseResult<Vec<StoredFile>>;

    /// Returns the totals of an account.
    async fn totals(&self, account: AccountId) -> DatabaseResult<FileTotals>;

    /// Deletes a file of an account. The caller deletes its content.
    async fn delete_file(
        &self,
        account: AccountId,
        id: StoredFileId,
    ) -> DatabaseResult<FileDeletion>;

    /// Stores a batch, if the account has its input and fewer than `most_open` open batches.
    async fn create_batch(
        &self,
        new: NewBatch,
        most_open: usize,
        now: Timestamp,
    ) -> DatabaseResult<BatchCreation>;

    /// Returns a batch.
    async fn batch(&self, id: BatchId) -> DatabaseResult<Option<StoredBatch>>;

    /// Lists an account's batches.
    async fn batches(&self, account: AccountId, page: ListPage)
    -> DatabaseResult<Vec<StoredBatch>>;

    /// Lists the open batches of all accounts, oldest first. Of several servers, one has all of them.
    async fn open_batches(&self) -> DatabaseResult<Vec<StoredBatch>>;

    /// Stores that the input of a batch is valid and has `lines` requests.
    async fn begin(&self, id: BatchId, lines: u64, now: Timestamp) -> DatabaseResult<()>;

    /// Stores the faults of a batch's input, which end the batch.
    async fn reject(
        &self,
        id: BatchId,
        faults: Vec<LineFault>,
        now: Timestamp,
    ) -> DatabaseResult<()>;

    /// Cancels a batch whose requests are not all answered; others stay as they are. Returns the
    /// batch.
    async fn cancel(&self, id: BatchId, now: Timestamp) -> DatabaseResult<Option<StoredBatch>>;

    /// Stores that all requests of a batch are answered.
    async fn finalize(&self, id: BatchId, now: Timestamp) -> DatabaseResult<()>;

    /// Returns the numbers of the lines that have an outcome.
    async fn answered_lines(&self, id: BatchId) -> DatabaseResult<Vec<u64>>;

    /// Stores outcomes. An outcome of a line that has one already changes nothing.
    async fn store_lines(&self, id: BatchId, outcomes: &[LineOutcome]) -> DatabaseResult<()>;

    /// Lists the outcomes of lines after this one, in order, up to about `bytes` bytes.
    async fn lines(&self, id: BatchId, after: u64, bytes: u64) -> DatabaseResult<Vec<LineOutcome>>;

    /// Ends a batch and stores its files: the answers and the failed requests.
    async fn end(
        &self,
        id: BatchId,
        state: BatchState,
        files: [Option<NewFile>; 2],
        now: Timestamp,
    ) -> DatabaseResult<()>;

    /// Deletes up to `most` outcomes of batches that ended. Returns their number.
    async fn delete_lines(&self, most: usize) -> DatabaseResult<usize>;

    /// Deletes expired files that no open batch needs, and batches that ended before a time; up to
    /// `most` of each. Returns the files, whose contents the caller deletes.
    async fn purge(
        &self,
        now: Timestamp,
        ended_before: Timestamp,
        most: usize,
    ) -> DatabaseResult<Vec<StoredFile>>;
}
