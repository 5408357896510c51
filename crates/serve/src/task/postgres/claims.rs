//! Claims of waiting tasks.
//!
//! Invariant: a claim holds the row of this node, then those of the accounts, then the tasks. Accounts that another
//! transaction holds are passed over, unless no others have tasks that may run.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::accounts::{self, AccountLoad, AccountLoads};
use super::rows::{self, CLAIMED_COLUMNS, Fault};
use crate::account::AccountId;
use crate::task::{AccountTurns, ClaimedTask, TaskLimits};

/// A claim of up to so many tasks.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) max: usize,
    pub(super) turns: std::sync::Arc<AccountTurns>,
    pub(super) limits: TaskLimits,
    pub(super) node: i64,
}

/// The result of a claim.
pub(super) enum ClaimOutcome {
    Claimed(Vec<ClaimedTask>),
    /// The node's row is gone.
    NodeIsGone,
    /// Others hold all accounts whose tasks may run.
    AllAreHeld,
}

/// The counts of accounts, and how many of them have waiting or running tasks.
struct Candidates {
    loads: AccountLoads,
    active: usize,
}

/// Returns whether a claim may find a task, and the accounts to look at.
pub(super) async fn candidates(
    client: &deadpool_postgres::Object,
    limits: &TaskLimits,
) -> Result<Option<(BTreeSet<AccountId>, usize)>, Fault> {
    let sql = "SELECT account, waiting, running, tasks, bytes FROM account_load
        WHERE waiting > 0 OR running > 0";
    let read = client.prepare_cached(sql).await?;
    let rows = client.query(&read, &[]).await?;
    let loads = rows.iter().map(accounts::read);
    let loads = loads.collect::<Result<AccountLoads, Fault>>()?;
    let found = loads
        .iter()
        .filter(|(account, load)| may_run(**account, load, limits));
    let found: BTreeSet<AccountId> = found.map(|(account, _)| *account).collect();
    Ok((!found.is_empty()).then_some((found, loads.len())))
}

fn may_run(account: AccountId, load: &AccountLoad, limits: &TaskLimits) -> bool {
    load.waiting > 0 && load.running < u64::from(limits.running(account))
}

impl Claim {
    /// Claims tasks of these accounts in a transaction. If `waits`, it waits for accounts that others hold.
    pub(super) async fn make(
        &self,
        transaction: &Transaction<'_>,
        (wanted, active): &(BTreeSet<AccountId>, usize),
        waits: bool,
    ) -> Result<ClaimOutcome, Fault> {
        let wanted = self.first_to_serve(wanted);
        // The statements are sent at once, and run in this order.
        let held = tokio::join!(
            self.hold_node(transaction),
            hold_accounts(transaction, &wanted, waits)
        );
        let (node, loads) = match held {
            (Err(after), Err(fault)) if rows::is_aftermath(&after) => return Err(fault),
            (node, loads) => (node?, loads?),
        };
        let Some(node) = node else {
            return Ok(ClaimOutcome::NodeIsGone);
        };
        if node.try_get(0)? {
            return Ok(ClaimOutcome::Claimed(Vec::new()));
        }
        if loads.is_empty() {
            return Ok(ClaimOutcome::AllAreHeld);
        }
        let mut candidates = Candidates {
            loads,
            active: *active,
        };
        let claimed = self.take(transaction, &mut candidates).await?;
        if !claimed.is_empty() {
            let changed: BTreeSet<AccountId> = claimed.iter().map(|task| task.caller).collect();
            candidates
                .loads
                .retain(|account, _| changed.contains(account));
            accounts::store(transaction, &candidates.loads).await?;
        }
        Ok(ClaimOutcome::Claimed(claimed))
    }

    async fn hold_node(&self, transaction: &Transaction<'_>) -> Result<Option<Row>, Fault> {
        let hold = "SELECT draining FROM node WHERE id = $1 FOR KEY SHARE";
        let hold = transaction.prepare_cached(hold).await?;
        transaction.query_opt(&hold, &[&self.node]).await
    }

    /// Returns the accounts whose turn comes first: no more than a claim can serve, so that other servers can claim
    /// tasks of the others meanwhile. With a share for each account, all of them.
    fn first_to_serve(&self, wanted: &BTreeSet<AccountId>) -> BTreeSet<AccountId> {
        if self.limits.share(1) > 0 || wanted.len() <= self.max {
            return wanted.clone();
        }
        let mut all: Vec<AccountId> = wanted.iter().copied().collect();
        all.sort_by_key(|account| (self.turns.last(*account), *account));
        all.into_iter().take(self.max).collect()
    }

    /// Claims in rounds, until no place is free or no task is left. A second round is necessary only for tasks of paused
    /// services: they wait, but are not claimed.
    async fn take(
        &self,
        transaction: &Transaction<'_>,
        candidates: &mut Candidates,
    ) -> Result<Vec<ClaimedTask>, Fault> {
        let mut turns = AccountTurns::clone(&self.turns);
        let mut exhausted = BTreeSet::new();
        let mut claimed = Vec::new();
        loop {
            let plan = self.plan(candidates, &turns, &exhausted, claimed.len());
            if plan.is_empty() {
                return Ok(claimed);
            }
            let mut found = self.take_planned(transaction, &plan).await?;
            for account in plan {
                let Some(task) = found.get_mut(&account).and_then(VecDeque::pop_front) else {
                    exhausted.insert(account);
                    continue;
                };
                turns.served(account);
                if let Some(load) = candidates.loads.get_mut(&account) {
                    load.waiting = load.waiting.saturating_sub(1);
                    load.running += 1;
                }
                claimed.push(task);
            }
            if exhausted.is_empty() {
                return Ok(claimed);
            }
        }
    }

    /// Returns the accounts in the order in which each gets a task.
    fn plan(
        &self,
        candidates: &Candidates,
        turns: &AccountTurns,
        exhausted: &BTreeSet<AccountId>,
        claimed: usize,
    ) -> Vec<AccountId> {
        let limits = &self.limits;
        let share = u64::from(limits.share(candidates.active));
        let mut loads = candidates.loads.clone();
        loads.retain(|account, load| {
            may_run(*account, load, limits) && !exhausted.contains(account)
        });
        let mut next: BTreeSet<(u64, AccountId)> = loads
            .keys()
            .map(|account| (turns.last(*account), *account))
            .collect();
        let mut turn = turns.claims();
        let mut plan = Vec::new();
        while let Some((_, account)) = next.pop_first() {
            let Some(load) = loads.get_mut(&account) else {
                continue;
            };
            if claimed + plan.len() >= self.max && load.running >= share {
                continue;
            }
            turn += 1;
            load.waiting -= 1;
            load.running += 1;
            if may_run(account, load, limits) {
                next.insert((turn, account));
            }
            plan.push(account);
        }
        plan
    }

    /// Claims the oldest tasks of each account in a plan.
    async fn take_planned(
        &self,
        transaction: &Transaction<'_>,
        plan: &[AccountId],
    ) -> Result<HashMap<AccountId, VecDeque<ClaimedTask>>, Fault> {
        let mut counts = BTreeMap::<i64, i64>::new();
        for account in plan {
            *counts.entry(account.0).or_default() += 1;
        }
        let (accounts, counts): (Vec<i64>, Vec<i64>) = counts.into_iter().unzip();
        let paused = self.limits.paused().iter();
        let (owners, services): (Vec<i64>, Vec<&str>) = paused
            .map(|(owner, service)| (owner.0, service.as_str()))
            .unzip();
        let sql = format!(
            "UPDATE task_active AS known SET node = $1, attempt = attempt + 1
            FROM unnest($2::BIGINT[], $3::BIGINT[]) AS wanted (account, most)
            CROSS JOIN LATERAL (
                SELECT id AS next FROM task_active
                WHERE caller = wanted.account AND node IS NULL
                    AND (owner, service) NOT IN (SELECT * FROM unnest($4::BIGINT[], $5::TEXT[]))
                ORDER BY id LIMIT wanted.most FOR UPDATE SKIP LOCKED
            ) AS first
            WHERE known.id = first.next RETURNING {CLAIMED_COLUMNS}"
        );
        let take = transaction.prepare_cached(&sql).await?;
        let values: &[&(dyn ToSql + Sync)] = &[&self.node, &accounts, &counts, &owners, &services];
        let taken = transaction.query(&take, values).await?;
        let mut taken = taken
            .iter()
            .map(rows::claimed)
            .collect::<Result<Vec<_>, _>>()?;
        taken.sort_by_key(|task| task.lease.task);
        let mut found = HashMap::<_, VecDeque<_>>::new();
        for task in taken {
            found.entry(task.caller).or_default().push_back(task);
        }
        Ok(found)
    }
}

/// Takes the rows of accounts; those that others hold only if `waits`.
async fn hold_accounts(
    transaction: &Transaction<'_>,
    wanted: &BTreeSet<AccountId>,
    waits: bool,
) -> Result<AccountLoads, Fault> {
    let numbers: Vec<i64> = wanted.iter().map(|account| account.0).collect();
    let sql = format!(
        "SELECT account, waiting, running, tasks, bytes FROM account_load
        WHERE account = ANY($1) ORDER BY account FOR UPDATE{}",
        if waits { "" } else { " SKIP LOCKED" }
    );
    let hold = transaction.prepare_cached(&sql).await?;
    let found = transaction.query(&hold, &[&numbers]).await?;
    found.iter().map(accounts::read).collect()
}
