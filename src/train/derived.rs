//! Services that were derived from others, as requests look for them: from memory.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::record::Derived;
use super::store::TrainingStore;
use crate::account::AccountId;
use crate::database::DatabaseError;

/// All derived services.
#[derive(Debug, Default)]
pub struct DerivedServices {
    by_number: ArcSwap<HashMap<i64, Arc<Derived>>>,
}

impl DerivedServices {
    /// Those of a store.
    pub async fn read(store: &dyn TrainingStore) -> Result<Self, DatabaseError> {
        let all = store.derived().await?.into_iter();
        let all = all.map(|it| (it.is.service, Arc::new(it))).collect();
        Ok(Self {
            by_number: ArcSwap::from_pointee(all),
        })
    }

    /// One more.
    pub fn add(&self, derived: &Arc<Derived>) {
        self.by_number.rcu(|known| {
            let mut all = HashMap::clone(known);
            all.insert(derived.is.service, Arc::clone(derived));
            all
        });
    }

    /// The derived service of a number.
    pub fn get(&self, service: i64) -> Option<Arc<Derived>> {
        self.by_number.load().get(&service).cloned()
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<Derived>> {
        self.by_number.load().values().cloned().collect()
    }

    /// The accounts that have any.
    pub fn owners(&self) -> Vec<(AccountId, String)> {
        let all = self.all().into_iter();
        let mut owners: Vec<_> = all
            .map(|it| (it.is.owner, it.is.owner_name.clone()))
            .collect();
        owners.sort();
        owners.dedup();
        owners
    }

    /// Whether a service's owner wants it hidden.
    pub fn is_hidden(&self, owner_name: &str, name: &str) -> bool {
        let all = self.by_number.load();
        let mut all = all.values();
        all.any(|it| it.is.hidden && it.is.owner_name == owner_name && it.is.name == name)
    }
}
