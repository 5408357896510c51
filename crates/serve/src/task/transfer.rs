//! Copies the records of one server's database into a PostgreSQL database, which several servers may share.
//!
//! Invariant: the copy can stop at any record and be repeated: what is there already stays. The target has no other
//! records. At the end, both have the same number of records in every table.

use std::path::Path;

use super::transfer_objects::copy_objects;
use super::transferred::{TransferError, Transferred};
use super::{Blobs, Stores};
use crate::database::sql::{SqlConnection, SqlRow, SqlValue, values};
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseResult, DatabaseUrl};

/// Number of records in a transaction.
const PAGE_RECORDS: i64 = 500;

/// The tables whose rows are copied as they are, in the order of their references. Logins of browsers end.
const TABLES: [&str; 16] = [
    "account",
    "api_key",
    "worker_token",
    "service",
    "predict_config",
    "usage",
    "cpu_usage",
    "dataset",
    "fit_config",
    "derived",
    "job",
    "file",
    "batch",
    "batch_line",
    "event",
    "delivery",
];

/// The tables among these whose ids the database assigns.
const NUMBERED_TABLES: [&str; 11] = [
    "account",
    "api_key",
    "worker_token",
    "service",
    "predict_config",
    "dataset",
    "fit_config",
    "job",
    "file",
    "batch",
    "event",
];

/// The columns of a task, of which the first seven are numbers or the id.
const TASK_COLUMNS: &str = "id, caller, owner, created_at, attempt, crashes, retries, service, config, data_type,
    coalesce(body, (SELECT bytes FROM content WHERE number = body_number)), body_size, body_sha256,
    coalesce(request_bytes, 0), completed_at, outcome,
    coalesce(answer, (SELECT bytes FROM content WHERE number = answer_number)), answer_size, answer_sha256,
    expires_at, media_type, worker, failure_status, failure_code, failure_message, repeat_key, repeat_sha256,
    status";

const INSERT_ACTIVE: &str = "INSERT INTO task_active (id, caller, owner, created_at, attempt, crashes, retries,
        service, config, data_type, body, body_size, body_sha256, bytes)
    VALUES (CAST(encode(?1, 'hex') AS UUID), ?2, ?3, ?4, ?5, ?6, ?7 <> 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT DO NOTHING";

const INSERT_DONE: &str = "INSERT INTO task_done (id, caller, owner, created_at, attempt, service, completed_at,
        outcome, answer, answer_size, answer_sha256, expires_at, media_type, worker, failure_status,
        failure_code, failure_message)
    VALUES (CAST(encode(?1, 'hex') AS UUID), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
        ?16, ?17)
    ON CONFLICT DO NOTHING";

const INSERT_REPEAT: &str = "INSERT INTO task_repeat (caller, key, sha256, task)
    VALUES (?1, ?2, ?3, CAST(encode(?4, 'hex') AS UUID)) ON CONFLICT DO NOTHING";

/// Counts what accounts have, which the servers then keep up to date.
const COUNT_LOADS: &str = "INSERT INTO account_load (account, waiting, tasks, bytes)
    SELECT caller, CAST(sum(waits) AS BIGINT), count(*), CAST(sum(bytes) AS BIGINT) FROM (
        SELECT caller, 1 AS waits, bytes FROM task_active
        UNION ALL SELECT caller, 0, coalesce(answer_size, length(answer), 0) FROM task_done
    ) AS stored GROUP BY caller
    ON CONFLICT (account) DO UPDATE
    SET waiting = excluded.waiting, tasks = excluded.tasks, bytes = excluded.bytes";

/// Copies the data of a server that does not run. `name` is that of its data directory.
pub async fn transfer(
    (data, name): (&Path, &str),
    into: &DatabaseUrl,
    objects: &Blobs,
) -> Result<Transferred, TransferError> {
    let stores = Stores::open(&DatabaseUrl::in_directory(data)).await?;
    let target = Stores::open(into).await?;
    let (from, to) = (stores.records()?, target.records()?);
    begin(&to, name, into)?;
    let mut done = Transferred::default();
    for table in TABLES {
        done.records += copy_table(&from, &to, table)?;
    }
    done.tasks = copy_tasks(&from, &to)?;
    to.change(COUNT_LOADS, &[])?;
    let kept = Blobs::open(&data.join("blobs"))?;
    copy_objects(&stores, (&kept, objects), &mut done).await?;
    Ok(done)
}

/// Marks the target as a copy of this server, unless it has other records.
fn begin(to: &SqlDatabase, name: &str, into: &DatabaseUrl) -> Result<(), TransferError> {
    let known = "SELECT 1 FROM transferred_from WHERE server = ?1";
    let others = "SELECT 1 FROM account LIMIT 1";
    let is_ours = to.write(|connection| {
        if connection.row(known, &values![name], |_| Ok(()))?.is_some() {
            return Ok(true);
        }
        if connection.row(others, &[], |_| Ok(()))?.is_some() {
            return Ok(false);
        }
        connection.execute("INSERT INTO transferred_from VALUES (?1)", &values![name])?;
        Ok(true)
    })?;
    if is_ours {
        Ok(())
    } else {
        Err(TransferError::NotEmpty(into.to_string()))
    }
}

/// Copies the rows of a table. Returns their number.
fn copy_table(
    from: &SqlDatabase,
    to: &SqlDatabase,
    table: &'static str,
) -> Result<u64, TransferError> {
    let columns = "SELECT column_name::TEXT, data_type::TEXT FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = ?1 AND column_name <> 'node'
        ORDER BY ordinal_position";
    let columns = to.rows(columns, &values![table], |row| {
        Ok((row.get::<String>(0)?, row.get::<String>(1)?))
    })?;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    let places: Vec<String> = (1..=columns.len())
        .map(|place| format!("?{place}"))
        .collect();
    let insert = format!(
        "INSERT INTO {table} ({names}) VALUES ({}) ON CONFLICT DO NOTHING",
        places.join(", ")
    );
    let mut copied = 0;
    loop {
        let sql = format!("SELECT {names} FROM {table} ORDER BY 1, 2, 3 LIMIT ?1 OFFSET ?2");
        let page =
            from.read(|connection| connection.query(&sql, &values![PAGE_RECORDS, copied]))?;
        copied += i64::try_from(page.len()).unwrap_or(0);
        if page.is_empty() {
            break;
        }
        to.write(|connection| {
            for row in &page {
                let values = columns.iter().enumerate();
                let values = values.map(|(place, (_, kind))| typed(row, place, kind));
                let values = values.collect::<DatabaseResult<Vec<SqlValue>>>()?;
                connection.execute(&insert, &values)?;
            }
            Ok(())
        })?;
    }
    if NUMBERED_TABLES.contains(&table) {
        let next = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT greatest(max(id), 1) FROM {table}))"
        );
        to.row(&next, &[], |_| Ok(()))?;
    }
    same_count(table, (from, table), (to, table))
}

/// Reads a value as the type of its column: SQLite returns missing values without one.
fn typed(row: &SqlRow, place: usize, kind: &str) -> DatabaseResult<SqlValue> {
    Ok(match kind {
        "text" => SqlValue::Text(row.get(place)?),
        "bytea" => SqlValue::Bytes(row.get(place)?),
        _ => SqlValue::Integer(row.get(place)?),
    })
}

/// Checks that as many records are in both databases. Returns their number.
fn same_count(
    table: &'static str,
    (from, source): (&SqlDatabase, &str),
    (to, target): (&SqlDatabase, &str),
) -> Result<u64, TransferError> {
    let count = |database: &SqlDatabase, rows: &str| {
        let sql = format!("SELECT count(*) FROM {rows}");
        database.read(|connection| connection.only_row(&sql, &[], |row| row.get::<i64>(0)))
    };
    let (all, copied) = (count(from, source)?, count(to, target)?);
    if all == copied {
        return Ok(all.unsigned_abs());
    }
    Err(TransferError::Incomplete { table, copied, all })
}

/// Copies the tasks. Running ones wait again. Returns their number.
fn copy_tasks(from: &SqlDatabase, to: &SqlDatabase) -> Result<u64, TransferError> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM task WHERE id > ?1 ORDER BY id LIMIT ?2");
    let mut last = Vec::new();
    loop {
        let page = values![&last, PAGE_RECORDS];
        let page = from.read(|connection| connection.query(&sql, &page))?;
        let Some(end) = page.last() else {
            break;
        };
        last = end.get(0)?;
        to.write(|connection| page.iter().try_for_each(|row| copy_task(connection, row)))?;
    }
    let copied = "(SELECT id FROM task_active UNION ALL SELECT id FROM task_done) AS task";
    same_count("task", (from, "task"), (to, copied))
}

fn copy_task(connection: &mut dyn SqlConnection, row: &SqlRow) -> DatabaseResult<()> {
    let number = |place| row.get(place).map(SqlValue::Integer);
    let text = |place| row.get(place).map(SqlValue::Text);
    let bytes = |place| row.get(place).map(SqlValue::Bytes);
    let is_active = row.get::<i64>(27)? < 2;
    if is_active {
        let mut values = vec![bytes(0)?];
        for place in 1..=6 {
            values.push(number(place)?);
        }
        values.extend([text(7)?, text(8)?, text(9)?, bytes(10)?]);
        values.extend([number(11)?, bytes(12)?, number(13)?]);
        connection.execute(INSERT_ACTIVE, &values)?;
    } else {
        let values = [
            bytes(0)?,
            number(1)?,
            number(2)?,
            number(3)?,
            number(4)?,
            text(7)?,
            number(14)?,
            number(15)?,
            bytes(16)?,
            number(17)?,
            bytes(18)?,
            number(19)?,
            text(20)?,
            text(21)?,
            number(22)?,
            text(23)?,
            text(24)?,
        ];
        connection.execute(INSERT_DONE, &values)?;
    }
    if row.get::<Option<String>>(25)?.is_some() {
        let values = [number(1)?, text(25)?, bytes(26)?, bytes(0)?];
        connection.execute(INSERT_REPEAT, &values)?;
    }
    Ok(())
}
