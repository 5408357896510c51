//! Measures the store of tasks in a PostgreSQL database, for `tests/bench/cluster.py`.
//!
//! `tasks URL creates SECONDS`   creates by 64 callers at once, for 20 accounts
//! `tasks URL ends SECONDS`      fair claims of up to 64 tasks and their ends, by four claimers
//! `tasks URL reads SECONDS`     reads of random tasks, by 8 callers at once
//! `tasks URL back SECONDS`      creates as above, counted per slot of 250 ms; callers try again after an error

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pkgtool_serve::account::{Account, AccountId, Snapshot, UNLIMITED};
use pkgtool_serve::database::{NodeOptions, Timestamp};
use pkgtool_serve::task::{
    AccountTurns, Caps, Limit, NewTask, OnCrash, Quota, StoredContent, Stores, TaskId, TaskIds,
    TaskLimits, TaskStore,
};

const CALLERS: usize = 64;
const CLAIMERS: usize = 4;
const READERS: usize = 8;
const ACCOUNTS: i64 = 20;
const BODY_BYTES: usize = 1000;
const CLAIMED_AT_ONCE: usize = 64;
const SLOT: Duration = Duration::from_millis(250);
/// Pause of a caller after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

const CAPS: Caps = Caps {
    waiting: u32::MAX,
    running: u32::MAX,
    places: 0,
    attempts: 3,
    quota: Quota {
        tasks: 0,
        bytes: 0,
        other_bytes: 0,
    },
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, what, seconds] = &arguments[..] else {
        return Err("usage: tasks URL creates|ends|reads|back SECONDS".into());
    };
    let node = NodeOptions {
        name: format!("bench-{}", std::process::id()),
        lease: Duration::from_secs(30),
    };
    let stores = Stores::open_as(&url.parse()?, node).await?;
    let tasks = stores.tasks().await?;
    tasks.recover(CAPS.attempts, Timestamp::now()).await?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    if what == "back" {
        return back(tasks, time).await;
    }
    let (count, latencies) = match what.as_str() {
        "creates" => creates(tasks, time).await?,
        "ends" => ends(tasks, time).await?,
        "reads" => reads(tasks, time).await?,
        other => return Err(format!("unknown measurement `{other}`").into()),
    };
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into the latencies"
        )]
        let index = (latencies.len() as f64 * share) as usize;
        latencies
            .get(index)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
            * 1e3
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = count as f64 / time.as_secs_f64();
    let (half, most) = (at(0.5), at(0.99));
    writeln!(
        std::io::stdout(),
        "{{\"per_s\": {rate:.1}, \"p50_ms\": {half:.3}, \"p99_ms\": {most:.3}}}"
    )?;
    Ok(())
}

/// The number of operations, and their latencies in order.
type Measured = Result<(u64, Vec<Duration>), Box<dyn Error>>;

/// Runs callers until the time is over.
async fn run<F>(callers: usize, call: impl Fn(usize) -> F) -> Measured
where
    F: Future<Output = Result<(u64, Vec<Duration>), String>> + Send + 'static,
{
    let running: Vec<_> = (0..callers)
        .map(|caller| tokio::spawn(call(caller)))
        .collect();
    let (mut count, mut latencies) = (0, Vec::new());
    for caller in running {
        let (done, took) = caller.await??;
        count += done;
        latencies.extend(took);
    }
    latencies.sort_unstable();
    Ok((count, latencies))
}

/// A limit that refuses nothing.
fn unlimited() -> Result<Limit, Box<dyn Error>> {
    let limit = CAPS.of(&account(1)).ok_or("the account is not blocked")?;
    Ok(limit.counted())
}

async fn creates(tasks: Arc<dyn TaskStore>, time: Duration) -> Measured {
    let ids = Arc::new(TaskIds::after(tasks.last_id().await?));
    let limit = unlimited()?;
    let until = Instant::now() + time;
    run(CALLERS, |caller| {
        let (tasks, ids) = (Arc::clone(&tasks), Arc::clone(&ids));
        async move {
            let (mut count, mut latencies) = (0, Vec::new());
            while Instant::now() < until {
                let now = Timestamp::now();
                let turn = i64::try_from(caller).unwrap_or(0) + count;
                let task = new(ids.next(now), AccountId(1 + turn % ACCOUNTS));
                let began = Instant::now();
                let made = tasks.enqueue(task, limit, now).await;
                made.map_err(|error| error.to_string())?;
                latencies.push(began.elapsed());
                count += 1;
            }
            Ok((count.unsigned_abs(), latencies))
        }
    })
    .await
}

/// Prints the creates of each slot, with the time when the first slot began.
async fn back(tasks: Arc<dyn TaskStore>, time: Duration) -> Result<(), Box<dyn Error>> {
    let ids = Arc::new(TaskIds::after(tasks.last_id().await?));
    let limit = unlimited()?;
    let slots = time.as_millis() / SLOT.as_millis();
    let slots: Arc<Vec<AtomicU64>> = Arc::new((0..slots).map(|_| AtomicU64::new(0)).collect());
    let (began_at, began) = (
        SystemTime::now().duration_since(UNIX_EPOCH)?,
        Instant::now(),
    );
    let (errors, _) = run(CALLERS, |caller| {
        let (tasks, ids, slots) = (Arc::clone(&tasks), Arc::clone(&ids), Arc::clone(&slots));
        async move {
            let mut errors = 0;
            let mut turn = i64::try_from(caller).unwrap_or(0);
            while began.elapsed() < time {
                turn += 1;
                let now = Timestamp::now();
                let task = new(ids.next(now), AccountId(1 + turn % ACCOUNTS));
                if tasks.enqueue(task, limit, now).await.is_err() {
                    errors += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                let slot = began.elapsed().as_millis() / SLOT.as_millis();
                if let Some(slot) = usize::try_from(slot).ok().and_then(|it| slots.get(it)) {
                    slot.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok((errors, Vec::new()))
        }
    })
    .await?;
    let slots: Vec<_> = slots.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    writeln!(
        std::io::stdout(),
        "{{\"began\": {:.3}, \"slot_s\": {:.2}, \"errors\": {errors}, \"slots\": {slots:?}}}",
        began_at.as_secs_f64(),
        SLOT.as_secs_f64()
    )?;
    Ok(())
}

async fn ends(tasks: Arc<dyn TaskStore>, time: Duration) -> Measured {
    let accounts = Arc::new(Snapshot::new(
        (1..=ACCOUNTS).map(account).collect(),
        Vec::new(),
    ));
    let until = Instant::now() + time;
    let left = Arc::new(AtomicU64::new(0));
    run(CLAIMERS, |_| {
        let limits = TaskLimits::new(Arc::clone(&accounts), CAPS);
        let (tasks, left) = (Arc::clone(&tasks), Arc::clone(&left));
        async move {
            let mut turns = Arc::new(AccountTurns::default());
            let (mut count, mut latencies) = (0, Vec::new());
            while Instant::now() < until {
                let began = Instant::now();
                let claimed = tasks.claim(CLAIMED_AT_ONCE, &turns, &limits).await;
                let claimed = claimed.map_err(|error| error.to_string())?;
                if claimed.is_empty() {
                    left.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let now = Timestamp::now();
                let ends = claimed.iter().map(|task| {
                    let answer = StoredContent::Inline(b"{\"answer\": 1}".to_vec());
                    tasks.complete(task.lease, answer.into(), now, now)
                });
                for ended in futures_util::future::join_all(ends).await {
                    if !ended.map_err(|error| error.to_string())? {
                        return Err("a lease was lost".to_owned());
                    }
                    count += 1;
                    latencies.push(began.elapsed());
                }
                for task in &claimed {
                    Arc::make_mut(&mut turns).served(task.caller);
                }
            }
            Ok((count, latencies))
        }
    })
    .await
}

async fn reads(tasks: Arc<dyn TaskStore>, time: Duration) -> Measured {
    let mut known: Vec<TaskId> = Vec::new();
    for number in 1..=ACCOUNTS {
        let listed = tasks.list(AccountId(number), None, None, 1000).await?;
        known.extend(listed.iter().map(|task| task.id));
    }
    if known.is_empty() {
        return Err("the database has no tasks".into());
    }
    let known = Arc::new(known);
    let until = Instant::now() + time;
    run(READERS, |reader| {
        let (tasks, known) = (Arc::clone(&tasks), Arc::clone(&known));
        async move {
            let (mut count, mut latencies) = (0, Vec::new());
            let mut next = reader;
            while Instant::now() < until {
                next = (next + 7919) % known.len();
                let began = Instant::now();
                let found = tasks.get(known[next]).await;
                found
                    .map_err(|error| error.to_string())?
                    .ok_or("a task is missing")?;
                latencies.push(began.elapsed());
                count += 1;
            }
            Ok((count, latencies))
        }
    })
    .await
}

fn account(number: i64) -> Account {
    Account {
        id: AccountId(number),
        name: format!("account-{number}"),
        rps: UNLIMITED,
        blocked: false,
        created_at: Timestamp(0),
    }
}

fn new(id: TaskId, caller: AccountId) -> NewTask {
    NewTask {
        id,
        caller,
        owner: AccountId(1),
        service: "bench".to_owned(),
        body: StoredContent::Inline(vec![b'x'; BODY_BYTES]),
        config: None,
        data_type: None,
        on_crash: OnCrash::Retry,
        idempotency: None,
    }
}
