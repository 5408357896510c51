//! Tests of the deletion of task records, by users and by age, and of the storage quotas of
//! accounts.

use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::task::{
    Caps, Deletion, EnqueueError, Idempotency, Lease, NewTask, Quota, RemovedTasks, Status,
    StoredContent, TaskFailure, TaskOutcome,
};

use super::{Limited, WIDE, block_on, directory, id, new, of, of_every_store, open};

fn at(millis: i64) -> Timestamp {
    Timestamp(millis)
}

fn blob(size: u64) -> StoredContent {
    StoredContent::Blob {
        size,
        sha256: [7; 32],
    }
}

/// Returns content that is too large for a row and too small for a file.
fn medium(number: u64) -> StoredContent {
    StoredContent::Inline(format!("{number:01000}").into_bytes())
}

/// Creates a task that ended at `now` with this answer.
async fn ended(store: &Limited, task: NewTask, now: i64, answer: StoredContent) -> Lease {
    store.enqueue(task, at(now)).await.expect("it is accepted");
    let claimed = store.claim(1).await.expect("it works");
    let lease = claimed.first().expect("one waits").lease;
    let done = store.complete(lease, answer, at(now), at(1_000_000)).await;
    assert!(done.expect("it works"));
    lease
}

#[test]
fn only_what_has_ended_is_deleted() {
    of_every_store(WIDE, async |store| {
        let delete = async |number| store.delete(id(number)).await.expect("it works");
        assert_eq!(delete(1).await, Deletion::Unknown);
        store.enqueue(new(1), at(1)).await.expect("it is accepted");
        assert_eq!(delete(1).await, Deletion::Unfinished);
        store.claim(1).await.expect("it works");
        assert_eq!(delete(1).await, Deletion::Unfinished);
        store.cancel(id(1), at(5)).await.expect("it works");
        let one = RemovedTasks {
            count: 1,
            blobs: Vec::new(),
        };
        assert_eq!(delete(1).await, Deletion::Done(one));
        assert_eq!(delete(1).await, Deletion::Unknown);
        assert_eq!(store.get(id(1)).await.expect("it works"), None);
        // Each task is read, so that it is cached, and then deleted: three times, with others
        // between.
        for number in [3, 5, 7] {
            let lease = ended(&store, new(number), 10, blob(900)).await;
            let read = store.get(id(number)).await.expect("it works");
            assert_eq!(read.expect("it is there").status, Status::Completed);
            let one = RemovedTasks {
                count: 1,
                blobs: vec![lease],
            };
            assert_eq!(delete(number).await, Deletion::Done(one));
            assert_eq!(store.get(id(number)).await.expect("it works"), None);
        }
    });
}

#[test]
fn a_key_may_be_used_again_when_its_task_is_deleted() {
    of_every_store(WIDE, async |store| {
        let keyed = |number| NewTask {
            idempotency: Some(Idempotency {
                key: "k".to_owned(),
                fingerprint: [1; 32],
            }),
            ..new(number)
        };
        ended(&store, keyed(1), 10, medium(1)).await;
        let same = store.enqueue(keyed(2), at(20)).await;
        assert_eq!(same.expect("it is the first"), id(1));
        store.delete(id(1)).await.expect("it works");
        let another = store.enqueue(keyed(3), at(20)).await;
        assert_eq!(another.expect("it is new"), id(3));
    });
}

#[test]
fn what_ended_first_is_purged_first() {
    of_every_store(WIDE, async |store| {
        for (number, now, answer) in [
            (1, 300, medium(1)),
            (2, 100, blob(900)),
            (3, 200, StoredContent::Inline(b"{}".to_vec())),
            (4, 200, blob(900)),
        ] {
            ended(&store, new(number), now, answer).await;
        }
        store.enqueue(new(5), at(1)).await.expect("it is accepted");
        let purge = async |by, max| store.purge(at(by), max).await.expect("it works");
        let lease = |number| Lease {
            task: id(number),
            attempt: 1,
        };
        assert_eq!(purge(99, 9).await, RemovedTasks::default());
        assert_eq!(purge(200, 2).await.blobs, [lease(2)]);
        let left = store.list(AccountId(1), None, None, 9).await;
        let left: Vec<_> = left.expect("it works").iter().map(|task| task.id).collect();
        assert_eq!(left, [5, 4, 1].map(id));
        let rest = purge(1_000_000, 9).await;
        assert_eq!((rest.count, rest.blobs), (2, vec![lease(4)]));
        // A waiting task of the same age stays.
        assert_eq!(store.load().await.expect("it works"), (1, 0));
        let counts = store.statistics().await.expect("it works");
        assert_eq!((counts.waiting, counts.completed), (1, 0));
    });
}

#[test]
fn answers_beside_the_record_come_back_and_expire() {
    of_every_store(WIDE, async |store| {
        for number in 1..=3 {
            let task = NewTask {
                body: medium(number),
                ..new(number)
            };
            store.enqueue(task, at(1)).await.expect("it is accepted");
        }
        for number in 1..=3 {
            let claimed = store.claim(1).await.expect("it works");
            assert_eq!(claimed[0].body, medium(number));
            let lease = claimed[0].lease;
            let answer = medium(number + 10);
            let done = store.complete(lease, answer.clone(), at(5), at(50)).await;
            assert!(done.expect("it works"));
            let task = store.get(id(number)).await.expect("it works");
            let outcome = TaskOutcome::Answer {
                media_type: None,
                worker: None,
                content: answer,
                attempt: 1,
                expires_at: Some(at(50)),
            };
            assert_eq!(task.expect("it is there").outcome, Some(outcome));
        }
        let failed = NewTask {
            body: medium(4),
            ..new(4)
        };
        store.enqueue(failed, at(1)).await.expect("it is accepted");
        let lease = store.claim(1).await.expect("it works")[0].lease;
        let failure = TaskFailure {
            body: Some(vec![b'x'; 5000]),
            ..TaskFailure::crashed()
        };
        let stored = store.fail(lease, failure.clone(), at(5)).await;
        assert!(stored.expect("it works"));
        let task = store
            .get(id(4))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(task.outcome, Some(TaskOutcome::Failed(failure)));
        let swept = store.sweep(at(50), 9).await.expect("it works");
        assert_eq!((swept.count, swept.blobs), (3, Vec::new()));
        let task = store
            .get(id(2))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(task.outcome, Some(TaskOutcome::Expired));
    });
}

#[test]
fn nothing_of_a_deleted_task_stays_in_the_database() {
    let (directory, stores) = directory();
    let store = open(&stores, WIDE);
    block_on(async {
        for number in 1..=6 {
            let task = NewTask {
                body: medium(number),
                ..new(number)
            };
            ended(&store, task, 10, medium(number)).await;
        }
        // A lost lease leaves nothing behind, either.
        let task = NewTask {
            body: medium(7),
            ..new(7)
        };
        store.enqueue(task, at(1)).await.expect("it is accepted");
        let lease = store.claim(1).await.expect("it works")[0].lease;
        store.cancel(id(7), at(5)).await.expect("it works");
        let lost = store.complete(lease, medium(7), at(6), at(9)).await;
        assert!(!lost.expect("it works"));
        store.delete(id(2)).await.expect("it works");
        store.purge(at(100), 99).await.expect("it works");
    });
    drop(store);
    let database = rusqlite::Connection::open(directory.path().join("pkgtool.db"));
    let database = database.expect("it opens");
    for table in ["task", "content"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let rows: i64 = database
            .query_row(&sql, [], |row| row.get(0))
            .expect("a table");
        assert_eq!(rows, 0, "{table}");
    }
}

#[test]
fn the_database_does_not_grow_when_as_much_is_deleted_as_comes() {
    let (directory, stores) = directory();
    let store = open(&stores, WIDE);
    let file = directory.path().join("pkgtool.db");
    let mut sizes = Vec::new();
    block_on(async {
        for round in 0..6 {
            for number in 0..200 {
                let number = round * 200 + number + 1;
                let task = NewTask {
                    body: medium(number),
                    ..new(number)
                };
                let now = i64::try_from(number).expect("a few");
                ended(&store, task, now, medium(number)).await;
                store.purge(at(now - 100), 99).await.expect("it works");
            }
            let database = rusqlite::Connection::open(&file).expect("it opens");
            let pages = database.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0));
            sizes.push(pages.expect("a number"));
        }
    });
    assert!(sizes[5] <= sizes[1] + 2, "{sizes:?}");
}

#[test]
fn as_many_tasks_are_kept_as_an_account_may_have() {
    let caps = Caps {
        quota: Quota {
            tasks: 3,
            bytes: 0,
            other_bytes: 0,
        },
        ..WIDE
    };
    of_every_store(caps, async |store| {
        ended(&store, new(1), 10, blob(900)).await;
        for number in [2, 3] {
            store
                .enqueue(new(number), at(1))
                .await
                .expect("it is accepted");
        }
        for _ in 0..3 {
            let refused = store.enqueue(new(4), at(20)).await;
            let refused = refused.expect_err("it is one too many");
            assert!(matches!(refused, EnqueueError::TooManyStored { limit: 3 }));
            assert!(refused.to_string().contains("DELETE"), "{refused}");
        }
        // Another account has its own quota.
        store
            .enqueue(of(3, 5), at(20))
            .await
            .expect("it is accepted");
        store.delete(id(1)).await.expect("it works");
        store.enqueue(new(6), at(20)).await.expect("there is room");
        let refused = store.enqueue(new(7), at(20)).await;
        assert!(matches!(refused, Err(EnqueueError::TooManyStored { .. })));
        store.cancel(id(2), at(20)).await.expect("it works");
        store.purge(at(20), 9).await.expect("it works");
        store.enqueue(new(8), at(20)).await.expect("there is room");
    });
}

#[test]
fn bytes_are_counted_wherever_they_are() {
    let caps = Caps {
        quota: Quota {
            tasks: 0,
            bytes: 5_000,
            other_bytes: 0,
        },
        ..WIDE
    };
    of_every_store(caps, async |store| {
        let with = |number, body| NewTask {
            body,
            config: None,
            ..new(number)
        };
        let add = async |number, body| store.enqueue(with(number, body), at(1)).await;
        add(1, blob(3_000)).await.expect("it fits");
        add(2, medium(2)).await.expect("it fits");
        add(3, blob(1_000)).await.expect("it fits just");
        let refused = add(4, StoredContent::Inline(b"1".to_vec())).await;
        let refused = refused.expect_err("it is too much");
        let EnqueueError::TooManyBytes { held, size, limit } = refused else {
            panic!("{refused}");
        };
        assert_eq!((held, size, limit), (5_000, 1, 5_000));
        // The body is deleted when the task ends, and its answer counts from then on.
        let lease = store.claim(1).await.expect("it works")[0].lease;
        let done = store.complete(lease, medium(1), at(5), at(9)).await;
        assert!(done.expect("it works"));
        add(4, blob(2_000)).await.expect("it fits just");
        assert!(add(5, blob(1)).await.is_err());
        // The task expires.
        assert_eq!(store.sweep(at(9), 9).await.expect("it works").count, 1);
        add(5, blob(1_000)).await.expect("it fits just");
        assert!(add(6, blob(1)).await.is_err());
        store.cancel(id(3), at(9)).await.expect("it works");
        add(6, blob(1_000)).await.expect("it fits just");
        // A config counts as well.
        let configured = NewTask {
            config: Some("{}".to_owned()),
            ..with(7, StoredContent::Inline(Vec::new()))
        };
        assert!(store.enqueue(configured, at(1)).await.is_err());
    });
}

#[test]
fn what_another_process_deletes_counts_no_more() {
    let caps = Caps {
        quota: Quota {
            tasks: 2,
            bytes: 0,
            other_bytes: 0,
        },
        ..WIDE
    };
    let (_directory, stores) = directory();
    let (store, other) = (open(&stores, caps), open(&stores, caps));
    block_on(async {
        for number in [1, 2] {
            ended(&store, new(number), 10, medium(number)).await;
        }
        assert!(store.enqueue(new(3), at(20)).await.is_err());
        assert_eq!(other.purge(at(10), 9).await.expect("it works").count, 2);
        // The quota is recounted after a while.
        assert!(store.enqueue(new(3), at(30)).await.is_err());
        let later = at(60_000);
        store.enqueue(new(3), later).await.expect("there is room");
        store.enqueue(new(4), later).await.expect("there is room");
        assert!(store.enqueue(new(5), later).await.is_err());
        // A cached task is also read again.
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while store.get(id(1)).await.expect("it works").is_some() {
            assert!(std::time::Instant::now() < deadline);
        }
    });
}
