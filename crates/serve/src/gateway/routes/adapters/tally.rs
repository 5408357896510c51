//! Counts the usage of an adapter's answer: one request and its tokens, when the answer ends in any
//! way.
//!
//! Invariant: an answer counts as a request once it begins to be sent. Its tokens are those that
//! the service counted, else those that the answer reports, as far as it was read.

use std::sync::Arc;

use crate::account::{AccountId, Counted, UsageCounts, UsageKey};
use crate::database::Timestamp;
use crate::service::{Answer, TokenCounts, TokenUsage};

use super::reported::ReportedUsage;

/// Counts one answer when it is dropped.
#[derive(Debug)]
pub(super) struct UsageTally {
    usage: Arc<UsageCounts>,
    account: AccountId,
    service: i64,
    /// Token counts that the answer reports.
    pub(super) reported: ReportedUsage,
    spent: Option<Arc<TokenUsage>>,
    has_begun: bool,
}

impl UsageTally {
    /// Creates the tally of an account's request to a service.
    pub(super) fn new(usage: &Arc<UsageCounts>, account: AccountId, service: i64) -> Self {
        Self {
            usage: Arc::clone(usage),
            account,
            service,
            reported: ReportedUsage::default(),
            spent: None,
            has_begun: false,
        }
    }

    /// Records that the service answered.
    pub(super) fn answered(&mut self, answer: &Answer) {
        self.spent.clone_from(&answer.spent);
    }

    /// Records that the answer begins to be sent.
    pub(super) fn begins(&mut self) {
        self.has_begun = true;
    }
}

impl Drop for UsageTally {
    fn drop(&mut self) {
        let spent = self.spent.as_ref().map(|spent| spent.so_far());
        let tokens = spent.unwrap_or_else(|| self.reported.tokens());
        if !self.has_begun && tokens == TokenCounts::default() {
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
