//! What a service did, for metrics: who asked and what came of it, how long requests waited and models
//! ran, which workers were started again.
//!
//! Invariant: a bounded number of services and accounts have series of their own, the first ones; all
//! others share those of `other`. A service that is replaced goes on with the series it had.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::account::{AccountId, CpuCounts};
use crate::metric::{Bounded, Family, Histogram, OTHER};

/// How many services have series of their own, unless a setting says otherwise.
pub const METERED_SERVICES: usize = 100;

/// How many accounts have series of their own, unless a setting says otherwise.
pub const METERED_ACCOUNTS: usize = 50;

/// The status that stands in logs and metrics for an answer that was never given.
pub const ABANDONED: u16 = 499;

/// The meters of a server.
#[derive(Debug)]
pub struct Meters {
    services: Bounded<String, Meter>,
    accounts: Arc<Accounts>,
}

/// What one service did, or all beyond the bound.
#[derive(Debug)]
pub struct Meter {
    /// Owner and name.
    pub label: String,
    /// From a request to the answer of a synchronous predict.
    pub predicts: Histogram,
    /// From the creation of a task to its run.
    pub task_waits: Histogram,
    /// The run of a task, with its place in the engine's queue.
    pub task_runs: Histogram,
    /// From a request to the run of the model.
    pub waits: Histogram,
    /// Runs of the model.
    pub runs: Histogram,
    /// Requests that shared a run.
    pub batches: Histogram,
    /// Sessions that were loaded.
    pub starts: AtomicU64,
    /// Of them those in the place of one that died.
    pub restarts: AtomicU64,
    /// Sessions that died in a run.
    pub deaths: AtomicU64,
    accounts: Arc<Accounts>,
    by_account: Family<usize, ByAccount>,
}

/// What an account asked of a service.
#[derive(Debug)]
pub struct ByAccount {
    /// The account's name.
    pub label: String,
    counts: [[AtomicU64; Outcome::ALL.len()]; Operation::ALL.len()],
}

/// What is asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A synchronous predict.
    Predict,
    /// Making a task.
    Create,
    /// The task itself.
    Task,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, or accepted.
    Done,
    /// The request was wrong.
    Refused,
    /// A limit was reached.
    Limited,
    /// There was no answer in time.
    Timeout,
    /// The client did not wait for the answer.
    Abandoned,
    /// The service or the server failed.
    Failed,
}

#[derive(Debug)]
struct Accounts {
    known: Bounded<i64, Account>,
    cpu: Arc<CpuCounts>,
}

/// An account's place among those that are told apart; all others have place 0.
#[derive(Debug)]
struct Account {
    place: usize,
    label: String,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Predict, Self::Create, Self::Task];

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Create => "create",
            Self::Task => "task",
        }
    }
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Refused,
        Self::Limited,
        Self::Timeout,
        Self::Abandoned,
        Self::Failed,
    ];

    /// What a status tells.
    pub fn of_status(status: u16) -> Self {
        match status {
            0..=399 => Self::Done,
            429 => Self::Limited,
            ABANDONED => Self::Abandoned,
            504 => Self::Timeout,
            400..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Timeout => "timeout",
            Self::Abandoned => "abandoned",
            Self::Failed => "failed",
        }
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self::new(METERED_SERVICES, METERED_ACCOUNTS)
    }
}

impl Meters {
    /// Meters that tell so many services and accounts apart.
    pub fn new(services: usize, accounts: usize) -> Self {
        let other = Account {
            place: 0,
            label: OTHER.to_owned(),
        };
        let accounts = Arc::new(Accounts {
            known: Bounded::new(accounts, other),
            cpu: Arc::default(),
        });
        let other = Meter::new(OTHER, &accounts);
        Self {
            services: Bounded::new(services, other),
            accounts,
        }
    }

    /// The CPU time of accounts.
    pub fn cpu(&self) -> &Arc<CpuCounts> {
        &self.accounts.cpu
    }

    /// The meter of a service.
    pub fn of(&self, owner: &str, name: &str) -> Arc<Meter> {
        self.labelled(&format!("{owner}/{name}"))
    }

    /// The meter of this label.
    pub fn labelled(&self, label: &str) -> Arc<Meter> {
        let make = || Meter::new(label, &self.accounts);
        self.services.of(label, make)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Meter>> {
        let mut all = self.services.all();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }
}

impl Accounts {
    fn of(&self, id: AccountId, name: &str) -> Arc<Account> {
        if name == OTHER {
            // Two series of one label would be none.
            return self.known.rest();
        }
        self.known.of(&id.0, || Account {
            // No account has a number below 1.
            place: usize::try_from(id.0).unwrap_or(0),
            label: name.to_owned(),
        })
    }
}

impl Meter {
    fn new(label: &str, accounts: &Arc<Accounts>) -> Self {
        Self {
            label: label.to_owned(),
            predicts: Histogram::seconds(),
            task_waits: Histogram::seconds(),
            task_runs: Histogram::seconds(),
            waits: Histogram::seconds(),
            runs: Histogram::seconds(),
            batches: Histogram::counts(),
            starts: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
            accounts: Arc::clone(accounts),
            by_account: Family::default(),
        }
    }

    /// Counts what an account asked for.
    pub fn count(
        &self,
        (id, name): (AccountId, &str),
        operation: Operation,
        outcome: Outcome,
        took: Duration,
    ) {
        if operation == Operation::Predict {
            self.predicts.time(took);
        }
        let account = self.accounts.of(id, name);
        let make = || ByAccount::new(&account.label);
        self.by_account.with(&account.place, make, |it| {
            it.counts[operation as usize][outcome as usize].fetch_add(1, Relaxed)
        });
    }

    /// Counts CPU time of a model's run for an account.
    pub fn cpu(&self, account: AccountId, time: Duration) {
        self.accounts.cpu.add(account, time);
    }

    /// What each account asked for.
    pub fn accounts(&self) -> Vec<Arc<ByAccount>> {
        let all = self.by_account.all().into_iter();
        let mut all: Vec<Arc<ByAccount>> = all.map(|(_, it)| it).collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }
}

impl ByAccount {
    fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            counts: Default::default(),
        }
    }

    /// How often this came of that operation.
    pub fn count(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.counts[operation as usize][outcome as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_told_apart_and_the_rest_is_together() {
        let meters = Meters::new(1, 1);
        let count = |service: &str, account: i64| {
            let name = format!("account {account}");
            let took = Duration::from_millis(1);
            let meter = meters.of("local", service);
            meter.count(
                (AccountId(account), &name),
                Operation::Predict,
                Outcome::of_status(200),
                took,
            );
        };
        for _ in 0..3 {
            count("a", 1);
            count("a", 2);
            count("a", 3);
            count("b", 1);
            count("c", 4);
        }
        let mut seen = Vec::new();
        for meter in meters.all() {
            for account in meter.accounts() {
                let times = account.count(Operation::Predict, Outcome::Done);
                seen.push((meter.label.clone(), account.label.clone(), times));
            }
        }
        let expected = [
            ("local/a", "account 1", 3),
            ("local/a", "other", 6),
            ("other", "account 1", 3),
            ("other", "other", 3),
        ];
        let expected = expected
            .map(|(service, account, times)| (service.to_owned(), account.to_owned(), times));
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_account_of_that_name_makes_no_second_series() {
        let meters = Meters::default();
        let meter = meters.of("local", "a");
        for (id, name) in [(1, "other"), (2, "x"), (3, "other")] {
            let took = Duration::from_millis(1);
            meter.count(
                (AccountId(id), name),
                Operation::Create,
                Outcome::Done,
                took,
            );
        }
        let labels: Vec<String> = meter
            .accounts()
            .iter()
            .map(|account| account.label.clone())
            .collect();
        assert_eq!(labels, ["other", "x"]);
    }

    #[test]
    fn what_came_of_it_follows_from_the_status() {
        for (status, outcome) in [
            (200, Outcome::Done),
            (204, Outcome::Done),
            (400, Outcome::Refused),
            (409, Outcome::Refused),
            (429, Outcome::Limited),
            (500, Outcome::Failed),
            (499, Outcome::Abandoned),
            (504, Outcome::Timeout),
            (507, Outcome::Failed),
        ] {
            assert_eq!(Outcome::of_status(status), outcome, "{status}");
        }
    }
}
