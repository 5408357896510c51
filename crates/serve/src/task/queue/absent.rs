//! Services that this server does not have, and other servers of the same database may have.
//!
//! Invariant: a task of such a service fails only when every server had time to get the service.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::account::AccountId;
use crate::database::Timestamp;

/// How long the tasks of a service are left to other servers before this one looks again.
const PAUSE: Duration = Duration::from_secs(2);

/// The services that were missing when their tasks should have run.
#[derive(Default)]
pub struct AbsentServices {
    /// How long a task waits for a server that has its service; `None` without other servers.
    patience: Option<Duration>,
    until: Mutex<HashMap<(AccountId, String), Instant>>,
}

impl AbsentServices {
    /// Creates the set of a server that shares its tasks with others.
    pub fn left_to_others(patience: Duration) -> Self {
        Self {
            patience: Some(patience),
            until: Mutex::default(),
        }
    }

    /// Returns whether a task of a service that is missing here is left to other servers. If so, the service counts as
    /// absent for a while.
    pub(super) fn leaves(&self, owner: AccountId, service: &str, made_at: Timestamp) -> bool {
        let Some(patience) = self.patience else {
            return false;
        };
        if made_at <= Timestamp::now().before(patience) {
            return false;
        }
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.insert((owner, service.to_owned()), Instant::now() + PAUSE);
        true
    }

    /// Returns the services whose tasks are left to other servers now.
    pub(super) fn list(&self) -> Vec<(AccountId, String)> {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        until.retain(|_, until| *until > now);
        until.keys().cloned().collect()
    }
}

impl fmt::Debug for AbsentServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AbsentServices").field(&self.list()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_task_is_left_to_others_where_there_are_any() {
        let (owner, now) = (AccountId(1), Timestamp::now());
        let alone = AbsentServices::default();
        assert!(!alone.leaves(owner, "a", now));
        let patience = Duration::from_mins(1);
        let shared = AbsentServices::left_to_others(patience);
        assert!(!shared.leaves(owner, "old", now.before(patience * 2)));
        assert!(shared.list().is_empty());
        assert!(shared.leaves(owner, "a", now));
        assert_eq!(shared.list(), [(owner, "a".to_owned())]);
    }
}
