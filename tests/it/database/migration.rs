//! Tests of migration: a database from an earlier release keeps all its data and supports all new
//! features.

use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::task::{
    Caps, Deletion, EnqueueError, Quota, Status, StoredContent, Stores, TaskOutcome,
};
use rusqlite::params;

use super::open_in;
use crate::task::{WIDE, accounts, block_on, id, new, open};

/// Schema of the first release.
const FIRST: &str = include_str!("../../../crates/serve/src/database/sqlite/schema.sql");

/// Creates a database of the first release with three tasks: one with an answer in its row, one
/// with an answer in a file, and a waiting one with a body in a file.
fn first(directory: &std::path::Path) -> Stores {
    let database = rusqlite::Connection::open(directory.join("pkgtool.db"));
    let database = database.expect("it opens");
    database.execute_batch(FIRST).expect("it is SQL");
    database
        .pragma_update(None, "user_version", 1)
        .expect("it can be set");
    let ended = "INSERT INTO task (id, caller, owner, service, status, created_at, completed_at,
            attempt, retries, outcome, answer, answer_size, answer_sha256, expires_at)
        VALUES (?1, 1, 1, 'sum', 2, 10, ?2, 1, 1, 1, ?3, ?4, ?5, ?6)";
    let (one, two, three) = (id(1), id(2), id(3));
    let short = params![
        one.as_bytes(),
        20,
        b"[1]",
        None::<i64>,
        None::<Vec<u8>>,
        None::<i64>
    ];
    database.execute(ended, short).expect("a row");
    let long = params![two.as_bytes(), 30, None::<Vec<u8>>, 900, [7_u8; 32], 500];
    database.execute(ended, long).expect("a row");
    let waiting =
        "INSERT INTO task (id, caller, owner, service, status, created_at, retries, config,
            body_size, body_sha256)
        VALUES (?1, 1, 1, 'sum', 0, 10, 1, '{}', 800, ?2)";
    let values = params![three.as_bytes(), [8_u8; 32]];
    database.execute(waiting, values).expect("a row");
    drop(database);
    let stores = open_in(directory).expect("it goes on");
    block_on(async {
        let made = accounts(&stores)
            .await
            .create("a1", 1000, Timestamp(0))
            .await;
        assert_eq!(made.expect("it is new").id, AccountId(1));
    });
    stores
}

#[test]
fn a_database_of_the_first_release_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let stores = first(directory.path());
    let caps = Caps {
        quota: Quota {
            tasks: 4,
            bytes: 0,
            other_bytes: 0,
        },
        ..WIDE
    };
    let store = open(&stores, caps);
    let blob = |size, byte| StoredContent::Blob {
        size,
        sha256: [byte; 32],
    };
    block_on(async {
        let task = store
            .get(id(1))
            .await
            .expect("it works")
            .expect("it is there");
        let outcome = TaskOutcome::Answer {
            media_type: None,
            worker: None,
            content: StoredContent::Inline(b"[1]".to_vec()),
            attempt: 1,
            expires_at: None,
        };
        assert_eq!(task.outcome, Some(outcome));
        let named = store.blobs(None, 9).await.expect("it works");
        let named: Vec<_> = named.iter().map(|blob| (blob.task, blob.attempt)).collect();
        assert_eq!(named, [(id(2), Some(1)), (id(3), None)]);
        // All three tasks count.
        store
            .enqueue(new(4), Timestamp(40))
            .await
            .expect("it is the fourth");
        let refused = store.enqueue(new(5), Timestamp(40)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::TooManyStored { limit: 4 })
        ));
        let claimed = store.claim(1).await.expect("it works");
        assert_eq!(
            (claimed[0].lease.task, &claimed[0].body),
            (id(3), &blob(800, 8))
        );
        let answer = StoredContent::Inline(vec![b'x'; 3000]);
        let lease = claimed[0].lease;
        let done = store
            .complete(lease, answer, Timestamp(50), Timestamp(900))
            .await;
        assert!(done.expect("it works"));
        let purged = store.purge(Timestamp(30), 9).await.expect("it works");
        assert_eq!((purged.count, purged.blobs.len()), (2, 1));
        assert_eq!(purged.blobs[0].task, id(2));
        let deleted = store.delete(id(3)).await.expect("it works");
        assert!(matches!(deleted, Deletion::Done(_)));
        let left = store
            .list(AccountId(1), None, None, 9)
            .await
            .expect("it works");
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].id, left[0].status), (id(4), Status::Queued));
    });
}
