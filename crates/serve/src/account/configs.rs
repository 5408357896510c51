//! A cache of the stored predict configs, for requests that look them up.
//!
//! Invariant: configs are changed only here, one change at a time. A read during a change is not
//! cached, so the cache equals the store. Readers never wait for a change. Other servers may change a shared store,
//! too: of one, nothing is cached for longer than [`SHARED_AGE`].

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::record::{AccountId, PredictConfig};
use super::store::{AccountStore, NewConfig};
use crate::database::{DatabaseResult, Timestamp};

/// Maximum age of cached configs of a store that several servers share.
const SHARED_AGE: Duration = Duration::from_secs(1);

/// The predict configs of a store, with a cache.
pub struct PredictConfigs {
    store: Arc<dyn AccountStore>,
    kept: RwLock<ConfigCache>,
    /// Locked while the store is changed.
    changing: Mutex<()>,
}

/// The cache.
#[derive(Default)]
struct ConfigCache {
    configs: HashMap<i64, (Instant, Arc<Vec<PredictConfig>>)>,
    /// Incremented when a change begins and when it ends: odd during a change.
    changes: u64,
}

/// A change in progress, until it is dropped. The request that asked for it may be cancelled
/// meanwhile.
struct ConfigUpdate<'a> {
    kept: &'a RwLock<ConfigCache>,
    service: i64,
}

impl<'a> ConfigUpdate<'a> {
    fn begin(kept: &'a RwLock<ConfigCache>, service: i64) -> Self {
        write(kept).turn(service);
        Self { kept, service }
    }
}

impl Drop for ConfigUpdate<'_> {
    fn drop(&mut self) {
        write(self.kept).turn(self.service);
    }
}

impl ConfigCache {
    /// Marks the begin or end of a change of a service's configs.
    fn turn(&mut self, service: i64) {
        self.changes = self.changes.wrapping_add(1);
        self.configs.remove(&service);
    }
}

fn write(kept: &RwLock<ConfigCache>) -> RwLockWriteGuard<'_, ConfigCache> {
    kept.write().unwrap_or_else(PoisonError::into_inner)
}

impl PredictConfigs {
    /// Creates the cache of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self {
            store,
            kept: RwLock::default(),
            changing: Mutex::default(),
        }
    }

    /// Returns the permanent number of an account's service.
    pub async fn service_number(&self, owner: AccountId, name: &str) -> DatabaseResult<i64> {
        self.store.service_number(owner, name).await
    }

    /// Returns the configs of a service, oldest first.
    pub async fn list(&self, service: i64) -> DatabaseResult<Arc<Vec<PredictConfig>>> {
        let before = match self.kept(service) {
            Ok(configs) => return Ok(configs),
            Err(changes) => changes,
        };
        let configs = Arc::new(self.store.configs(service).await?);
        let mut kept = write(&self.kept);
        if kept.changes == before && before.is_multiple_of(2) {
            kept.configs
                .insert(service, (Instant::now(), Arc::clone(&configs)));
        }
        Ok(configs)
    }

    /// Returns a config of a service.
    pub async fn get(&self, service: i64, id: i64) -> DatabaseResult<Option<PredictConfig>> {
        let all = self.list(service).await?;
        Ok(all.iter().find(|config| config.id == id).cloned())
    }

    /// Returns the config that requests use by default.
    pub async fn default_of(&self, service: i64) -> DatabaseResult<Option<PredictConfig>> {
        let all = self.list(service).await?;
        Ok(all.iter().find(|config| config.is_default).cloned())
    }

    /// Stores a config. A new default replaces the old one.
    pub async fn create(&self, config: NewConfig, now: Timestamp) -> DatabaseResult<PredictConfig> {
        let _changing = self.changing.lock().await;
        let _change = ConfigUpdate::begin(&self.kept, config.service);
        self.store.create_config(config, now).await
    }

    /// Deletes a config; returns `false` if it does not exist.
    pub async fn delete(&self, service: i64, id: i64) -> DatabaseResult<bool> {
        let _changing = self.changing.lock().await;
        let _change = ConfigUpdate::begin(&self.kept, service);
        self.store.delete_config(service, id).await
    }

    /// Returns the cached configs of a service, or the current number of changes.
    fn kept(&self, service: i64) -> Result<Arc<Vec<PredictConfig>>, u64> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let known = kept.configs.get(&service);
        let known = known.filter(|(at, _)| !self.store.is_shared() || at.elapsed() < SHARED_AGE);
        known
            .map(|(_, configs)| Arc::clone(configs))
            .ok_or(kept.changes)
    }
}
