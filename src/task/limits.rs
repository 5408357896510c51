//! What accounts may do with tasks: as much as their requests per second, within the system's caps.

use std::sync::Arc;

use crate::account::{Account, AccountId, Snapshot};

/// How much of an account's tasks is kept; 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Tasks, whatever their state.
    pub tasks: u64,
    /// Bytes of bodies, configs and answers. An answer is stored in any case: the account may have made
    /// no more tasks when it came.
    pub bytes: u64,
    /// Bytes that the account has stored beside its tasks, which count as well.
    pub beside: u64,
}

/// System limits on an account's tasks; its own requests per second may be less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Waiting tasks.
    pub waiting: u32,
    /// Running tasks.
    pub running: u32,
    /// Running tasks of all accounts, of which every account has an equal share; 0: no account has one.
    pub places: u32,
    /// Claims of a task before it is given up.
    pub attempts: u32,
    /// What is kept.
    pub quota: Quota,
}

/// What one account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Requests per second.
    pub rps: u32,
    /// Whether this request is in the account's rate already.
    pub is_counted: bool,
    /// Waiting tasks.
    pub waiting: u32,
    /// Running tasks.
    pub running: u32,
    /// What is kept.
    pub quota: Quota,
}

/// What all accounts may do, at one moment.
#[derive(Debug, Clone)]
pub struct Limits {
    accounts: Arc<Snapshot>,
    caps: Caps,
}

impl Caps {
    /// What an account may do that makes a request: nothing, if it is blocked.
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
    /// The same for a request that was counted in the rate before ([`super::TaskStore::admit`]).
    #[must_use]
    pub fn counted(self) -> Self {
        Self {
            is_counted: true,
            ..self
        }
    }
}

impl Limits {
    /// What these accounts may do within the caps.
    pub fn new(accounts: Arc<Snapshot>, caps: Caps) -> Self {
        Self { accounts, caps }
    }

    /// Tasks that each of so many accounts may run although all places are taken: its share of the places,
    /// and at least one. Accounts that came earlier cannot keep a later one from running.
    pub fn share(&self, accounts: usize) -> u32 {
        let accounts = u32::try_from(accounts).unwrap_or(u32::MAX).max(1);
        match self.caps.places {
            0 => 0,
            places => (places / accounts).max(1),
        }
    }

    /// How many tasks of an account may run. What a blocked account made before still runs.
    pub fn running(&self, account: AccountId) -> u32 {
        let account = self.accounts.by_id(account);
        account.map_or(0, |account| account.rps.min(self.caps.running))
    }
}
