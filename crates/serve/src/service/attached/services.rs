//! The services whose requests attached instances answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Attached;
use crate::account::AccountId;

/// Services by owner and name. A service keeps its instances when its package or its settings change.
#[derive(Debug)]
pub struct AttachedServices {
    all: Mutex<BTreeMap<(AccountId, String), Arc<Attached>>>,
    /// Maximum size of an answer, in bytes.
    max_answer: usize,
    /// Changes when a service becomes able to answer.
    resumed: watch::Sender<u64>,
}

impl AttachedServices {
    /// Creates a set without services. Answers have at most this size, in bytes.
    pub fn new(max_answer: usize) -> Self {
        Self {
            all: Mutex::default(),
            max_answer,
            resumed: watch::Sender::new(0),
        }
    }

    /// Returns the service with this name, and creates it if it is not there.
    pub fn of(&self, owner: AccountId, name: &str) -> Arc<Attached> {
        let mut all = self.all();
        let service = all
            .entry((owner, name.to_owned()))
            .or_insert_with(|| Arc::new(Attached::new(self.max_answer, self.resumed.clone())));
        Arc::clone(service)
    }

    /// Forgets a service.
    pub fn remove(&self, owner: AccountId, name: &str) {
        self.all().remove(&(owner, name.to_owned()));
    }

    /// Returns the services that cannot answer now, by owner and name.
    pub fn paused(&self) -> Vec<(AccountId, String)> {
        let all = self.all();
        let paused = all.iter().filter(|(_, service)| !service.can_answer());
        paused.map(|(key, _)| key.clone()).collect()
    }

    /// Says that a service can answer which could not.
    pub(in super::super) fn resume(&self) {
        self.resumed.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that changes when a service becomes able to answer.
    pub fn resumed(&self) -> watch::Receiver<u64> {
        self.resumed.subscribe()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(AccountId, String), Arc<Attached>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
