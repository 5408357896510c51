//! What requests are answered from: accounts, services, tasks, settings.
//!
//! Invariant: nothing here changes after the start but through what it points to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::error::Error;
use super::limit_met::LimitsMet;
use super::metrics::Metrics;
use super::readiness::Looked;
use super::request_id::RequestIds;
use super::settings::Settings;
use super::stopping::Stopping;
use crate::account::{AccountId, Directory, PredictConfigs};
use crate::service::engine::Engines;
use crate::service::{BodyMemory, Catalog, Service, Unserved};
use crate::task::{Blobs, EnqueueError, Limit, TaskIds, TaskStore};

/// Everything that requests are answered from.
pub struct Gateway {
    pub(super) settings: Settings,
    pub(super) directory: Arc<Directory>,
    pub(super) configs: Arc<PredictConfigs>,
    pub(super) services: Arc<Services>,
    pub(super) engines: Arc<Engines>,
    pub(super) store: Arc<dyn TaskStore>,
    pub(super) blobs: Arc<Blobs>,
    pub(super) ids: Arc<TaskIds>,
    pub(super) memory: Arc<BodyMemory>,
    pub(super) metrics: Metrics,
    pub(super) request_ids: RequestIds,
    pub(super) started: Instant,
    pub(super) limits_met: LimitsMet,
    pub(super) stopping: Stopping,
    pub(super) looked: Looked,
}

/// What a gateway is made of.
pub struct Parts {
    /// Settings.
    pub settings: Settings,
    /// Accounts and keys.
    pub directory: Arc<Directory>,
    /// Predict configs.
    pub configs: Arc<PredictConfigs>,
    /// Services.
    pub services: Arc<Services>,
    /// Sessions.
    pub engines: Arc<Engines>,
    /// Tasks.
    pub store: Arc<dyn TaskStore>,
    /// Bodies and answers.
    pub blobs: Arc<Blobs>,
    /// Ids of tasks.
    pub ids: Arc<TaskIds>,
    /// Memory for bodies.
    pub memory: Arc<BodyMemory>,
}

/// The services of packages and the proxies.
pub struct Services {
    catalog: Arc<Catalog>,
    proxies: HashMap<(AccountId, String), Arc<Service>>,
}

impl Services {
    /// Proxies go before packages of the same name.
    pub fn new(catalog: Arc<Catalog>, proxies: Vec<Service>) -> Self {
        let proxies = proxies.into_iter();
        Self {
            catalog,
            proxies: proxies
                .map(|service| ((service.owner, service.name.clone()), Arc::new(service)))
                .collect(),
        }
    }

    /// The service of this name or number.
    pub fn find(&self, owner: AccountId, model: &str) -> Option<Arc<Service>> {
        if !self.proxies.is_empty() {
            let number: Option<i64> = model.parse().ok();
            let found = self.proxies.iter().find(|((account, name), service)| {
                *account == owner && (name == model || number == Some(service.id))
            });
            if let Some((_, service)) = found {
                return Some(Arc::clone(service));
            }
        }
        self.catalog.find(owner, model)
    }

    /// Packages that are there but not served.
    pub fn unserved(&self) -> Arc<Vec<Unserved>> {
        self.catalog.unserved()
    }

    /// Ends all sessions; what runs is let end.
    pub async fn stop(&self) {
        self.catalog.stop().await;
    }

    /// All of them, in the order of owner and name.
    pub fn all(&self) -> Vec<Arc<Service>> {
        let mut all: Vec<_> = self.proxies.values().map(Arc::clone).collect();
        all.extend(self.catalog.all().iter().map(Arc::clone));
        all.sort_by(|a, b| (&a.owner_name, &a.name).cmp(&(&b.owner_name, &b.name)));
        all.dedup_by(|a, b| a.owner == b.owner && a.name == b.name);
        all
    }
}

impl Gateway {
    /// A gateway of these parts.
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            settings: parts.settings,
            directory: parts.directory,
            configs: parts.configs,
            services: parts.services,
            engines: parts.engines,
            store: parts.store,
            blobs: parts.blobs,
            ids: parts.ids,
            memory: parts.memory,
            metrics: Metrics::new(),
            request_ids: RequestIds::new(),
            started: Instant::now(),
            limits_met: LimitsMet::default(),
            stopping: Stopping::new(),
            looked: Looked::default(),
        })
    }

    /// The service that a caller may use: its own, or another account's public one.
    pub(super) fn service_for(
        &self,
        caller: AccountId,
        account: &str,
        model: &str,
    ) -> Result<Arc<Service>, Error> {
        let snapshot = self.directory.snapshot();
        let owner = snapshot.account(account).map(|account| account.id);
        let found = owner.and_then(|owner| self.services.find(owner, model));
        match found {
            Some(service) if service.owner == caller || service.settings.public => Ok(service),
            None if owner == Some(caller) => Err(Error::no_service(model)),
            // A stranger does not learn what is there.
            _ => Err(Error::not_public()),
        }
    }

    /// A limit of the server was met by someone.
    pub(super) fn limit_met(&self, limit: &'static str, who: &dyn std::fmt::Display) {
        self.limits_met.met(&self.metrics, limit, who);
    }

    /// What an account may do now, as the caps and its own limits have it.
    pub(super) fn limit(&self, account: AccountId) -> Result<Limit, EnqueueError> {
        let accounts = self.directory.snapshot();
        let limit = accounts
            .by_id(account)
            .and_then(|account| self.settings.caps().of(account));
        limit.ok_or(EnqueueError::Blocked)
    }
}
