//! A group of changes that are stored in one transaction: tasks that are created, and tasks that end or return to the
//! queue.
//!
//! Invariant: a group holds the rows of its tasks, in the order of their ids, then those of their accounts. A change
//! is made only by whoever holds the task: the node's number and the attempt are checked in the transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::accounts::{self, AccountLoad, AccountLoads, RateWindows};
use super::changes::{Creation, EndingKind, TaskEnding};
use super::columns::{EndedRows, NewRows};
use super::rows::{self, Fault};
use crate::account::{AccountId, UNLIMITED};
use crate::database::Timestamp;
use crate::task::rate::RateWindow;
use crate::task::stored::{ANSWERED, CANCELED_BY_USER, FAILED};
use crate::task::{EnqueueError, Limit, TaskEvent, TaskFailure, TaskId};

/// Changes for one transaction.
#[derive(Debug, Default)]
pub(super) struct ChangeGroup {
    pub(super) creations: Vec<Arc<Creation>>,
    pub(super) endings: Vec<Arc<TaskEnding>>,
    /// True if an attempt to store the group may have succeeded without word of it.
    pub(super) is_repeated: bool,
}

/// The results of the changes, and the notifications for others.
#[derive(Debug, Default)]
pub(super) struct GroupOutcome {
    pub(super) created: Vec<Result<TaskId, EnqueueError>>,
    pub(super) ended: Vec<bool>,
    pub(super) events: Vec<TaskEvent>,
    /// A task may be claimable.
    pub(super) wakes: bool,
}

impl GroupOutcome {
    /// Returns the number of tasks that ended or returned to the queue.
    pub(super) fn changed(&self) -> u64 {
        self.ended.iter().filter(|ended| **ended).count() as u64
    }
}

/// A task that waits or runs.
struct HeldTask {
    caller: AccountId,
    node: Option<i64>,
    attempt: u32,
    crashes: u32,
    retries: bool,
    bytes: u64,
}

/// The task that an idempotency key belongs to, and the checksum of its request.
type KnownRepeat = (TaskId, [u8; 32]);

/// The state of a transaction.
struct GroupState<'g> {
    tasks: HashMap<TaskId, HeldTask>,
    loads: AccountLoads,
    rates: RateWindows,
    repeats: HashMap<(AccountId, String), KnownRepeat>,
    /// Tasks of a repeated group that its earlier attempt stored.
    stored: BTreeSet<(TaskId, u32)>,
    new: NewRows<'g>,
    ended: EndedRows<'g>,
    /// How a task ends that crashed too often.
    given_up: &'g EndingKind,
    put_back: Vec<(Uuid, i64)>,
    outcome: GroupOutcome,
}

/// Makes the changes of a group in a transaction.
pub(super) async fn apply(
    transaction: &Transaction<'_>,
    group: &ChangeGroup,
) -> Result<GroupOutcome, Fault> {
    let given_up = EndingKind::Failure(TaskFailure::crashed());
    let mut state = GroupState::hold(transaction, group, &given_up).await?;
    for ending in &group.endings {
        let ended = state.end(ending);
        state.outcome.ended.push(ended);
    }
    for creation in &group.creations {
        let created = state.create(creation);
        state.outcome.created.push(created);
    }
    state.store(transaction).await
}

impl ChangeGroup {
    /// Returns the rates that its creations count in.
    fn rates(&self) -> BTreeMap<AccountId, u32> {
        let creations = self.creations.iter();
        let counted = creations
            .filter(|creation| !creation.limit.is_counted && creation.limit.rps != UNLIMITED);
        counted
            .map(|creation| (creation.task.caller, creation.limit.rps))
            .collect()
    }
}

impl<'g> GroupState<'g> {
    async fn hold(
        transaction: &Transaction<'_>,
        group: &'g ChangeGroup,
        given_up: &'g EndingKind,
    ) -> Result<Self, Fault> {
        let tasks = hold_tasks(transaction, &group.endings).await?;
        let callers = group.creations.iter().map(|creation| creation.task.caller);
        let callers: BTreeSet<_> = callers.chain(tasks.values().map(|it| it.caller)).collect();
        let loads = if callers.is_empty() {
            AccountLoads::new()
        } else {
            accounts::hold(transaction, &callers).await?
        };
        Ok(Self {
            tasks,
            loads,
            rates: accounts::hold_rates(transaction, &group.rates()).await?,
            repeats: known_repeats(transaction, &group.creations).await?,
            stored: if group.is_repeated {
                already_stored(transaction, group).await?
            } else {
                BTreeSet::new()
            },
            new: NewRows::default(),
            ended: EndedRows::default(),
            given_up,
            put_back: Vec::new(),
            outcome: GroupOutcome::default(),
        })
    }

    fn load(&mut self, account: AccountId) -> &mut AccountLoad {
        self.loads.entry(account).or_default()
    }

    fn create(&mut self, creation: &'g Creation) -> Result<TaskId, EnqueueError> {
        let (task, limit) = (&creation.task, creation.limit);
        if self.stored.contains(&(task.id, 0)) {
            return Ok(task.id);
        }
        let key = |key: &str| (task.caller, key.to_owned());
        let repeat = task.idempotency.as_ref();
        if let Some(repeat) = repeat
            && let Some((first, sha256)) = self.repeats.get(&key(&repeat.key)).copied()
        {
            if sha256 != repeat.fingerprint {
                return Err(EnqueueError::Conflict);
            }
            self.admit(task.caller, limit, creation.now)?;
            return Ok(first);
        }
        let load = *self.load(task.caller);
        if load.waiting >= u64::from(limit.waiting) {
            let limit = limit.waiting;
            return Err(EnqueueError::TooManyWaiting { limit });
        }
        let counts = (load.tasks, load.bytes);
        EnqueueError::check_quota(limit.quota, counts, task.bytes())?;
        self.admit(task.caller, limit, creation.now)?;
        let load = self.load(task.caller);
        load.waiting += 1;
        load.tasks += 1;
        load.bytes += task.bytes();
        // An account at its running limit wakes nobody; the end of one of its tasks will.
        self.outcome.wakes |= load.running < u64::from(limit.running);
        if let Some(repeat) = repeat {
            self.repeats
                .insert(key(&repeat.key), (task.id, repeat.fingerprint));
        }
        self.new.push(task, creation.now);
        Ok(task.id)
    }

    /// Counts a request in its account's rate.
    fn admit(
        &mut self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), EnqueueError> {
        if limit.is_counted || limit.rps == UNLIMITED {
            return Ok(());
        }
        let window = self.rates.entry(account).or_default();
        admit(window, limit.rps, now)
    }

    /// Ends a task, or returns it to the queue. Returns `false` if another holds it.
    fn end(&mut self, ending: &'g TaskEnding) -> bool {
        let task = ending.task;
        let is_holder = |held: &HeldTask| match ending.holder {
            None => true,
            Some((node, attempt)) => held.node == Some(node) && held.attempt == attempt,
        };
        if !self.tasks.get(&task).is_some_and(is_holder) {
            let attempt = ending.holder.map_or(0, |(_, attempt)| attempt);
            return self.stored.contains(&(task, attempt));
        }
        let Some(held) = self.tasks.remove(&task) else {
            return false;
        };
        let load = self.loads.entry(held.caller).or_default();
        match held.node {
            None => load.waiting = load.waiting.saturating_sub(1),
            Some(_) => load.running = load.running.saturating_sub(1),
        }
        self.outcome.wakes |= held.node.is_some();
        let how = match &ending.how {
            EndingKind::PutBack { crashed, attempts } => {
                let crashes = held.crashes + u32::from(*crashed);
                let is_given_up = *crashed && (!held.retries || crashes >= *attempts);
                if !is_given_up {
                    load.waiting += 1;
                    self.put_back.push((task.uuid(), crashes.into()));
                    return true;
                }
                self.given_up
            }
            other => other,
        };
        let outcome = match how {
            EndingKind::Answer(..) => ANSWERED,
            EndingKind::ByUser => CANCELED_BY_USER,
            EndingKind::Failure(_) | EndingKind::PutBack { .. } => FAILED,
        };
        let status = rows::status_of(outcome);
        let bytes = self.ended.push(task, (outcome, ending.now), how);
        load.bytes = load.bytes.saturating_sub(held.bytes) + bytes;
        self.outcome.events.push(TaskEvent { task, status });
        true
    }

    /// Stores all changes.
    async fn store(self, transaction: &Transaction<'_>) -> Result<GroupOutcome, Fault> {
        let (put_back, crashes): (Vec<Uuid>, Vec<i64>) = self.put_back.into_iter().unzip();
        let put_back = async {
            if put_back.is_empty() {
                return Ok(0);
            }
            let sql = "UPDATE task_active AS known SET node = NULL, crashes = back.crashes
                FROM unnest($1::UUID[], $2::BIGINT[]) AS back (id, crashes) WHERE known.id = back.id";
            let values: &[&(dyn ToSql + Sync)] = &[&put_back, &crashes];
            let update = transaction.prepare_cached(sql).await?;
            transaction.execute(&update, values).await
        };
        // The statements are sent at once.
        let stored = tokio::join!(
            self.new.store(transaction),
            self.ended.store(transaction),
            put_back,
            accounts::store_rates(transaction, &self.rates),
            accounts::store(transaction, &self.loads),
        );
        let faults = <[_; 5]>::from(stored).into_iter().filter_map(Result::err);
        match faults.min_by_key(rows::is_aftermath) {
            Some(fault) => Err(fault),
            None => Ok(self.outcome),
        }
    }
}

/// Counts a request in a window.
pub(super) fn admit(
    window: &mut RateWindow,
    limit: u32,
    now: Timestamp,
) -> Result<(), EnqueueError> {
    let admitted = window.admit(limit, now);
    admitted.map_err(|retry_after| EnqueueError::RateExceeded { limit, retry_after })
}

/// Takes the rows of the tasks that end.
async fn hold_tasks(
    transaction: &Transaction<'_>,
    endings: &[Arc<TaskEnding>],
) -> Result<HashMap<TaskId, HeldTask>, Fault> {
    if endings.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = endings.iter().map(|ending| ending.task.uuid()).collect();
    let sql = "SELECT id, attempt, caller, node, crashes, retries, bytes FROM task_active
        WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    let hold = transaction.prepare_cached(sql).await?;
    let found = transaction.query(&hold, &[&ids]).await?;
    let read = |row: &Row| {
        let lease = rows::lease(row)?;
        let task = HeldTask {
            caller: AccountId(row.try_get(2)?),
            node: row.try_get(3)?,
            attempt: lease.attempt,
            crashes: u32::try_from(rows::number(row, 4)?).unwrap_or(u32::MAX),
            retries: row.try_get(5)?,
            bytes: rows::number(row, 6)?,
        };
        Ok((lease.task, task))
    };
    found.iter().map(read).collect()
}

/// Finds the tasks of idempotency keys. The accounts are held, so no other transaction adds one.
async fn known_repeats(
    transaction: &Transaction<'_>,
    creations: &[Arc<Creation>],
) -> Result<HashMap<(AccountId, String), KnownRepeat>, Fault> {
    let keys = creations.iter().filter_map(|creation| {
        let repeat = creation.task.idempotency.as_ref()?;
        Some((creation.task.caller.0, repeat.key.as_str()))
    });
    let (callers, keys): (Vec<i64>, Vec<&str>) = keys.unzip();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "SELECT task, sha256, caller, key FROM task_repeat
        WHERE (caller, key) IN (SELECT * FROM unnest($1::BIGINT[], $2::TEXT[]))";
    let find = transaction.prepare_cached(sql).await?;
    let found = transaction.query(&find, &[&callers, &keys]).await?;
    let read = |row: &Row| {
        let of = (AccountId(row.try_get(2)?), row.try_get(3)?);
        Ok((of, (rows::id(row)?, rows::checksum(row, 1)?)))
    };
    found.iter().map(read).collect()
}

/// Finds what an earlier attempt of a group stored: created tasks (with attempt 0), and tasks that ended in the attempt
/// that the group names.
async fn already_stored(
    transaction: &Transaction<'_>,
    group: &ChangeGroup,
) -> Result<BTreeSet<(TaskId, u32)>, Fault> {
    let created = group.creations.iter().map(|it| (it.task.id, 0));
    let ended = group
        .endings
        .iter()
        .filter_map(|it| Some((it.task, it.holder?.1)));
    let wanted: BTreeSet<(TaskId, u32)> = created.chain(ended).collect();
    let ids: Vec<Uuid> = wanted.iter().map(|(task, _)| task.uuid()).collect();
    let sql = "SELECT id, attempt, TRUE FROM task_done WHERE id = ANY($1)
        UNION ALL SELECT id, attempt, node IS NULL FROM task_active WHERE id = ANY($1)";
    let found = transaction.query(sql, &[&ids]).await?;
    let mut stored = BTreeSet::new();
    for row in &found {
        let lease = rows::lease(row)?;
        stored.insert((lease.task, 0));
        if row.try_get(2)? {
            stored.insert((lease.task, lease.attempt));
        }
    }
    Ok(&stored & &wanted)
}
