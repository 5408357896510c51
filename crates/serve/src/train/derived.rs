//! In-memory table of derived services, which are services that were created by training on another
//! service.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::record::Derived;
use super::store::TrainingStore;
use crate::account::AccountId;
use crate::database::DatabaseResult;

/// All derived services.
#[derive(Debug, Default)]
pub struct DerivedServices {
    by_number: ArcSwap<HashMap<i64, Arc<Derived>>>,
}

impl DerivedServices {
    /// Loads the table from a store.
    pub async fn read(store: &dyn TrainingStore) -> DatabaseResult<Self> {
        let table = Self::default();
        table.refresh(store).await?;
        Ok(table)
    }

    /// Loads the table again: other servers add to it.
    pub(super) async fn refresh(&self, store: &dyn TrainingStore) -> DatabaseResult<()> {
        for derived in store.derived().await? {
            if self.get(derived.is.service).is_none() {
                self.add(&Arc::new(derived));
            }
        }
        Ok(())
    }

    /// Adds a derived service.
    pub fn add(&self, derived: &Arc<Derived>) {
        self.by_number.rcu(|known| {
            let mut all = HashMap::clone(known);
            all.insert(derived.is.service, Arc::clone(derived));
            all
        });
    }

    /// Returns the derived service with this number.
    pub fn get(&self, service: i64) -> Option<Arc<Derived>> {
        self.by_number.load().get(&service).cloned()
    }

    /// Returns all derived services in arbitrary order.
    pub fn all(&self) -> Vec<Arc<Derived>> {
        self.by_number.load().values().cloned().collect()
    }

    /// Returns the accounts that own derived services.
    pub fn owners(&self) -> Vec<(AccountId, String)> {
        let all = self.all().into_iter();
        let mut owners: Vec<_> = all
            .map(|it| (it.is.owner, it.is.owner_name.clone()))
            .collect();
        owners.sort();
        owners.dedup();
        owners
    }

    /// Returns whether the service's owner hides it.
    pub fn is_hidden(&self, owner_name: &str, name: &str) -> bool {
        let all = self.by_number.load();
        let mut all = all.values();
        all.any(|it| it.is.hidden && it.is.owner_name == owner_name && it.is.name == name)
    }
}
