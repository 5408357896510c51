//! Whose turn it is: accounts are served in the order in which they were served last.

use std::collections::HashMap;

use crate::account::AccountId;

/// When each account was served last, counted in claims. A process remembers it; no store does.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    served: HashMap<AccountId, u64>,
    claims: u64,
}

impl Turns {
    /// When an account was served last: the least goes first, and 0 is never.
    pub fn last(&self, account: AccountId) -> u64 {
        self.served.get(&account).copied().unwrap_or(0)
    }

    /// How many claims there were.
    pub fn claims(&self) -> u64 {
        self.claims
    }

    /// A task of an account was claimed.
    pub fn served(&mut self, account: AccountId) {
        self.claims += 1;
        self.served.insert(account, self.claims);
    }
}
