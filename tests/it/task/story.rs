//! Scenarios that every task store must pass.

use std::sync::Arc;

use pkgtool_serve::account::{AccountId, Accounts};
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::task::{
    Caps, EnqueueError, Idempotency, Lease, Limit, NewTask, OnCrash, Quota, RemovedTasks, Status,
    StoredAnswer, StoredContent, TaskEvent, TaskFailure, TaskOutcome,
};

use super::{Limited, WIDE, block_on, directory, id, new, of, of_every_store, open};

fn at(millis: i64) -> Timestamp {
    Timestamp(millis)
}

fn inline(text: &str) -> StoredContent {
    StoredContent::Inline(text.as_bytes().to_vec())
}

async fn add(store: &Limited, task: NewTask, now: i64) {
    store.enqueue(task, at(now)).await.expect("it is accepted");
}

async fn claim_one(store: &Limited) -> Lease {
    let claimed = store.claim(1).await.expect("it works");
    claimed.first().expect("one waits").lease
}

/// Returns the expected result of removing `count` tasks whose answers are these blobs.
fn removed(blobs: &[u64], count: usize) -> RemovedTasks {
    let lease = |number: &u64| Lease {
        task: id(*number),
        attempt: 1,
    };
    RemovedTasks {
        count,
        blobs: blobs.iter().map(lease).collect(),
    }
}

async fn status(store: &Limited, number: u64) -> Status {
    let task = store.get(id(number)).await.expect("it works");
    task.expect("it is there").status
}

#[test]
fn a_task_goes_its_way() {
    of_every_store(WIDE, async |store| {
        let mut events = store.events();
        let mut wakeups = store.wakeups();
        wakeups.borrow_and_update();
        add(&store, new(1), 100).await;
        assert!(wakeups.has_changed().expect("the store lives"));
        add(&store, new(2), 101).await;
        assert_eq!(store.place(id(2)).await.expect("it works"), Some(1));
        assert_eq!(store.load().await.expect("it works"), (2, 0));
        let claimed = store.claim(1).await.expect("it works");
        assert_eq!(
            claimed[0].lease,
            Lease {
                task: id(1),
                attempt: 1
            }
        );
        assert_eq!(claimed[0].body, inline("1"));
        assert_eq!(claimed[0].config.as_deref(), Some("{}"));
        assert_eq!(store.place(id(1)).await.expect("it works"), None);
        assert_eq!(store.place(id(2)).await.expect("it works"), Some(0));
        let lease = claimed[0].lease;
        let done = store.complete(lease, inline("[1]"), at(200), at(900)).await;
        assert!(done.expect("it works"));
        let task = store
            .get(id(1))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(task.status, Status::Completed);
        assert_eq!(
            (task.created_at, task.completed_at),
            (at(100), Some(at(200)))
        );
        let outcome = TaskOutcome::Answer {
            content: inline("[1]"),
            media_type: None,
            worker: None,
            attempt: 1,
            expires_at: None,
        };
        assert_eq!(task.outcome, Some(outcome));
        let event = TaskEvent {
            task: id(1),
            status: Status::Completed,
        };
        assert_eq!(events.try_recv(), Ok(event));
        // A finished task no longer changes.
        for again in [
            store.complete(lease, inline("[2]"), at(300), at(900)).await,
            store.fail(lease, TaskFailure::crashed(), at(300)).await,
            store.release(lease, true, at(300)).await,
        ] {
            assert!(!again.expect("it works"));
        }
        assert_eq!(
            store.cancel(id(1), at(300)).await.expect("it works"),
            Some(task)
        );
        assert_eq!(store.get(id(9)).await.expect("it works"), None);
        assert_eq!(store.cancel(id(9), at(300)).await.expect("it works"), None);
    });
}

#[test]
fn accounts_take_turns() {
    of_every_store(WIDE, async |store| {
        for number in 1..=4 {
            add(&store, of(1, number), 100).await;
        }
        add(&store, of(3, 5), 100).await;
        add(&store, of(2, 6), 100).await;
        let claimed = store.claim(10).await.expect("it works");
        let order: Vec<_> = claimed.iter().map(|task| task.lease.task).collect();
        assert_eq!(order, [1, 6, 5, 2, 3, 4].map(id));
        add(&store, of(1, 7), 100).await;
        add(&store, of(3, 8), 100).await;
        // The first account was served last.
        assert_eq!(claim_one(&store).await.task, id(8));
    });
}

#[test]
fn limits_hold() {
    let caps = Caps {
        waiting: 3,
        running: 2,
        ..WIDE
    };
    of_every_store(caps, async |store| {
        for number in 1..=3 {
            add(&store, new(number), 100).await;
        }
        let refused = store.enqueue(new(4), at(100)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::TooManyWaiting { limit: 3 })
        ));
        assert_eq!(store.claim(10).await.expect("it works").len(), 2);
        add(&store, new(4), 100).await;
        assert!(store.claim(10).await.expect("it works").is_empty());
        store.cancel(id(1), at(110)).await.expect("it works");
        assert_eq!(claim_one(&store).await.task, id(3));
        // A missing or blocked account cannot create tasks.
        let nobody = store.enqueue(of(9, 5), at(100)).await;
        assert!(matches!(nobody, Err(EnqueueError::Blocked)));
    });
}

#[test]
fn a_rate_holds_for_tasks_and_other_requests() {
    of_every_store(WIDE, async |store| {
        for number in 0..5 {
            add(&store, of(2, number), 1000).await;
        }
        store
            .admit(AccountId(2), at(1001))
            .await
            .expect("it is the sixth");
        store
            .admit(AccountId(2), at(1002))
            .await
            .expect("it is the seventh");
        let refused = store.admit(AccountId(2), at(1003)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::RateExceeded {
                limit: 7,
                retry_after: 997
            })
        ));
        let refused = store.enqueue(of(2, 10), at(1999)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::RateExceeded { retry_after: 1, .. })
        ));
        add(&store, of(2, 10), 2000).await;
    });
}

#[test]
fn many_at_once_are_counted_exactly() {
    let (_directory, stores) = directory();
    let store = open(
        &stores,
        Caps {
            waiting: 37,
            ..WIDE
        },
    );
    let accepted = block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for number in 0..200 {
            let store = Arc::clone(&store);
            all.spawn(async move { store.enqueue(new(number), at(100)).await.is_ok() });
        }
        all.join_all()
            .await
            .into_iter()
            .filter(|accepted| *accepted)
            .count()
    });
    assert_eq!(accepted, 37);
}

#[test]
fn a_cancel_ends_a_task_wherever_it_is() {
    of_every_store(WIDE, async |store| {
        add(&store, new(1), 100).await;
        add(&store, new(2), 100).await;
        let lease = claim_one(&store).await;
        for number in [1, 2] {
            let canceled = store.cancel(id(number), at(50)).await.expect("it works");
            let canceled = canceled.expect("it is there");
            assert_eq!(canceled.status, Status::Canceled);
            assert_eq!(canceled.outcome, Some(TaskOutcome::CanceledByUser));
            // The clock had jumped back.
            assert_eq!(canceled.completed_at, Some(at(100)));
        }
        let dropped = store
            .complete(lease, inline("late"), at(200), at(900))
            .await;
        assert!(!dropped.expect("it works"));
        assert_eq!(store.heartbeat(&[lease]).await.expect("it works"), [lease]);
        assert!(store.claim(9).await.expect("it works").is_empty());
    });
}

#[test]
fn only_the_last_claim_may_finish() {
    of_every_store(WIDE, async |store| {
        add(&store, new(1), 100).await;
        let first = claim_one(&store).await;
        assert!(
            store
                .release(first, false, at(110))
                .await
                .expect("it works")
        );
        assert_eq!(status(&store, 1).await, Status::Queued);
        let second = claim_one(&store).await;
        assert_ne!(first, second);
        let stale = store.complete(first, inline("old"), at(120), at(900)).await;
        assert!(!stale.expect("it works"));
        assert_eq!(
            store.heartbeat(&[first, second]).await.expect("it works"),
            [first]
        );
        let good = store.fail(second, TaskFailure::body_lost(), at(120)).await;
        assert!(good.expect("it works"));
        let task = store
            .get(id(1))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(task.status, Status::Canceled);
        assert_eq!(
            task.outcome,
            Some(TaskOutcome::Failed(TaskFailure::body_lost()))
        );
    });
}

#[test]
fn crashes_are_counted_and_put_backs_are_not() {
    of_every_store(WIDE, async |store| {
        add(&store, new(1), 100).await;
        for _ in 0..5 {
            let lease = claim_one(&store).await;
            assert!(
                store
                    .release(lease, false, at(110))
                    .await
                    .expect("it works")
            );
        }
        let lease = claim_one(&store).await;
        assert!(store.release(lease, true, at(110)).await.expect("it works"));
        claim_one(&store).await;
        assert_eq!(store.recover(at(120)).await.expect("it works"), 1);
        assert_eq!(status(&store, 1).await, Status::Queued);
        claim_one(&store).await;
        assert_eq!(store.recover(at(130)).await.expect("it works"), 1);
        let task = store
            .get(id(1))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(
            task.outcome,
            Some(TaskOutcome::Failed(TaskFailure::crashed()))
        );
        add(
            &store,
            NewTask {
                on_crash: OnCrash::Fail,
                ..new(2)
            },
            100,
        )
        .await;
        let lease = claim_one(&store).await;
        store.release(lease, true, at(140)).await.expect("it works");
        assert_eq!(status(&store, 2).await, Status::Canceled);
    });
}

#[test]
fn media_types_are_kept() {
    of_every_store(WIDE, async |store| {
        let blob = StoredContent::Blob {
            size: 500,
            sha256: [7; 32],
        };
        let text = |content: StoredContent| StoredAnswer {
            content,
            media_type: Some("text/plain; charset=utf-8".to_owned()),
            worker: Some("desk/1".to_owned()),
        };
        let answers = [text(inline("a")), inline("{}").into(), text(blob)];
        for (number, answer) in (1..).zip(&answers) {
            add(&store, new(number), 100).await;
            let lease = claim_one(&store).await;
            let done = store.complete(lease, answer.clone(), at(200), at(900));
            assert!(done.await.expect("it works"));
        }
        let failure = TaskFailure {
            body: Some(b"<p>no".to_vec()),
            media_type: Some("text/html".to_owned()),
            worker: Some("desk/2".to_owned()),
            ..TaskFailure::new(418, "UPSTREAM_ERROR", "it said so")
        };
        add(&store, new(4), 100).await;
        let lease = claim_one(&store).await;
        let failed = store.fail(lease, failure.clone(), at(200)).await;
        assert!(failed.expect("it works"));
        // The second read uses the cache.
        for _ in 0..2 {
            for (number, answer) in (1..).zip(&answers) {
                let task = store.get(id(number)).await.expect("it works");
                let outcome = task.expect("it is there").outcome;
                let Some(TaskOutcome::Answer {
                    content,
                    media_type,
                    worker,
                    ..
                }) = outcome
                else {
                    panic!("{outcome:?}");
                };
                assert_eq!(
                    (&content, &media_type, &worker),
                    (&answer.content, &answer.media_type, &answer.worker)
                );
            }
            let task = store.get(id(4)).await.expect("it works");
            let outcome = task.expect("it is there").outcome;
            assert_eq!(outcome, Some(TaskOutcome::Failed(failure.clone())));
        }
    });
}

#[test]
fn tasks_of_paused_services_wait_and_hold_up_no_others() {
    of_every_store(WIDE, async |store| {
        let of = |number, caller, service: &str| NewTask {
            service: service.to_owned(),
            caller: AccountId(caller),
            ..new(number)
        };
        let owner = new(1).owner;
        for (number, caller, service) in [
            (1, 1, "dog"),
            (2, 1, "dog"),
            (3, 1, "cat"),
            (4, 3, "dog"),
            (5, 1, "it's \"odd\""),
        ] {
            add(&store, of(number, caller, service), 100).await;
        }
        let claim = async |max| {
            let claimed = store.claim(max).await.expect("it works");
            let ids = claimed.iter().map(|task| task.lease.task);
            ids.collect::<Vec<_>>()
        };
        store.pause(&[(owner, "dog"), (AccountId(owner.0 + 1), "cat")]);
        assert_eq!(claim(9).await, [id(3), id(5)]);
        for _ in 0..2 {
            assert_eq!(claim(9).await, []);
        }
        assert_eq!(store.load().await.expect("it works"), (3, 2));
        store.pause(&[(owner, "cat")]);
        assert_eq!(claim(2).await, [id(4), id(1)]);
        store.pause(&[]);
        assert_eq!(claim(9).await, [id(2)]);
    });
}

#[test]
fn answers_in_blobs_expire() {
    of_every_store(WIDE, async |store| {
        let blob = StoredContent::Blob {
            size: 500,
            sha256: [7; 32],
        };
        for (number, content, expires) in [
            (1, blob.clone(), 500),
            (2, inline("x"), 500),
            (3, blob.clone(), 400),
            (4, blob.clone(), 700),
            (5, blob.clone(), 650),
        ] {
            add(&store, new(number), 100).await;
            let lease = claim_one(&store).await;
            let done = store.complete(lease, content, at(200), at(expires)).await;
            assert!(done.expect("it works"));
        }
        let sweep = async |now, max| store.sweep(at(now), max).await.expect("it works");
        assert_eq!(sweep(399, 9).await, RemovedTasks::default());
        assert_eq!(sweep(600, 1).await, removed(&[3], 1));
        assert_eq!(sweep(600, 9).await, removed(&[1], 1));
        assert_eq!(sweep(600, 9).await, RemovedTasks::default());
        // Tasks are removed in the order of their ids.
        assert_eq!(sweep(800, 9).await, removed(&[4, 5], 2));
        let task = store
            .get(id(1))
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(
            (task.status, task.outcome),
            (Status::Completed, Some(TaskOutcome::Expired))
        );
    });
}

#[test]
fn a_repeated_request_is_one_task() {
    of_every_store(WIDE, async |store| {
        let keyed = |number, print| NewTask {
            idempotency: Some(Idempotency {
                key: "k".to_owned(),
                fingerprint: [print; 32],
            }),
            ..new(number)
        };
        let first = store
            .enqueue(keyed(1, 1), at(100))
            .await
            .expect("it is new");
        assert_eq!(
            store
                .enqueue(keyed(2, 1), at(100))
                .await
                .expect("it is the same"),
            first
        );
        let other = store.enqueue(keyed(3, 2), at(100)).await;
        assert!(matches!(other, Err(EnqueueError::Conflict)));
        let elsewhere = NewTask {
            caller: AccountId(3),
            ..keyed(4, 2)
        };
        assert_eq!(
            store.enqueue(elsewhere, at(100)).await.expect("it is new"),
            id(4)
        );
    });
}

#[test]
fn lists_are_the_newest_first() {
    of_every_store(WIDE, async |store| {
        for number in 1..=6 {
            add(&store, new(number), 100).await;
        }
        add(&store, of(3, 7), 100).await;
        claim_one(&store).await;
        store.cancel(id(4), at(110)).await.expect("it works");
        let ids = async |status, before: Option<u64>, max| {
            let found = store.list(AccountId(1), status, before.map(id), max).await;
            let found = found.expect("it works");
            found.into_iter().map(|task| task.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(None, None, 3).await, [6, 5, 4].map(id));
        assert_eq!(ids(None, Some(4), 9).await, [3, 2, 1].map(id));
        assert_eq!(
            ids(Some(Status::Queued), None, 9).await,
            [6, 5, 3, 2].map(id)
        );
        assert_eq!(ids(Some(Status::Processing), None, 9).await, [id(1)]);
        assert_eq!(ids(Some(Status::Canceled), None, 9).await, [id(4)]);
        assert_eq!(ids(Some(Status::Completed), None, 9).await, []);
    });
}

#[test]
fn an_account_is_seen_as_others_change_it() {
    let (_directory, stores) = directory();
    let store = open(&stores, WIDE);
    block_on(async {
        let kept = stores.accounts().await.expect("accounts");
        let accounts = Accounts::new(Arc::clone(&kept));
        let set = async |rps, blocked| {
            let set = accounts.set("a1", rps, blocked).await;
            set.expect("it is there");
            store.look(&*kept).await;
        };
        add(&store, new(1), 100).await;
        set(Some(1), None).await;
        let refused = store.enqueue(new(2), at(5000)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::TooManyWaiting { limit: 1 })
        ));
        set(Some(10), Some(true)).await;
        let refused = store.enqueue(new(2), at(9000)).await;
        assert!(matches!(refused, Err(EnqueueError::Blocked)));
        // Earlier tasks of the account still run.
        assert_eq!(claim_one(&store).await.task, id(1));
        set(None, Some(false)).await;
        add(&store, new(2), 9000).await;
    });
}

#[test]
fn ids_go_on_after_the_last_one() {
    of_every_store(WIDE, async |store| {
        assert_eq!(store.last_id().await.expect("it works"), None);
        for number in [3, 7, 5] {
            add(&store, new(number), 100).await;
        }
        assert_eq!(store.last_id().await.expect("it works"), Some(id(7)));
        store.cancel(id(7), at(110)).await.expect("it works");
        assert_eq!(store.last_id().await.expect("it works"), Some(id(7)));
    });
}

#[test]
fn limits_are_those_of_each_request() {
    of_every_store(WIDE, async |limited| {
        let limit = |waiting, rps| Limit {
            rps,
            is_counted: false,
            waiting,
            running: 1,
            quota: Quota::default(),
        };
        let add = async |number, limit| limited.store.enqueue(new(number), limit, at(100)).await;
        add(1, limit(1, 9)).await.expect("it is the first");
        let refused = add(2, limit(1, 9)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::TooManyWaiting { limit: 1 })
        ));
        add(2, limit(2, 9)).await.expect("two may wait");
        let refused = add(3, limit(9, 2)).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::RateExceeded { limit: 2, .. })
        ));
    });
}
