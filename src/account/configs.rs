//! Predict configs, as requests look for them: from memory, once they were read.
//!
//! Invariant: they are changed only here, one change at a time; what is read while one is made is not kept,
//! so what is kept is what is stored. Reading never waits for a change.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use tokio::sync::Mutex;

use super::record::{AccountId, PredictConfig};
use super::store::{AccountStore, NewConfig};
use crate::database::{DatabaseError, Timestamp};

/// Stored predict configs.
pub struct PredictConfigs {
    store: Arc<dyn AccountStore>,
    kept: RwLock<Kept>,
    /// Held by who changes the store.
    changing: Mutex<()>,
}

/// What was read.
#[derive(Default)]
struct Kept {
    configs: HashMap<i64, Arc<Vec<PredictConfig>>>,
    /// Grows when a change begins, and when it ends: in between it is odd.
    changes: u64,
}

/// A change that is being made, until it is dropped: whoever asked for it may go away meanwhile.
struct Change<'a> {
    kept: &'a RwLock<Kept>,
    service: i64,
}

impl<'a> Change<'a> {
    fn begin(kept: &'a RwLock<Kept>, service: i64) -> Self {
        write(kept).turn(service);
        Self { kept, service }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        write(self.kept).turn(self.service);
    }
}

impl Kept {
    /// A change of a service's configs begins or ends.
    fn turn(&mut self, service: i64) {
        self.changes = self.changes.wrapping_add(1);
        self.configs.remove(&service);
    }
}

fn write(kept: &RwLock<Kept>) -> RwLockWriteGuard<'_, Kept> {
    kept.write().unwrap_or_else(PoisonError::into_inner)
}

impl PredictConfigs {
    /// The configs of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self {
            store,
            kept: RwLock::default(),
            changing: Mutex::default(),
        }
    }

    /// The lasting number of an account's service.
    pub async fn service_number(&self, owner: AccountId, name: &str) -> Result<i64, DatabaseError> {
        self.store.service_number(owner, name).await
    }

    /// The configs of a service, the oldest first.
    pub async fn list(&self, service: i64) -> Result<Arc<Vec<PredictConfig>>, DatabaseError> {
        let before = match self.kept(service) {
            Ok(configs) => return Ok(configs),
            Err(changes) => changes,
        };
        let configs = Arc::new(self.store.configs(service).await?);
        let mut kept = write(&self.kept);
        if kept.changes == before && before.is_multiple_of(2) {
            kept.configs.insert(service, Arc::clone(&configs));
        }
        Ok(configs)
    }

    /// A config of a service.
    pub async fn get(&self, service: i64, id: i64) -> Result<Option<PredictConfig>, DatabaseError> {
        let all = self.list(service).await?;
        Ok(all.iter().find(|config| config.id == id).cloned())
    }

    /// The config that is taken where a request names none.
    pub async fn default_of(&self, service: i64) -> Result<Option<PredictConfig>, DatabaseError> {
        let all = self.list(service).await?;
        Ok(all.iter().find(|config| config.is_default).cloned())
    }

    /// Stores a config. A new default takes the place of the old.
    pub async fn create(
        &self,
        config: NewConfig,
        now: Timestamp,
    ) -> Result<PredictConfig, DatabaseError> {
        let _changing = self.changing.lock().await;
        let _change = Change::begin(&self.kept, config.service);
        self.store.create_config(config, now).await
    }

    /// Deletes a config; `false` if there is none.
    pub async fn delete(&self, service: i64, id: i64) -> Result<bool, DatabaseError> {
        let _changing = self.changing.lock().await;
        let _change = Change::begin(&self.kept, service);
        self.store.delete_config(service, id).await
    }

    /// What is kept of a service, or how many changes there were.
    fn kept(&self, service: i64) -> Result<Arc<Vec<PredictConfig>>, u64> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.configs
            .get(&service)
            .map(Arc::clone)
            .ok_or(kept.changes)
    }
}
