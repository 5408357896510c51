//! Immutable snapshot of the services that readers see; every change replaces it as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::Service;
use super::options::Unserved;
use super::survey::PackageKey;
use crate::account::{AccountId, number};

/// A snapshot of the services.
#[derive(Debug, Default)]
pub(super) struct ServiceTable {
    pub(super) services: Arc<Vec<Arc<Service>>>,
    pub(super) unserved: Arc<Vec<Unserved>>,
    by_name: HashMap<AccountId, HashMap<String, (Arc<Service>, PackageKey)>>,
    by_number: HashMap<(AccountId, i64), Arc<Service>>,
}

impl ServiceTable {
    /// Creates a table of services with their packages. If two have the same name, the one whose
    /// package had it in `before` wins, otherwise the first. The others become unserved.
    pub(super) fn new(
        services: Vec<(PackageKey, Arc<Service>)>,
        mut unserved: Vec<Unserved>,
        before: &Self,
    ) -> Self {
        let mut table = Self::default();
        let is_holder = |(key, service): &(PackageKey, Arc<Service>)| {
            before.holder(service.owner, &service.name) == Some(key)
        };
        let (holders, others): (Vec<_>, Vec<_>) = services.into_iter().partition(is_holder);
        for (key, service) in holders.into_iter().chain(others) {
            if let Some(first) = table.holder(service.owner, &service.name) {
                let reason = format!(
                    "`{}` is already served from {}; remove one of them, or change its `model` or `size`",
                    service.name,
                    first.path.display()
                );
                let path = key.path;
                unserved.push(Unserved { path, reason });
                continue;
            }
            table.insert(key, service);
        }
        let named = table.by_name.values().flat_map(HashMap::values);
        let mut services: Vec<Arc<Service>> = named.map(|(it, _)| Arc::clone(it)).collect();
        services.sort_by(|a, b| (a.owner, &a.name).cmp(&(b.owner, &b.name)));
        unserved.sort_by(|a, b| a.path.cmp(&b.path));
        table.services = Arc::new(services);
        table.unserved = Arc::new(unserved);
        table
    }

    fn insert(&mut self, key: PackageKey, service: Arc<Service>) {
        self.by_number
            .insert((service.owner, service.id), Arc::clone(&service));
        let names = self.by_name.entry(service.owner).or_default();
        names.insert(service.name.clone(), (service, key));
    }

    /// Returns the service with this name, or with this number if it consists of digits.
    pub(super) fn find(&self, owner: AccountId, model: &str) -> Option<&Arc<Service>> {
        if let Some(number) = number(model) {
            return self.by_number.get(&(owner, number));
        }
        let names = self.by_name.get(&owner)?;
        names.get(model).map(|(service, _)| service)
    }

    /// Returns the package that provides a service.
    pub(super) fn holder(&self, owner: AccountId, name: &str) -> Option<&PackageKey> {
        let names = self.by_name.get(&owner)?;
        names.get(name).map(|(_, key)| key)
    }

    /// Returns the service with this name, even if it consists of digits.
    pub(super) fn named(&self, owner: AccountId, name: &str) -> Option<&Arc<Service>> {
        let names = self.by_name.get(&owner)?;
        names.get(name).map(|(service, _)| service)
    }
}
