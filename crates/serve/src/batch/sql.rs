//! The batch store in a database of either kind.
//!
//! Invariant: reads never wait for writes; every write is one transaction.

use super::record::{
    BatchEndpoint, BatchId, BatchState, FilePurpose, LineFault, LineOutcome, NewBatch, NewFile,
    StoredBatch, StoredFile, StoredFileId,
};
use super::store::{BatchCreation, BatchStore, FileDeletion, FileTotals, ListPage};
use crate::account::AccountId;
use crate::database::sql::{SqlConnection, SqlRow, unknown_value, values};
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseResult, Timestamp};

const FILE_COLUMNS: &str = "id, account, name, purpose, blob, size, sha256, created_at, expires_at";
const BATCH_COLUMNS: &str =
    "id, account, endpoint, input, metadata, state, lines, completed, failed, faults, output,
    failures, created_at, began_at, canceling_at, finalizing_at, ended_at, expires_at";

/// Maximum number of outcomes that are read at once, and what each takes beside its answer, in bytes.
const MAX_LINES: i64 = 10_000;
const LINE_BYTES: u64 = 64;

/// The batch store of a database.
#[derive(Debug)]
pub(crate) struct SqlBatches(pub(crate) SqlDatabase);

#[async_trait::async_trait]
impl BatchStore for SqlBatches {
    async fn create_file(&self, new: NewFile, now: Timestamp) -> DatabaseResult<StoredFile> {
        let created = self.0.write(|connection| insert(connection, &new, now));
        created.map(|id| StoredFile {
            id,
            is: new,
            created_at: now,
        })
    }

    async fn file(
        &self,
        account: AccountId,
        id: StoredFileId,
    ) -> DatabaseResult<Option<StoredFile>> {
        self.0.read(|connection| find_file(connection, account, id))
    }

    async fn files(
        &self,
        account: AccountId,
        purpose: Option<FilePurpose>,
        page: ListPage,
    ) -> DatabaseResult<Vec<StoredFile>> {
        let (compares, order) = page.sql();
        let sql = format!(
            "SELECT {FILE_COLUMNS} FROM file INDEXED BY file_of_account
            WHERE account = ?1 AND id {compares} ?2 AND (?3 IS NULL OR purpose = ?3)
            ORDER BY id {order} LIMIT ?4"
        );
        let purpose = purpose.map(FilePurpose::name);
        let values = values![account.0, page.start(), purpose, size_limit(page.most)];
        self.0.rows(&sql, &values, stored_file)
    }

    async fn all_files(&self) -> DatabaseResult<Vec<StoredFile>> {
        let sql = format!("SELECT {FILE_COLUMNS} FROM file ORDER BY id");
        self.0.rows(&sql, &[], stored_file)
    }

    async fn totals(&self, account: AccountId) -> DatabaseResult<FileTotals> {
        let files = "SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM file
            WHERE account = ?1";
        let answers =
            "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM batch INDEXED BY batch_open
            WHERE ended_at IS NULL AND account = ?1";
        self.0.read(|connection| {
            let (files, bytes) = connection.only_row(files, &values![account.0], |row| {
                Ok((number(row, 0)?, number(row, 1)?))
            })?;
            let answers =
                connection.only_row(answers, &values![account.0], |row| number(row, 0))?;
            Ok(FileTotals {
                files,
                bytes: bytes.saturating_add(answers),
            })
        })
    }

    async fn delete_file(
        &self,
        account: AccountId,
        id: StoredFileId,
    ) -> DatabaseResult<FileDeletion> {
        let needed = "SELECT id FROM batch INDEXED BY batch_open
            WHERE ended_at IS NULL AND input = ?1 ORDER BY id LIMIT 1";
        self.0.write(|connection| {
            let Some(found) = find_file(connection, account, id)? else {
                return Ok(FileDeletion::Unknown);
            };
            if let Some(batch) = connection.row(needed, &values![id.0], |row| row.get(0))? {
                return Ok(FileDeletion::Needed(BatchId(batch)));
            }
            connection.execute("DELETE FROM file WHERE id = ?1", &values![id.0])?;
            Ok(FileDeletion::Done(Box::new(found)))
        })
    }

    async fn create_batch(
        &self,
        new: NewBatch,
        most_open: usize,
        now: Timestamp,
    ) -> DatabaseResult<BatchCreation> {
        let open = "SELECT count(*) FROM batch INDEXED BY batch_open
            WHERE ended_at IS NULL AND account = ?1";
        let sql = format!(
            "INSERT INTO batch (account, endpoint, input, metadata, state, created_at, expires_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING {BATCH_COLUMNS}"
        );
        self.0.write(|connection| {
            if find_file(connection, new.account, new.input)?.is_none() {
                return Ok(BatchCreation::NoInput);
            }
            let open = connection.only_row(open, &values![new.account.0], |row| number(row, 0))?;
            if open >= most_open as u64 {
                return Ok(BatchCreation::TooMany);
            }
            let values = values![
                new.account.0,
                new.endpoint.path(),
                new.input.0,
                &new.metadata,
                BatchState::Validating.name(),
                now.0,
                new.expires_at.0
            ];
            let created = connection.only_row(&sql, &values, batch)?;
            Ok(BatchCreation::Done(Box::new(created)))
        })
    }

    async fn batch(&self, id: BatchId) -> DatabaseResult<Option<StoredBatch>> {
        self.0.read(|connection| find_batch(connection, id))
    }

    async fn batches(
        &self,
        account: AccountId,
        page: ListPage,
    ) -> DatabaseResult<Vec<StoredBatch>> {
        let (compares, order) = page.sql();
        let sql = format!(
            "SELECT {BATCH_COLUMNS} FROM batch INDEXED BY batch_of_account
            WHERE account = ?1 AND id {compares} ?2 ORDER BY id {order} LIMIT ?3"
        );
        let values = values![account.0, page.start(), size_limit(page.most)];
        self.0.rows(&sql, &values, batch)
    }

    async fn open_batches(&self) -> DatabaseResult<Vec<StoredBatch>> {
        let own = self.0.server().map(|server| format!("AND node = {server}"));
        let sql = format!(
            "SELECT {BATCH_COLUMNS} FROM batch INDEXED BY batch_open
            WHERE ended_at IS NULL {} ORDER BY id",
            own.unwrap_or_default()
        );
        if let Some(server) = self.0.server() {
            self.hold(server)?;
        }
        self.0.rows(&sql, &[], batch)
    }

    async fn begin(&self, id: BatchId, lines: u64, now: Timestamp) -> DatabaseResult<()> {
        let sql = "UPDATE batch SET state = ?2, lines = ?3, began_at = ?4
            WHERE id = ?1 AND state = ?5";
        let (next, now_is) = (BatchState::InProgress.name(), BatchState::Validating.name());
        let values = values![id.0, next, bytes_limit(lines), now.0, now_is];
        self.0.change(sql, &values).map(drop)
    }

    async fn reject(
        &self,
        id: BatchId,
        faults: Vec<LineFault>,
        now: Timestamp,
    ) -> DatabaseResult<()> {
        let sql = "UPDATE batch SET state = ?2, faults = ?3, ended_at = ?4
            WHERE id = ?1 AND state = ?5";
        // Serializing strings does not fail.
        let faults = serde_json::to_string(&faults).unwrap_or_default();
        let (next, now_is) = (BatchState::Failed.name(), BatchState::Validating.name());
        self.0
            .change(sql, &values![id.0, next, faults, now.0, now_is])
            .map(drop)
    }

    async fn cancel(&self, id: BatchId, now: Timestamp) -> DatabaseResult<Option<StoredBatch>> {
        let sql = "UPDATE batch SET state = ?2, canceling_at = ?3
            WHERE id = ?1 AND state IN (?4, ?5)";
        let (first, second) = (BatchState::Validating.name(), BatchState::InProgress.name());
        let next = BatchState::Canceling.name();
        self.0.write(|connection| {
            connection.execute(sql, &values![id.0, next, now.0, first, second])?;
            find_batch(connection, id)
        })
    }

    async fn finalize(&self, id: BatchId, now: Timestamp) -> DatabaseResult<()> {
        let sql = "UPDATE batch SET state = ?2, finalizing_at = ?3 WHERE id = ?1 AND state = ?4";
        let (next, now_is) = (BatchState::Finalizing.name(), BatchState::InProgress.name());
        self.0
            .change(sql, &values![id.0, next, now.0, now_is])
            .map(drop)
    }

    async fn answered_lines(&self, id: BatchId) -> DatabaseResult<Vec<u64>> {
        let sql = "SELECT line FROM batch_line INDEXED BY batch_line_of WHERE batch = ?1";
        self.0.rows(sql, &values![id.0], |row| number(row, 0))
    }

    async fn store_lines(&self, id: BatchId, outcomes: &[LineOutcome]) -> DatabaseResult<()> {
        let line = "INSERT INTO batch_line (batch, line, custom_id, status, answer)
            VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
        let counts = "UPDATE batch SET completed = completed + ?2, failed = failed + ?3,
            bytes = bytes + ?4 WHERE id = ?1";
        self.0.write(|connection| {
            let (mut completed, mut failed, mut bytes) = (0_i64, 0_i64, 0_u64);
            for outcome in outcomes {
                let number = bytes_limit(outcome.line);
                let (custom_id, answer) = (&outcome.custom_id, &outcome.answer);
                let values = values![id.0, number, custom_id, outcome.status, answer];
                if connection.execute(line, &values)? == 0 {
                    continue;
                }
                bytes += answer.len() as u64;
                if outcome.is_success() {
                    completed += 1;
                } else {
                    failed += 1;
                }
            }
            let values = values![id.0, completed, failed, bytes_limit(bytes)];
            connection.execute(counts, &values).map(drop)
        })
    }

    async fn lines(&self, id: BatchId, after: u64, bytes: u64) -> DatabaseResult<Vec<LineOutcome>> {
        let sizes = "SELECT line, length(answer) FROM batch_line INDEXED BY batch_line_of
            WHERE batch = ?1 AND line > ?2 ORDER BY line LIMIT ?3";
        let lines = "SELECT line, custom_id, status, answer FROM batch_line
            INDEXED BY batch_line_of WHERE batch = ?1 AND line > ?2 AND line <= ?3 ORDER BY line";
        let after = bytes_limit(after);
        self.0.read(|connection| {
            let (mut size, mut last) = (0_u64, after);
            for row in connection.query(sizes, &values![id.0, after, MAX_LINES])? {
                if size >= bytes {
                    break;
                }
                last = row.get(0)?;
                size += number(&row, 1)? + LINE_BYTES;
            }
            let rows = connection.query(lines, &values![id.0, after, last])?;
            let outcomes = rows.iter().map(|row| {
                Ok(LineOutcome {
                    line: number(row, 0)?,
                    custom_id: row.get(1)?,
                    status: row.get(2)?,
                    answer: row.get(3)?,
                })
            });
            outcomes.collect()
        })
    }

    async fn end(
        &self,
        id: BatchId,
        state: BatchState,
        files: [Option<NewFile>; 2],
        now: Timestamp,
    ) -> DatabaseResult<()> {
        let sql = "UPDATE batch SET state = ?2, output = ?3, failures = ?4, ended_at = ?5
            WHERE id = ?1 AND ended_at IS NULL";
        self.0.write(|connection| {
            let [output, failures] = files.each_ref().map(|file| {
                let file = file.as_ref();
                file.map(|file| insert(connection, file, now)).transpose()
            });
            let (output, failures) = (output?, failures?);
            let [output, failures] = [output, failures].map(|file| file.map(|file| file.0));
            let values = values![id.0, state.name(), output, failures, now.0];
            connection.execute(sql, &values).map(drop)
        })
    }

    async fn delete_lines(&self, most: usize) -> DatabaseResult<usize> {
        // From the ended batches to their lines: open ones may have many.
        let sql = "DELETE FROM batch_line WHERE (batch, line) IN (SELECT batch_line.batch, batch_line.line
            FROM batch INDEXED BY batch_ended CROSS JOIN batch_line INDEXED BY batch_line_of
            WHERE batch.ended_at IS NOT NULL AND batch_line.batch = batch.id LIMIT ?1)";
        self.0.change(sql, &values![size_limit(most)])
    }

    async fn purge(
        &self,
        now: Timestamp,
        ended_before: Timestamp,
        most: usize,
    ) -> DatabaseResult<Vec<StoredFile>> {
        let expired = format!(
            "SELECT {FILE_COLUMNS} FROM file INDEXED BY file_expiring WHERE expires_at <= ?1
                AND id NOT IN (SELECT input FROM batch INDEXED BY batch_open WHERE ended_at IS NULL)
            ORDER BY expires_at LIMIT ?2"
        );
        let ended = "DELETE FROM batch WHERE id IN (SELECT id FROM batch INDEXED BY batch_ended
            WHERE ended_at <= ?1 AND NOT EXISTS
                (SELECT 1 FROM batch_line INDEXED BY batch_line_of WHERE batch_line.batch = batch.id)
            ORDER BY ended_at LIMIT ?2)";
        let values = values![now.0, size_limit(most)];
        let found = self.0.rows(&expired, &values, stored_file)?;
        self.0.write(|connection| {
            for file in &found {
                connection.execute("DELETE FROM file WHERE id = ?1", &values![file.id.0])?;
            }
            connection.execute(ended, &values![ended_before.0, size_limit(most)])
        })?;
        Ok(found)
    }
}

impl SqlBatches {
    /// Takes all open batches, unless another server that lives holds one.
    fn hold(&self, server: i64) -> DatabaseResult<()> {
        let free =
            "SELECT 1 FROM batch WHERE ended_at IS NULL AND node IS DISTINCT FROM ?1 LIMIT 1";
        let held = "SELECT 1 FROM batch JOIN node ON node.id = batch.node
            WHERE ended_at IS NULL AND node.id <> ?1 LIMIT 1";
        let take = "UPDATE batch SET node = ?1 WHERE ended_at IS NULL";
        let server = values![server];
        if self.0.row(free, &server, |_| Ok(()))?.is_none() {
            return Ok(());
        }
        self.0.write(|connection| {
            if connection.row(held, &server, |_| Ok(()))?.is_none() {
                connection.execute(take, &server)?;
            }
            Ok(())
        })
    }
}

impl ListPage {
    /// Returns the comparison with [`Self::start`], and the order.
    fn sql(self) -> (&'static str, &'static str) {
        if self.ascending {
            (">", "ASC")
        } else {
            ("<", "DESC")
        }
    }

    fn start(self) -> i64 {
        let start = if self.ascending { 0 } else { i64::MAX };
        self.after.unwrap_or(start)
    }
}

fn size_limit(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn bytes_limit(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn number(row: &SqlRow, column: usize) -> DatabaseResult<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn insert(
    connection: &mut dyn SqlConnection,
    new: &NewFile,
    now: Timestamp,
) -> DatabaseResult<StoredFileId> {
    let sql =
        "INSERT INTO file (account, name, purpose, blob, size, sha256, created_at, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING id";
    let values = values![
        new.account.0,
        &new.name,
        new.purpose.name(),
        &new.blob,
        bytes_limit(new.size),
        new.sha256,
        now.0,
        new.expires_at.0
    ];
    connection.only_row(sql, &values, |row| row.get(0).map(StoredFileId))
}

fn find_file(
    connection: &mut dyn SqlConnection,
    account: AccountId,
    id: StoredFileId,
) -> DatabaseResult<Option<StoredFile>> {
    let sql = format!("SELECT {FILE_COLUMNS} FROM file WHERE id = ?1 AND account = ?2");
    connection.row(&sql, &values![id.0, account.0], stored_file)
}

fn find_batch(
    connection: &mut dyn SqlConnection,
    id: BatchId,
) -> DatabaseResult<Option<StoredBatch>> {
    let sql = format!("SELECT {BATCH_COLUMNS} FROM batch WHERE id = ?1");
    connection.row(&sql, &values![id.0], batch)
}

/// Reads a name that this or a later release wrote.
fn named<T>(row: &SqlRow, column: usize, read: fn(&str) -> Option<T>) -> DatabaseResult<T> {
    let name: String = row.get(column)?;
    read(&name).ok_or_else(|| unknown_value(&name))
}

fn stored_file(row: &SqlRow) -> DatabaseResult<StoredFile> {
    Ok(StoredFile {
        id: StoredFileId(row.get(0)?),
        is: NewFile {
            account: AccountId(row.get(1)?),
            name: row.get(2)?,
            purpose: named(row, 3, FilePurpose::from_name)?,
            blob: row.get(4)?,
            size: number(row, 5)?,
            sha256: row.get(6)?,
            expires_at: Timestamp(row.get(8)?),
        },
        created_at: Timestamp(row.get(7)?),
    })
}

fn batch(row: &SqlRow) -> DatabaseResult<StoredBatch> {
    let time = |column: usize| -> DatabaseResult<Option<Timestamp>> {
        Ok(row.get::<Option<i64>>(column)?.map(Timestamp))
    };
    let faults: Option<String> = row.get(9)?;
    let faults = faults.and_then(|faults| serde_json::from_str(&faults).ok());
    Ok(StoredBatch {
        id: BatchId(row.get(0)?),
        is: NewBatch {
            account: AccountId(row.get(1)?),
            endpoint: named(row, 2, BatchEndpoint::from_path)?,
            input: StoredFileId(row.get(3)?),
            metadata: row.get(4)?,
            expires_at: Timestamp(row.get(17)?),
        },
        state: named(row, 5, BatchState::from_name)?,
        lines: number(row, 6)?,
        completed: number(row, 7)?,
        failed: number(row, 8)?,
        faults: faults.unwrap_or_default(),
        output: row.get::<Option<i64>>(10)?.map(StoredFileId),
        failures: row.get::<Option<i64>>(11)?.map(StoredFileId),
        created_at: Timestamp(row.get(12)?),
        began_at: time(13)?,
        canceling_at: time(14)?,
        finalizing_at: time(15)?,
        ended_at: time(16)?,
    })
}
