//! Several servers on one database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pkgtool_serve::account::{AccountId, Snapshot};
use pkgtool_serve::database::{DatabaseUrl, NodeOptions, Timestamp};
use pkgtool_serve::task::{
    Caps, EnqueueError, Idempotency, Lease, NewTask, Status, StoredContent, Stores, TaskFailure,
    TaskOutcome,
};

use super::{Limited, WIDE, block_on, id, new, of, shared_database};

/// The lease of servers in these tests, and how long a test waits for its end.
const LEASE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);

const NOW: Timestamp = Timestamp(1_000);

/// A server: its stores, and its tasks.
struct Server {
    _stores: Stores,
    tasks: Arc<Limited>,
}

async fn server(url: &DatabaseUrl, name: &str, caps: Caps) -> Server {
    let node = NodeOptions {
        name: name.to_owned(),
        lease: LEASE,
    };
    let stores = Stores::open_as(url, node).await.expect("it opens");
    let accounts = stores.accounts().await.expect("accounts");
    let accounts = Snapshot::read(&*accounts).await.expect("it works");
    let tasks = stores.tasks().await.expect("a store");
    let tasks = Arc::new(Limited::new(tasks, accounts, caps));
    tasks.recover(NOW).await.expect("it works");
    Server {
        _stores: stores,
        tasks,
    }
}

async fn claim_one(tasks: &Limited) -> Lease {
    let claimed = tasks.claim(1).await.expect("it works");
    claimed.first().expect("one waits").lease
}

fn answer(text: &str) -> StoredContent {
    StoredContent::Inline(text.as_bytes().to_vec())
}

async fn complete(tasks: &Limited, lease: Lease, text: &str) -> bool {
    let stored = tasks.complete(lease, answer(text), NOW, NOW).await;
    stored.expect("it works")
}

/// Waits until a server returns the tasks of others that are gone.
async fn reap_one(tasks: &Limited) {
    let since = Instant::now();
    while tasks.store.reap(3, NOW).await.expect("it works") == 0 {
        assert!(since.elapsed() < PATIENCE, "nothing was returned");
        tasks.heartbeat(&[]).await.expect("it works");
        tokio::time::sleep(LEASE / 8).await;
    }
}

/// Runs calls at once, and returns their answers in order.
async fn at_once<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let calls: Vec<_> = calls.map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("it does not panic"));
    }
    answers
}

/// Runs a story with a database, unless the test skips PostgreSQL.
#[track_caller]
fn with_database<F: Future<Output = ()>>(story: impl FnOnce(DatabaseUrl) -> F) {
    if let Some((url, _stores)) = shared_database() {
        block_on(story(url));
    }
}

#[test]
fn the_answer_of_a_lost_lease_is_never_stored() {
    with_database(async |url| {
        let (frozen, other) = (
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        );
        frozen.enqueue(new(1), NOW).await.expect("it is accepted");
        let lost = claim_one(&frozen).await;
        assert!(other.claim(9).await.expect("it works").is_empty());
        // The first server does not renew its lease.
        reap_one(&other).await;
        assert!(!complete(&frozen, lost, "[1]").await);
        let taken = claim_one(&other).await;
        assert_eq!(taken.attempt, 2);
        assert!(!complete(&frozen, lost, "[1]").await);
        // Even a lease that looks right belongs to the server that claimed the task.
        assert!(!complete(&frozen, taken, "[1]").await);
        assert_eq!(frozen.heartbeat(&[lost]).await.expect("it works"), [lost]);
        assert!(complete(&other, taken, "[2]").await);
        let task = frozen.get(id(1)).await.expect("it works");
        let task = task.expect("it is there");
        let TaskOutcome::Answer { content, .. } = task.outcome.expect("it ended") else {
            panic!("it has an answer");
        };
        assert_eq!(content, answer("[2]"));
        // It is a server again, under another number.
        frozen.enqueue(new(2), NOW).await.expect("it is accepted");
        let again = claim_one(&frozen).await;
        assert_eq!(frozen.heartbeat(&[again]).await.expect("it works"), []);
        assert!(complete(&frozen, again, "[3]").await);
        other.check().await.expect("the counts are right");
    });
}

#[test]
fn a_server_that_renews_its_lease_keeps_its_tasks() {
    with_database(async |url| {
        let (first, other) = (
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        );
        first.enqueue(new(1), NOW).await.expect("it is accepted");
        let held = claim_one(&first).await;
        let since = Instant::now();
        while since.elapsed() < LEASE * 4 {
            assert_eq!(first.heartbeat(&[held]).await.expect("it works"), []);
            assert_eq!(other.store.reap(3, NOW).await.expect("it works"), 0);
            tokio::time::sleep(LEASE / 10).await;
        }
        assert!(complete(&first, held, "[1]").await);
    });
}

#[test]
fn a_server_that_starts_again_takes_up_its_own_tasks_only() {
    with_database(async |url| {
        let (before, other) = (
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        );
        for number in 1..=2 {
            before
                .enqueue(new(number), NOW)
                .await
                .expect("it is accepted");
        }
        let lost = claim_one(&before).await;
        let kept = claim_one(&other).await;
        let again = server(&url, "a", WIDE).await.tasks;
        assert_eq!(claim_one(&again).await.task, lost.task);
        assert!(again.claim(9).await.expect("it works").is_empty());
        assert!(!complete(&before, lost, "[1]").await);
        assert!(complete(&other, kept, "[2]").await);
    });
}

#[test]
fn limits_hold_across_servers() {
    let caps = Caps {
        waiting: 37,
        running: 11,
        ..WIDE
    };
    with_database(async |url| {
        let mut servers = Vec::new();
        for name in ["a", "b", "c"] {
            servers.push(server(&url, name, caps).await.tasks);
        }
        let tries = (0..150).map(|number| {
            let tasks = Arc::clone(&servers[number % servers.len()]);
            async move { tasks.enqueue(of(3, 1 + number as u64), NOW).await }
        });
        let made = at_once(tries).await;
        let accepted = made.iter().filter(|made| made.is_ok()).count();
        assert_eq!(accepted, 37);
        assert!(made.iter().all(|made| matches!(
            made,
            Ok(_) | Err(EnqueueError::TooManyWaiting { limit: 37 })
        )));
        let claims = servers
            .iter()
            .cloned()
            .map(|tasks| async move { tasks.claim(9).await });
        let claims = at_once(claims).await;
        let claimed = claims.into_iter().flat_map(|it| it.expect("it works"));
        let mut claimed: Vec<_> = claimed.map(|task| task.lease.task).collect();
        claimed.sort_unstable();
        claimed.dedup();
        assert_eq!(claimed.len(), 11);
        assert_eq!(servers[0].load().await.expect("it works"), (26, 11));
        servers[1].check().await.expect("the counts are right");
    });
}

#[test]
fn a_rate_holds_across_servers() {
    with_database(async |url| {
        let (first, second) = (
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        );
        let tries = (0..40).map(|number| {
            let tasks = Arc::clone(if number % 2 == 0 { &first } else { &second });
            async move { tasks.admit(AccountId(2), NOW).await }
        });
        let admitted = at_once(tries).await;
        assert_eq!(admitted.iter().filter(|it| it.is_ok()).count(), 7);
        let refused = first.enqueue(of(2, 1), NOW).await;
        assert!(matches!(
            refused,
            Err(EnqueueError::RateExceeded { limit: 7, .. })
        ));
        let later = NOW.after(Duration::from_secs(1));
        second
            .enqueue(of(2, 1), later)
            .await
            .expect("it is accepted");
    });
}

#[test]
fn a_repeated_request_is_one_task_on_every_server() {
    with_database(async |url| {
        let servers = [
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        ];
        let tries = (1..=20).map(|number| {
            let tasks = Arc::clone(&servers[number % 2]);
            let task = NewTask {
                idempotency: Some(Idempotency {
                    key: "same".to_owned(),
                    fingerprint: [7; 32],
                }),
                ..new(number as u64)
            };
            async move { tasks.enqueue(task, NOW).await.expect("it is accepted") }
        });
        let mut made = at_once(tries).await;
        made.dedup();
        assert_eq!(made.len(), 1);
        assert_eq!(servers[0].load().await.expect("it works"), (1, 0));
    });
}

#[test]
fn others_hear_of_tasks_and_of_their_ends() {
    with_database(async |url| {
        let (first, second) = (
            server(&url, "a", WIDE).await.tasks,
            server(&url, "b", WIDE).await.tasks,
        );
        let mut wakeups = second.wakeups();
        first.enqueue(new(1), NOW).await.expect("it is accepted");
        wakeups.borrow_and_update();
        tokio::time::timeout(PATIENCE, wakeups.changed())
            .await
            .expect("it hears in time")
            .expect("the store lives");
        let lease = claim_one(&second).await;
        let mut news = first.news().expect("several servers share it");
        assert_eq!(first.ended(&[id(1)]).await.expect("it works"), []);
        let failed = second.fail(lease, TaskFailure::body_lost(), NOW).await;
        assert!(failed.expect("it works"));
        let since = Instant::now();
        loop {
            let ended = first.ended(&[id(1), id(9)]).await.expect("it works");
            let mut ended: Vec<_> = ended.iter().map(|it| (it.task, it.status)).collect();
            ended.sort_unstable_by_key(|(task, _)| *task);
            // A task that is nowhere was deleted.
            assert_eq!(
                ended,
                [(id(1), Status::Canceled), (id(9), Status::Canceled)]
            );
            if news.has_changed().expect("the store lives") {
                break;
            }
            assert!(since.elapsed() < PATIENCE);
            tokio::time::sleep(LEASE / 10).await;
        }
        news.borrow_and_update();
    });
}

/// A claim whose answer is lost, because the connection was cut, holds no task for ever.
#[test]
fn a_hidden_claim_is_undone() {
    with_database(async |url| {
        let tasks = server(&url, "a", WIDE).await.tasks;
        tasks.enqueue(new(1), NOW).await.expect("it is accepted");
        let hidden = claim_one(&tasks).await;
        assert!(tasks.claim(9).await.expect("it works").is_empty());
        assert_eq!(tasks.heartbeat(&[]).await.expect("it works"), []);
        let again = claim_one(&tasks).await;
        assert_eq!((again.task, again.attempt), (hidden.task, 2));
        assert!(!complete(&tasks, hidden, "[1]").await);
        assert!(complete(&tasks, again, "[1]").await);
        tasks.check().await.expect("the counts are right");
    });
}
