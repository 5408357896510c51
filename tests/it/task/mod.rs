//! Task stores: one story for each of them, and a machine that holds SQLite's against the model.

mod blobs;
mod machine;
mod memory;
mod story;

use std::sync::Arc;

use pkgtool::account::{AccountId, Accounts};
use pkgtool::database::{Database, Timestamp};
use pkgtool::task::{Caps, Content, NewTask, OnCrash, SqliteTasks, TaskId, TaskStore};
use tempfile::TempDir;

use memory::MemoryTasks;

/// The accounts of these tests, with their requests per second.
const ACCOUNTS: [(AccountId, u32); 3] = [
    (AccountId(1), 1000),
    (AccountId(2), 7),
    (AccountId(3), 1000),
];

/// Runs a future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// A data directory with the accounts.
pub(crate) fn directory() -> (TempDir, Database) {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).expect("a database");
    let accounts = Accounts::open(&database).expect("accounts");
    for (id, rps) in ACCOUNTS {
        let made = accounts.create(&format!("a{}", id.0), rps, Timestamp(0));
        assert_eq!(made.expect("it is new").id, id);
    }
    (directory, database)
}

pub(crate) fn open(database: &Database, caps: Caps) -> Arc<SqliteTasks> {
    SqliteTasks::open(database, caps).expect("a store")
}

/// Has a story told of every store.
fn of_every_store<F: Future<Output = ()>>(caps: Caps, story: impl Fn(Arc<dyn TaskStore>) -> F) {
    block_on(story(Arc::new(MemoryTasks::new(caps, ACCOUNTS))));
    let (_directory, database) = directory();
    block_on(story(open(&database, caps)));
}

/// The task of a number; later numbers are later ids.
pub(crate) fn id(number: u64) -> TaskId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    TaskId::from_bytes(bytes)
}

/// A task of the first account.
pub(crate) fn new(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        caller: AccountId(1),
        owner: AccountId(3),
        service: "sum".to_owned(),
        body: Content::Inline(number.to_string().into_bytes()),
        config: Some("{}".to_owned()),
        data_type: None,
        on_crash: OnCrash::Retry,
        idempotency: None,
    }
}

/// A task of an account.
fn of(account: i64, number: u64) -> NewTask {
    NewTask {
        caller: AccountId(account),
        ..new(number)
    }
}

/// Limits that are in no story's way.
pub(crate) const WIDE: Caps = Caps {
    waiting: 250,
    running: 50,
    attempts: 3,
};
