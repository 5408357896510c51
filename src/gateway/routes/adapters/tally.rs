//! What an answer took, counted for its caller when it is over, however it ends.
//!
//! Invariant: an answer that began to leave is one request, and no other is; its tokens are those that the
//! service counted, else those that it said in the answer, as far as it was read.

use std::sync::Arc;

use crate::account::{AccountId, Counted, UsageCounts, UsageKey};
use crate::database::Timestamp;
use crate::service::{Answer, Spent, Tokens};

use super::reported::Reported;

/// Counts one answer, when it is dropped.
#[derive(Debug)]
pub(super) struct Tally {
    usage: Arc<UsageCounts>,
    account: AccountId,
    service: i64,
    /// What the answer says.
    pub(super) reported: Reported,
    spent: Option<Arc<Spent>>,
    has_begun: bool,
}

impl Tally {
    /// For an account that asks a service.
    pub(super) fn new(usage: &Arc<UsageCounts>, account: AccountId, service: i64) -> Self {
        Self {
            usage: Arc::clone(usage),
            account,
            service,
            reported: Reported::default(),
            spent: None,
            has_begun: false,
        }
    }

    /// There is an answer.
    pub(super) fn answered(&mut self, answer: &Answer) {
        self.spent.clone_from(&answer.spent);
    }

    /// The answer begins to leave.
    pub(super) fn begins(&mut self) {
        self.has_begun = true;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let spent = self.spent.as_ref().map(|spent| spent.so_far());
        let tokens = spent.unwrap_or_else(|| self.reported.tokens());
        if !self.has_begun && tokens == Tokens::default() {
            return;
        }
        let key = UsageKey {
            account: self.account,
            service: self.service,
            day: Timestamp::now().day(),
        };
        self.usage.count(
            key,
            Counted {
                requests: u64::from(self.has_begun),
                prompt: tokens.prompt,
                completion: tokens.completion,
                cached: tokens.cached,
            },
        );
    }
}
