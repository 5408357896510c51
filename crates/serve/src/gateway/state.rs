//! The shared state of the gateway: accounts, services, tasks, settings.
//!
//! Every handler gets a [`Gateway`].
//!
//! Invariant: after the start its fields change only through shared handles. Settings that a reload
//! may change are read through [`Gateway::current`].

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use super::error::GatewayError;
use super::in_flight::InFlight;
use super::limit_met::LimitLog;
use super::metrics::GatewayMetrics;
use super::readiness::ReadinessCache;
use super::recorder::Recorder;
use super::request_id::RequestIds;
use super::settings::{Changes, GatewaySettings};
use super::stopping::ShutdownState;
use super::stored::StorageCache;
use crate::account::{AccountId, Accounts, Directory, Logins, PredictConfigs, UsageCounts, number};
use crate::batch::BatchStore;
use crate::database::{RetentionClock, Timestamp};
use crate::service::engine::Engines;
use crate::service::{BodyMemory, Catalog, Service, ServiceKind, ServiceSettings, Unserved};
use crate::task::{Blobs, EnqueueError, Limit, TaskIds, TaskStore, Waiters};
use crate::train::Jobs;
use crate::worker::Workers;

/// A day, in seconds.
const DAY: i64 = 86_400;

/// The shared state of all request handlers.
pub struct Gateway {
    parts: GatewayParts,
    pub(super) metrics: GatewayMetrics,
    pub(super) request_ids: RequestIds,
    pub(super) started: Instant,
    reload: Mutex<Option<SettingsReload>>,
    pub(super) limits_met: LimitLog,
    pub(super) stopping: ShutdownState,
    pub(super) looked: ReadinessCache,
    pub(super) in_flight: InFlight,
    pub(super) waiters: Waiters,
    pub(super) on_disk: StorageCache,
    pub(super) recorder: Recorder,
    /// Changes when a batch was created or canceled.
    pub(super) batches_changed: watch::Sender<u64>,
}

/// Applies changed settings; returns the changes, or an error message.
pub type SettingsReload = Box<dyn Fn() -> Result<Changes, String> + Send>;

/// The parts of a gateway, for [`Gateway::new`]. Every handler reads them.
#[derive(Clone)]
pub struct GatewayParts {
    /// Settings at the start. Settings that need a restart are read from here.
    pub settings: GatewaySettings,
    /// Current settings, which a reload replaces.
    pub current: Arc<ArcSwap<GatewaySettings>>,
    /// Accounts and keys.
    pub directory: Arc<Directory>,
    /// Creates and changes accounts and keys.
    pub accounts: Arc<Accounts>,
    /// Logins of browsers.
    pub logins: Arc<Logins>,
    /// Predict configs.
    pub configs: Arc<PredictConfigs>,
    /// Counts of each account's usage.
    pub usage: Arc<UsageCounts>,
    /// Services.
    pub services: Arc<Services>,
    /// Sessions.
    pub engines: Arc<Engines>,
    /// Tasks.
    pub store: Arc<dyn TaskStore>,
    /// Bodies and answers.
    pub blobs: Arc<Blobs>,
    /// Files and batches.
    pub batches: Arc<dyn BatchStore>,
    /// The clock that determines when files and batches are deleted.
    pub clock: Arc<RetentionClock>,
    /// Ids of tasks.
    pub ids: Arc<TaskIds>,
    /// Memory for bodies.
    pub memory: Arc<BodyMemory>,
    /// Training: datasets, derived services, jobs.
    pub jobs: Arc<Jobs>,
    /// Workers that attached.
    pub workers: Arc<Workers>,
}

/// All services: packages, proxies, those with attached instances, and derived services that are not trained yet.
pub struct Services {
    catalog: Arc<Catalog>,
    proxies: ArcSwap<ServicesByName>,
    /// Services whose instances attach.
    attached: ArcSwap<ServicesByName>,
    /// Derived services that are not trained yet. Their package does not exist until training ends.
    untrained: ArcSwap<ServicesByName>,
}

/// Services by owner and name.
type ServicesByName = HashMap<(AccountId, String), Arc<Service>>;

impl Services {
    /// Creates the set of services. A proxy shadows a package of the same name, a package shadows a
    /// service with attached instances, and that an untrained service.
    pub fn new(catalog: Arc<Catalog>, proxies: Vec<Service>, untrained: Vec<Service>) -> Self {
        let named = |services: Vec<Service>| {
            ArcSwap::from_pointee(
                services
                    .into_iter()
                    .map(with_key)
                    .collect::<ServicesByName>(),
            )
        };
        Self {
            catalog,
            proxies: named(proxies),
            attached: ArcSwap::default(),
            untrained: named(untrained),
        }
    }

    /// Adds a service that is not trained yet.
    pub fn add_untrained(&self, service: Service) {
        let (key, service) = with_key(service);
        self.untrained.rcu(|known| {
            let mut all = HashMap::clone(known);
            all.insert(key.clone(), Arc::clone(&service));
            all
        });
    }

    /// Returns the service from which an untrained service is derived.
    pub(super) fn base_of(&self, service: &Service) -> Option<Arc<Service>> {
        let ServiceKind::Untrained(untrained) = &service.kind else {
            return None;
        };
        self.find(untrained.base_owner, &untrained.base.to_string())
    }

    /// Finds a service by its name or number.
    pub fn find(&self, owner: AccountId, model: &str) -> Option<Arc<Service>> {
        let of_these = |services: &ArcSwap<ServicesByName>| {
            let services = services.load();
            if services.is_empty() {
                return None;
            }
            // As in the catalog: text that consists of digits is a number, never a name.
            let found = services.iter().find(|((account, name), service)| {
                let is_meant = number(model).map_or(name == model, |number| number == service.id);
                *account == owner && is_meant
            });
            found.map(|(_, service)| Arc::clone(service))
        };
        of_these(&self.proxies)
            .or_else(|| self.catalog.find(owner, model))
            .or_else(|| of_these(&self.attached))
            .or_else(|| of_these(&self.untrained))
    }

    /// Returns the packages that exist but are not served.
    pub fn unserved(&self) -> Arc<Vec<Unserved>> {
        self.catalog.unserved()
    }

    /// Returns the services whose models are loaded at the start, and are not loaded yet, by owner and name.
    pub fn warming(&self) -> Vec<(AccountId, String)> {
        self.catalog.warming()
    }

    /// Returns the services whose devices are away, by owner and name.
    pub fn waiting_for_devices(&self) -> Vec<(AccountId, String)> {
        let all = self.catalog.all();
        let waiting = all
            .iter()
            .filter(|it| it.is_away() && it.workers().is_none());
        waiting.map(|it| (it.owner, it.name.clone())).collect()
    }

    /// Finds a proxy by name.
    pub fn proxy(&self, owner: AccountId, name: &str) -> Option<Arc<Service>> {
        let proxies = self.proxies.load();
        proxies.get(&(owner, name.to_owned())).map(Arc::clone)
    }

    /// Replaces all proxies. Calls in progress continue with the old ones.
    pub fn replace_proxies(&self, proxies: Vec<Service>) {
        let proxies: ServicesByName = proxies.into_iter().map(with_key).collect();
        self.proxies.store(Arc::new(proxies));
    }

    /// Replaces all services with attached instances. Calls in progress continue with the old ones.
    pub fn replace_attached(&self, attached: Vec<Service>) {
        let attached: ServicesByName = attached.into_iter().map(with_key).collect();
        self.attached.store(Arc::new(attached));
    }

    /// Applies changed settings to the services.
    pub fn apply_settings(&self, settings: impl Fn(&str, &str) -> ServiceSettings) {
        for services in [&self.proxies, &self.attached, &self.untrained] {
            with_changed_settings(services, &settings);
        }
        self.catalog.look_again();
    }

    /// Ends all sessions after their current run.
    pub async fn stop(&self) {
        self.catalog.stop().await;
    }

    /// Returns all services, sorted by owner and name.
    pub fn all(&self) -> Vec<Arc<Service>> {
        let mut all: Vec<_> = self.proxies.load().values().map(Arc::clone).collect();
        all.extend(self.catalog.all().iter().map(Arc::clone));
        all.extend(self.attached.load().values().map(Arc::clone));
        all.extend(self.untrained.load().values().map(Arc::clone));
        all.sort_by(|a, b| (&a.owner_name, &a.name).cmp(&(&b.owner_name, &b.name)));
        all.dedup_by(|a, b| a.owner == b.owner && a.name == b.name);
        all
    }
}

/// Replaces the services whose settings changed.
fn with_changed_settings(
    services: &ArcSwap<ServicesByName>,
    settings: impl Fn(&str, &str) -> ServiceSettings,
) {
    services.rcu(|before| {
        let renewed = before.iter().map(|(key, service)| {
            let settings = settings(&service.owner_name, &service.name);
            if settings == service.settings {
                return (key.clone(), Arc::clone(service));
            }
            with_key(Service {
                settings,
                owner_name: service.owner_name.clone(),
                name: service.name.clone(),
                meter: Arc::clone(&service.meter),
                kind: service.kind.clone(),
                ..**service
            })
        });
        renewed.collect::<ServicesByName>()
    });
}

fn with_key(service: Service) -> ((AccountId, String), Arc<Service>) {
    ((service.owner, service.name.clone()), Arc::new(service))
}

impl Deref for Gateway {
    type Target = GatewayParts;

    fn deref(&self) -> &GatewayParts {
        &self.parts
    }
}

impl Gateway {
    /// Creates a gateway from its parts.
    pub fn new(parts: GatewayParts) -> Arc<Self> {
        Arc::new(Self {
            waiters: Waiters::start(Arc::clone(&parts.store)),
            parts,
            in_flight: InFlight::default(),
            on_disk: StorageCache::default(),
            recorder: Recorder::default(),
            batches_changed: watch::Sender::new(0),
            metrics: GatewayMetrics::default(),
            request_ids: RequestIds::new(),
            started: Instant::now(),
            limits_met: LimitLog::default(),
            stopping: ShutdownState::new(),
            looked: ReadinessCache::default(),
            reload: Mutex::new(None),
        })
    }

    /// Returns the current settings, with all reloads applied.
    pub fn current(&self) -> Guard<Arc<GatewaySettings>> {
        self.current.load()
    }

    /// Sets the function that [`Self::reload`] calls.
    pub fn set_reload(&self, reload: SettingsReload) {
        *self.reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }

    /// Applies settings and keys that changed since the last reload, and returns the changes.
    /// Reloads run one at a time.
    pub fn reload(&self) -> Result<Changes, String> {
        let reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let reload = reload
            .as_ref()
            .ok_or("the server cannot reload yet: it is still starting")?;
        let done = reload();
        self.metrics.reloaded(done.is_ok());
        match &done {
            Ok(changes) => {
                let taken = changes.taken.join(", ");
                tracing::info!(changed = taken, "reloaded settings and keys");
                if !changes.needs_restart.is_empty() {
                    let settings = changes.needs_restart.join(", ");
                    tracing::warn!(settings, "changed settings need a restart");
                }
            }
            Err(error) => {
                tracing::error!(error, "reload failed: the settings are unchanged");
            }
        }
        done
    }

    /// Returns a service that the caller may use: its own, or another account's public one.
    pub(super) fn service_for(
        &self,
        caller: AccountId,
        account: &str,
        model: &str,
    ) -> Result<Arc<Service>, GatewayError> {
        let snapshot = self.directory.snapshot();
        let owner = snapshot.account(account).map(|account| account.id);
        let found = owner.and_then(|owner| self.services.find(owner, model));
        match found {
            Some(service) if service.owner == caller || service.settings.public => Ok(service),
            None if owner == Some(caller) => Err(GatewayError::no_service(model)),
            // Others must not learn which services exist.
            _ => Err(GatewayError::not_public()),
        }
    }

    /// Counts and logs that a limit of the server was reached.
    pub(super) fn limit_met(&self, limit: &'static str, who: &dyn std::fmt::Display) {
        self.limits_met.met(&self.metrics, limit, who);
    }

    /// Counts a request toward its account's rate limit.
    pub(super) async fn admit(
        &self,
        account: AccountId,
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), GatewayError> {
        let admitted = self.store.admit(account, limit, now).await;
        admitted.map_err(|error| self.refusal(account, error))
    }

    /// Returns the error for a request that exceeds its account's limits. The message names the
    /// setting that an operator can change.
    pub(super) fn refusal(&self, account: AccountId, error: EnqueueError) -> GatewayError {
        let accounts = self.directory.snapshot();
        let Some(account) = accounts.by_id(account) else {
            return error.into();
        };
        let waits = matches!(error, EnqueueError::TooManyWaiting { .. });
        let changes = match &error {
            EnqueueError::TooManyWaiting { limit } if *limit >= self.settings.limits.waiting => {
                "the setting `limits.waiting` changes it".to_owned()
            }
            EnqueueError::TooManyWaiting { .. } | EnqueueError::RateExceeded { .. } => {
                let least = if waits { "N" } else { "unlimited" };
                let name = &account.name;
                format!("`pkgtool accounts set {name} --rps {least}` changes it")
            }
            _ => return error.into(),
        };
        let mut refused = GatewayError::from(error);
        refused.message = format!("{}; {changes}", refused.message);
        refused
    }

    /// Returns the current limits of an account: its own limits, capped by the settings.
    pub(super) fn limit(&self, account: AccountId) -> Result<Limit, EnqueueError> {
        let accounts = self.directory.snapshot();
        let limit = accounts
            .by_id(account)
            .and_then(|account| self.current().caps().of(account));
        let limit = limit.ok_or(EnqueueError::Blocked)?;
        self.check_cpu_limit(account)?;
        Ok(limit)
    }

    /// Returns an error if the account has used up its CPU time for today.
    fn check_cpu_limit(&self, account: AccountId) -> Result<(), EnqueueError> {
        let limit = self.settings.limits.cpu_seconds_per_day;
        if limit == 0 || self.engines.meters().cpu().today(account).as_secs() < limit {
            return Ok(());
        }
        let passed = (Timestamp::now().0 / 1000).rem_euclid(DAY);
        let retry_after = u64::try_from(DAY - passed).unwrap_or(1);
        Err(EnqueueError::CpuUsed { limit, retry_after })
    }
}
