//! Limits on the tasks of an account, derived from its requests per second and the system's caps.

use std::sync::Arc;

use crate::account::{Account, AccountId, Snapshot};

/// Storage limits of an account; 0 means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of tasks, in any state.
    pub tasks: u64,
    /// Maximum bytes of bodies, configs and answers. An answer is always stored, even if the
    /// account has reached this limit meanwhile.
    pub bytes: u64,
    /// Bytes that the account has stored outside of its tasks. They count towards `bytes`.
    pub other_bytes: u64,
}

/// System-wide caps on an account's tasks. Its own requests per second may be lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Waiting tasks.
    pub waiting: u32,
    /// Running tasks.
    pub running: u32,
    /// Total number of running tasks, shared equally among accounts; 0 disables the share.
    pub places: u32,
    /// Maximum claims of a task before it is canceled.
    pub attempts: u32,
    /// Storage limits.
    pub quota: Quota,
}

/// Limits of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Requests per second.
    pub rps: u32,
    /// True if this request is already counted in the account's rate.
    pub is_counted: bool,
    /// Waiting tasks.
    pub waiting: u32,
    /// Running tasks.
    pub running: u32,
    /// Storage limits.
    pub quota: Quota,
}

/// Limits of all accounts at one moment.
#[derive(Debug, Clone)]
pub struct TaskLimits {
    accounts: Arc<Snapshot>,
    caps: Caps,
    paused: Vec<(AccountId, String)>,
}

impl Caps {
    /// Returns the limits of an account for a request; `None` if the account is blocked.
    pub fn of(self, account: &Account) -> Option<Limit> {
        (!account.blocked).then(|| Limit {
            rps: account.rps,
            is_counted: false,
            waiting: account.rps.min(self.waiting),
            running: account.rps.min(self.running),
            quota: self.quota,
        })
    }
}

impl Limit {
    /// Marks the request as already counted in the rate ([`super::TaskStore::admit`]).
    #[must_use]
    pub fn counted(self) -> Self {
        Self {
            is_counted: true,
            ..self
        }
    }
}

impl TaskLimits {
    /// Combines accounts with the caps.
    pub fn new(accounts: Arc<Snapshot>, caps: Caps) -> Self {
        Self {
            accounts,
            caps,
            paused: Vec::new(),
        }
    }

    /// Leaves the tasks of these services, given by owner and name, in the queue.
    #[must_use]
    pub fn without(mut self, paused: Vec<(AccountId, String)>) -> Self {
        self.paused = paused;
        self
    }

    /// Returns the services whose tasks stay in the queue, by owner and name.
    pub fn paused(&self) -> &[(AccountId, String)] {
        &self.paused
    }

    /// Returns the tasks that each of `accounts` active accounts may run even if all places are
    /// taken: an equal share, at least one. Earlier accounts therefore cannot block a later one.
    pub fn share(&self, accounts: usize) -> u32 {
        let accounts = u32::try_from(accounts).unwrap_or(u32::MAX).max(1);
        match self.caps.places {
            0 => 0,
            places => (places / accounts).max(1),
        }
    }

    /// Returns the running limit of an account. Tasks that a blocked account made earlier still
    /// run.
    pub fn running(&self, account: AccountId) -> u32 {
        let account = self.accounts.by_id(account);
        account.map_or(0, |account| account.rps.min(self.caps.running))
    }
}
