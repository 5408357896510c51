//! Tests of task stores: scenarios that run on each of them, and a model-based comparison of the stores in databases
//! with the in-memory one.

mod blobs;
mod limited;
mod machine;
mod memory;
mod nodes;
mod objects;
mod records;
mod story;

use std::sync::Arc;

use pkgtool_serve::account::{Account, AccountId, Accounts, Snapshot};
use pkgtool_serve::database::{DatabaseUrl, Timestamp};
use pkgtool_serve::task::{Caps, NewTask, OnCrash, Quota, StoredContent, Stores, TaskId};
use tempfile::TempDir;

pub(crate) use limited::Limited;

use crate::support::postgres::fresh_database;
use memory::MemoryTasks;

/// Accounts of these tests, with their requests per second.
const ACCOUNTS: [(AccountId, u32); 3] = [
    (AccountId(1), 1000),
    (AccountId(2), 7),
    (AccountId(3), 1000),
];

/// Runs a future to completion.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Creates a data directory with the accounts.
pub(crate) fn directory() -> (TempDir, Stores) {
    let directory = tempfile::tempdir().expect("a directory");
    let stores = with_accounts(&DatabaseUrl::in_directory(directory.path()));
    (directory, stores)
}

/// Creates a PostgreSQL database with the accounts; `None` means that the test skips it, after a message.
#[track_caller]
pub(crate) fn shared_database() -> Option<(DatabaseUrl, Stores)> {
    let thread = std::thread::current();
    let url = fresh_database(thread.name().expect("tests have names"))?;
    let stores = with_accounts(&url);
    Some((url, stores))
}

fn with_accounts(url: &DatabaseUrl) -> Stores {
    block_on(async {
        let stores = Stores::open(url).await.expect("a database");
        let accounts = accounts(&stores).await;
        for (id, rps) in ACCOUNTS {
            let name = format!("a{}", id.0);
            let made = accounts.create(&name, rps, Timestamp(0)).await;
            assert_eq!(made.expect("it is new").id, id);
        }
        stores
    })
}

pub(crate) async fn accounts(stores: &Stores) -> Accounts {
    Accounts::new(stores.accounts().await.expect("accounts"))
}

/// Opens the tasks of a database with the current limits of its accounts.
pub(crate) fn open(stores: &Stores, caps: Caps) -> Arc<Limited> {
    block_on(async {
        let accounts = stores.accounts().await.expect("accounts");
        let accounts = Snapshot::read(&*accounts).await.expect("it works");
        let tasks = stores.tasks().await.expect("a store");
        Arc::new(Limited::new(tasks, accounts, caps))
    })
}

/// Creates an in-memory store with the accounts.
fn in_memory(caps: Caps) -> Limited {
    let account = |(id, rps): (AccountId, u32)| Account {
        id,
        name: format!("a{}", id.0),
        rps,
        blocked: false,
        created_at: Timestamp(0),
    };
    let accounts = Snapshot::new(ACCOUNTS.map(account).into(), Vec::new());
    Limited::new(Arc::new(MemoryTasks::default()), accounts, caps)
}

/// Runs a scenario on every store.
#[track_caller]
fn of_every_store<F: Future<Output = ()>>(caps: Caps, story: impl Fn(Arc<Limited>) -> F) {
    block_on(story(Arc::new(in_memory(caps))));
    let (_directory, stores) = directory();
    block_on(story(open(&stores, caps)));
    if let Some((_, stores)) = shared_database() {
        block_on(story(open(&stores, caps)));
    }
}

/// Returns the task id for a number; ids sort like their numbers.
pub(crate) fn id(number: u64) -> TaskId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    TaskId::from_bytes(bytes)
}

/// Returns a new task of the first account.
pub(crate) fn new(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        caller: AccountId(1),
        owner: AccountId(3),
        service: "sum".to_owned(),
        body: StoredContent::Inline(number.to_string().into_bytes()),
        config: Some("{}".to_owned()),
        data_type: None,
        on_crash: OnCrash::Retry,
        idempotency: None,
    }
}

/// Returns a new task of an account.
fn of(account: i64, number: u64) -> NewTask {
    NewTask {
        caller: AccountId(account),
        ..new(number)
    }
}

/// Limits that no scenario reaches.
pub(crate) const WIDE: Caps = Caps {
    waiting: 250,
    running: 50,
    places: 0,
    attempts: 3,
    quota: Quota {
        tasks: 0,
        bytes: 0,
        other_bytes: 0,
    },
};
