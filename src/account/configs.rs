//! Predict configs, as requests look for them: from memory, once they were read.
//!
//! Invariant: they are changed only here, one change at a time, and never read while one is made; so what
//! is kept is what is stored.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Mutex;

use super::record::PredictConfig;
use super::store::{AccountStore, NewConfig};
use crate::database::{DatabaseError, Timestamp};

/// Stored predict configs.
pub struct PredictConfigs {
    store: Arc<dyn AccountStore>,
    kept: RwLock<HashMap<i64, Arc<Vec<PredictConfig>>>>,
    /// Held by who asks the store.
    asking: Mutex<()>,
}

impl PredictConfigs {
    /// The configs of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self {
            store,
            kept: RwLock::default(),
            asking: Mutex::default(),
        }
    }

    /// The configs of a service, the oldest first.
    pub async fn list(&self, service: i64) -> Result<Arc<Vec<PredictConfig>>, DatabaseError> {
        if let Some(configs) = self.kept(service) {
            return Ok(configs);
        }
        let _asking = self.asking.lock().await;
        let configs = Arc::new(self.store.configs(service).await?);
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.insert(service, Arc::clone(&configs));
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
        let _asking = self.asking.lock().await;
        // Before the change: whoever asked for it may go away while it is made.
        self.forget(config.service);
        self.store.create_config(config, now).await
    }

    /// Deletes a config; `false` if there is none.
    pub async fn delete(&self, service: i64, id: i64) -> Result<bool, DatabaseError> {
        let _asking = self.asking.lock().await;
        self.forget(service);
        self.store.delete_config(service, id).await
    }

    fn kept(&self, service: i64) -> Option<Arc<Vec<PredictConfig>>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.get(&service).map(Arc::clone)
    }

    fn forget(&self, service: i64) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&service);
    }
}
