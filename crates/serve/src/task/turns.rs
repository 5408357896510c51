//! Fair order of accounts: the account that was served longest ago is served next.

use std::collections::HashMap;

use crate::account::AccountId;

/// The last claim of each account, as a running count of claims. It lives in memory only.
#[derive(Debug, Clone, Default)]
pub struct AccountTurns {
    served: HashMap<AccountId, u64>,
    claims: u64,
}

impl AccountTurns {
    /// Returns the number of the account's last claim; 0 if it was never served. The account with
    /// the least number is next.
    pub fn last(&self, account: AccountId) -> u64 {
        self.served.get(&account).copied().unwrap_or(0)
    }

    /// Returns the number of claims so far.
    pub fn claims(&self) -> u64 {
        self.claims
    }

    /// Records that a task of the account was claimed.
    pub fn served(&mut self, account: AccountId) {
        self.claims += 1;
        self.served.insert(account, self.claims);
    }
}
