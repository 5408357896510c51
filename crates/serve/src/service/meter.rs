//! Metrics of services: requests by account and outcome, waiting and run times, and session
//! restarts.
//!
//! Invariant: a limited number of services and accounts, the first ones seen, have their own
//! series; all others share the series `other`. A replaced service continues its series.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::account::{AccountId, CpuCounts};
use crate::metric::{BoundedFamily, Family, Histogram, OTHER_LABEL};

/// Default number of services with their own series.
pub const METERED_SERVICES: usize = 100;

/// Default number of accounts with their own series.
pub const METERED_ACCOUNTS: usize = 50;

/// HTTP status in logs and metrics for an abandoned request.
pub const ABANDONED: u16 = 499;

/// The meters of a server.
#[derive(Debug)]
pub struct Meters {
    services: BoundedFamily<String, Meter>,
    accounts: Arc<MeteredAccounts>,
}

/// Metrics of one service, or of all services beyond the limit.
#[derive(Debug)]
pub struct Meter {
    /// Owner and name.
    pub label: String,
    /// Time from a request to the answer of a synchronous predict.
    pub predicts: Histogram,
    /// Time from the creation of a task to its run.
    pub task_waits: Histogram,
    /// Duration of a task's run, including the wait in the engine's queue.
    pub task_runs: Histogram,
    /// Time from a request to the run of the model.
    pub waits: Histogram,
    /// Duration of model runs.
    pub runs: Histogram,
    /// Number of requests per run.
    pub batches: Histogram,
    /// Number of loaded sessions.
    pub starts: AtomicU64,
    /// Sessions loaded to replace a crashed one.
    pub restarts: AtomicU64,
    /// Sessions that crashed during a run.
    pub deaths: AtomicU64,
    accounts: Arc<MeteredAccounts>,
    by_account: Family<usize, AccountRequests>,
}

/// Requests of one account to a service.
#[derive(Debug)]
pub struct AccountRequests {
    /// The account's name.
    pub label: String,
    counts: [[AtomicU64; AnswerOutcome::ALL.len()]; ServiceOperation::ALL.len()],
}

/// Kind of request to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOperation {
    /// A synchronous predict.
    Predict,
    /// The creation of a task.
    Create,
    /// The run of a task.
    Task,
    /// The run of a batch's request.
    Batch,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// Answered or accepted.
    Done,
    /// Rejected as invalid.
    Refused,
    /// Rejected because of a limit.
    Limited,
    /// Timed out.
    Timeout,
    /// Abandoned by the client.
    Abandoned,
    /// The service or the server failed.
    Failed,
}

#[derive(Debug)]
struct MeteredAccounts {
    known: BoundedFamily<i64, AccountIndex>,
    cpu: Arc<CpuCounts>,
}

/// Index of an account with its own series; all others have index 0.
#[derive(Debug)]
struct AccountIndex {
    place: usize,
    label: String,
}

impl ServiceOperation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Predict, Self::Create, Self::Task, Self::Batch];

    /// Returns the value of the metrics label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Create => "create",
            Self::Task => "task",
            Self::Batch => "batch",
        }
    }
}

impl AnswerOutcome {
    /// All outcomes.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Refused,
        Self::Limited,
        Self::Timeout,
        Self::Abandoned,
        Self::Failed,
    ];

    /// Classifies an HTTP status.
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

    /// Returns the value of the metrics label.
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
    /// Creates meters with separate series for this many services and accounts.
    pub fn new(services: usize, accounts: usize) -> Self {
        let other = AccountIndex {
            place: 0,
            label: OTHER_LABEL.to_owned(),
        };
        let accounts = Arc::new(MeteredAccounts {
            known: BoundedFamily::new(accounts, other),
            cpu: Arc::default(),
        });
        let other = Meter::new(OTHER_LABEL, &accounts);
        Self {
            services: BoundedFamily::new(services, other),
            accounts,
        }
    }

    /// Returns the CPU time counters of accounts.
    pub fn cpu(&self) -> &Arc<CpuCounts> {
        &self.accounts.cpu
    }

    /// Returns the meter of a service.
    pub fn of(&self, owner: &str, name: &str) -> Arc<Meter> {
        self.labelled(&format!("{owner}/{name}"))
    }

    /// Returns the meter with this label.
    pub fn labelled(&self, label: &str) -> Arc<Meter> {
        let make = || Meter::new(label, &self.accounts);
        self.services.of(label, make)
    }

    /// Returns all meters.
    pub fn all(&self) -> Vec<Arc<Meter>> {
        let mut all = self.services.all();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }
}

impl MeteredAccounts {
    fn of(&self, id: AccountId, name: &str) -> Arc<AccountIndex> {
        if name == OTHER_LABEL {
            // An account with this name would duplicate the series `other`.
            return self.known.rest();
        }
        self.known.of(&id.0, || AccountIndex {
            // Account numbers are positive.
            place: usize::try_from(id.0).unwrap_or(0),
            label: name.to_owned(),
        })
    }
}

impl Meter {
    fn new(label: &str, accounts: &Arc<MeteredAccounts>) -> Self {
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

    /// Counts a request of an account.
    pub fn count(
        &self,
        (id, name): (AccountId, &str),
        operation: ServiceOperation,
        outcome: AnswerOutcome,
        took: Duration,
    ) {
        if operation == ServiceOperation::Predict {
            self.predicts.time(took);
        }
        let account = self.accounts.of(id, name);
        let make = || AccountRequests::new(&account.label);
        self.by_account.with(&account.place, make, |it| {
            it.counts[operation as usize][outcome as usize].fetch_add(1, Relaxed)
        });
    }

    /// Adds CPU time of a model run to an account.
    pub fn cpu(&self, account: AccountId, time: Duration) {
        self.accounts.cpu.add(account, time);
    }

    /// Returns the request counts of all accounts.
    pub fn accounts(&self) -> Vec<Arc<AccountRequests>> {
        let all = self.by_account.all().into_iter();
        let mut all: Vec<Arc<AccountRequests>> = all.map(|(_, it)| it).collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }
}

impl AccountRequests {
    fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            counts: Default::default(),
        }
    }

    /// Returns the count of an operation with an outcome.
    pub fn count(&self, operation: ServiceOperation, outcome: AnswerOutcome) -> u64 {
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
                ServiceOperation::Predict,
                AnswerOutcome::of_status(200),
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
                let times = account.count(ServiceOperation::Predict, AnswerOutcome::Done);
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
                ServiceOperation::Create,
                AnswerOutcome::Done,
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
            (200, AnswerOutcome::Done),
            (204, AnswerOutcome::Done),
            (400, AnswerOutcome::Refused),
            (409, AnswerOutcome::Refused),
            (429, AnswerOutcome::Limited),
            (500, AnswerOutcome::Failed),
            (499, AnswerOutcome::Abandoned),
            (504, AnswerOutcome::Timeout),
            (507, AnswerOutcome::Failed),
        ] {
            assert_eq!(AnswerOutcome::of_status(status), outcome, "{status}");
        }
    }
}
