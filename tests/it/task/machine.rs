//! Model-based test of the task stores: random histories run on a store in a database and on the in-memory
//! model. Both must answer the same after every step, even when the store is closed and reopened.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::Index;

use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::task::{
    Caps, Idempotency, Lease, NewTask, OnCrash, Quota, Status, StoredContent, Stores, TaskFailure,
    TaskId,
};

use super::{ACCOUNTS, Limited, block_on, directory, id, in_memory, of, open, shared_database};

const CAPS: Caps = Caps {
    waiting: 5,
    running: 3,
    places: 4,
    attempts: 2,
    // Quotas of a few tasks, so that some histories reach each of them.
    quota: Quota {
        tasks: 12,
        bytes: 9_000,
        other_bytes: 0,
    },
};

/// A step of a history. Tasks and leases are picked among the earlier ones.
#[derive(Debug, Clone)]
enum Step {
    Enqueue {
        account: i64,
        key: Option<u8>,
        print: u8,
        fails: bool,
        body: Size,
    },
    Admit {
        account: i64,
    },
    Claim {
        max: usize,
    },
    Heartbeat {
        lease: Index,
    },
    Complete {
        lease: Index,
        answer: Size,
        expires: i64,
    },
    Fail {
        lease: Index,
        body: Size,
    },
    Release {
        lease: Index,
        crashed: bool,
    },
    Cancel {
        task: Index,
    },
    Sweep {
        max: usize,
    },
    Delete {
        task: Index,
    },
    Purge {
        age: i64,
        max: usize,
    },
    Reopen,
}

/// Size class of a content, which decides its storage: in the task's row, in another row, or in the
/// blob store.
#[derive(Debug, Clone, Copy)]
enum Size {
    Short,
    Medium,
    Blob,
}

impl Size {
    /// Returns content of this size class, different for each number.
    fn content(self, number: u64) -> StoredContent {
        match self {
            Self::Short => StoredContent::Inline(number.to_string().into_bytes()),
            Self::Medium => StoredContent::Inline(number.to_string().repeat(300).into_bytes()),
            Self::Blob => StoredContent::Blob {
                size: 900 + number,
                sha256: [1; 32],
            },
        }
    }
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![Just(Size::Short), Just(Size::Medium), Just(Size::Blob)]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        6 => (1..=3_i64, proptest::option::weighted(0.3, 0..3_u8), 0..2_u8, any::<bool>(), size())
            .prop_map(|(account, key, print, fails, body)| {
                Step::Enqueue { account, key, print, fails, body }
            }),
        1 => (1..=4_i64).prop_map(|account| Step::Admit { account }),
        5 => (0..4_usize).prop_map(|max| Step::Claim { max }),
        1 => index().prop_map(|lease| Step::Heartbeat { lease }),
        4 => (index(), size(), 0..3000_i64)
            .prop_map(|(lease, answer, expires)| Step::Complete { lease, answer, expires }),
        1 => (index(), size()).prop_map(|(lease, body)| Step::Fail { lease, body }),
        2 => (index(), any::<bool>()).prop_map(|(lease, crashed)| Step::Release { lease, crashed }),
        2 => index().prop_map(|task| Step::Cancel { task }),
        1 => (0..3_usize).prop_map(|max| Step::Sweep { max }),
        2 => index().prop_map(|task| Step::Delete { task }),
        1 => (-100..900_i64, 0..4_usize).prop_map(|(age, max)| Step::Purge { age, max }),
        1 => Just(Step::Reopen),
    ]
}

/// The state of a history so far.
#[derive(Default)]
struct History {
    tasks: u64,
    leases: Vec<Lease>,
}

impl History {
    fn lease(&self, index: Index) -> Lease {
        if self.leases.is_empty() {
            return Lease {
                task: id(0),
                attempt: 1,
            };
        }
        self.leases[index.index(self.leases.len())]
    }

    /// Returns the id of an earlier task or of one that never existed.
    fn task(&self, index: Index) -> TaskId {
        let known = usize::try_from(self.tasks).expect("a few");
        id(1 + index.index(known + 1) as u64)
    }
}

/// Applies a step to one store and returns the answer as text.
async fn make(store: &Limited, history: &History, step: &Step, now: Timestamp) -> String {
    let after = |millis: i64| Timestamp(now.0 + millis);
    match step.clone() {
        Step::Enqueue {
            account,
            key,
            print,
            fails,
            body,
        } => {
            let task = NewTask {
                body: body.content(history.tasks + 1),
                on_crash: if fails { OnCrash::Fail } else { OnCrash::Retry },
                idempotency: key.map(|key| Idempotency {
                    key: key.to_string(),
                    fingerprint: [print; 32],
                }),
                ..of(account, history.tasks + 1)
            };
            format!("{:?}", store.enqueue(task, now).await)
        }
        Step::Admit { account } => format!("{:?}", store.admit(AccountId(account), now).await),
        Step::Claim { max } => format!("{:?}", store.claim(max).await),
        Step::Heartbeat { lease } => {
            let mut held = running(store).await;
            let lease = history.lease(lease);
            if !held.contains(&lease) {
                held.push(lease);
            }
            format!("{:?}", store.heartbeat(&held).await)
        }
        Step::Complete {
            lease,
            answer,
            expires,
        } => {
            let content = answer.content(history.tasks);
            let lease = history.lease(lease);
            format!(
                "{:?}",
                store.complete(lease, content, now, after(expires)).await
            )
        }
        Step::Fail { lease, body } => {
            let lease = history.lease(lease);
            let failure = TaskFailure {
                body: match body.content(history.tasks) {
                    StoredContent::Inline(bytes) => Some(bytes),
                    StoredContent::Blob { .. } => None,
                },
                ..TaskFailure::body_lost()
            };
            format!("{:?}", store.fail(lease, failure, now).await)
        }
        Step::Release { lease, crashed } => {
            let lease = history.lease(lease);
            format!("{:?}", store.release(lease, crashed, now).await)
        }
        Step::Cancel { task } => {
            let task = history.task(task);
            format!("{:?}", store.cancel(task, now).await)
        }
        Step::Delete { task } => format!("{:?}", store.delete(history.task(task)).await),
        Step::Purge { age, max } => format!("{:?}", store.purge(after(-age), max).await),
        Step::Sweep { max } => format!("{:?}", store.sweep(now, max).await),
        Step::Reopen => format!("{:?}", store.recover(now).await),
    }
}

/// Returns everything that can be read from a store.
async fn seen(store: &Limited, tasks: u64) -> String {
    let (load, last) = (store.load().await, store.last_id().await);
    let mut text = format!("{load:?} {last:?} {:?}", store.oldest_waiting().await);
    let (blobs, first) = (
        store.blobs(None, 99).await,
        store.blobs(Some(id(2)), 1).await,
    );
    let _ = write!(
        text,
        "\n{:?}\n{blobs:?}\n{first:?}",
        store.statistics().await
    );
    for number in 1..=tasks + 1 {
        let (task, place) = (store.get(id(number)).await, store.place(id(number)).await);
        let _ = write!(text, "\n{task:?} {place:?}");
    }
    for (account, _) in ACCOUNTS {
        for status in [None, Some(Status::Queued), Some(Status::Canceled)] {
            let listed = store.list(account, status, None, 4).await;
            let _ = write!(text, "\n{listed:?}");
        }
    }
    text
}

/// The steps of a history, with the time that passes before each. The clock sometimes jumps back.
fn steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
    proptest::collection::vec((step(), -50..400_i64), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_as_the_model_does(steps in steps()) {
        let (_directory, stores) = directory();
        follow_the_model(&stores, steps)?;
    }

    #[test]
    fn the_shared_store_does_as_the_model_does(steps in steps()) {
        if let Some((_, stores)) = shared_database() {
            follow_the_model(&stores, steps)?;
            let checked = block_on(open(&stores, CAPS).check());
            prop_assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

fn follow_the_model(stores: &Stores, steps: Vec<(Step, i64)>) -> Result<(), TestCaseError> {
    let model = in_memory(CAPS);
    let mut store = open(stores, CAPS);
    let mut history = History::default();
    let mut now = 1_000_000;
    for (step, passed) in steps {
        now += passed;
        if matches!(step, Step::Reopen) {
            drop(store);
            store = open(stores, CAPS);
            // A reopened store loses in-memory state: the order of turns and the rates of the
            // last second.
            model.forget_turns();
            now += 2000;
        }
        let at = Timestamp(now);
        let (expected, found) = block_on(async {
            (
                make(&model, &history, &step, at).await,
                make(&store, &history, &step, at).await,
            )
        });
        prop_assert_eq!(&expected, &found, "{:?}", step);
        match step {
            Step::Enqueue { .. } => history.tasks += 1,
            Step::Claim { .. } => history.leases.extend(block_on(running(&model))),
            _ => {}
        }
        let (expected, found) = block_on(async {
            (
                seen(&model, history.tasks).await,
                seen(&store, history.tasks).await,
            )
        });
        prop_assert_eq!(expected, found, "after {:?}", step);
    }
    Ok(())
}

/// Returns the leases that are valid now.
async fn running(store: &Limited) -> Vec<Lease> {
    let mut leases = Vec::new();
    for (account, _) in ACCOUNTS {
        let tasks = store
            .list(account, Some(Status::Processing), None, 99)
            .await;
        leases.extend(tasks.expect("it works").into_iter().map(|task| Lease {
            task: task.id,
            attempt: task.attempt,
        }));
    }
    leases
}
