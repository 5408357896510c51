//! Who sees which services in the registry, and under which names.
//!
//! Invariant: what a viewer may not use and its owner does not list is not seen; a viewer's own services,
//! and without a key the first account's, are seen under their own names, whatever others have.

use std::collections::HashSet;
use std::sync::Arc;

use super::Gateway;
use super::auth::Viewer;
use super::settings::LOCAL_ACCOUNT;
use crate::account::AccountId;
use crate::service::{Device, Listed, Service};

/// A service that a viewer sees.
pub(super) struct Visible {
    pub(super) service: Arc<Service>,
    /// The service that it is derived from, of one that is not trained yet.
    base: Option<Arc<Service>>,
    /// Its name there; no other has it.
    pub(super) name: String,
}

impl Visible {
    /// The models that say what it takes: its own, or those that it will have when it is trained.
    pub(super) fn device(&self) -> Option<&Arc<Device>> {
        let own = self.service.device();
        own.or_else(|| self.base.as_ref()?.device())
    }
}

/// What a viewer sees, in the order of owners and names.
pub(super) fn visible(gateway: &Gateway, viewer: Viewer) -> Vec<Visible> {
    let mut services = gateway.services.all();
    services.retain(|service| sees(viewer, service));
    let is_own = |service: &&Arc<Service>| viewer.0 == Some(service.owner);
    let own: HashSet<&str> = services
        .iter()
        .filter(is_own)
        .map(|service| service.name.as_str())
        .collect();
    let names: Vec<String> = services
        .iter()
        .map(|service| name_for(viewer, service, &own))
        .collect();
    let all = services.into_iter().zip(names);
    all.map(|(service, name)| Visible {
        base: gateway.services.base_of(&service),
        service,
        name,
    })
    .collect()
}

/// The services that a viewer may use, in the order of owners and names.
pub(super) fn usable(gateway: &Gateway, viewer: Viewer) -> Vec<Arc<Service>> {
    let mut services = gateway.services.all();
    services.retain(|service| may_use(viewer.0, service));
    services
}

/// Whether a service may be used by a viewer, or looked at.
fn sees(viewer: Viewer, service: &Service) -> bool {
    is_listed(service) || may_use(viewer.0, service)
}

/// Whether a service's owner wants it seen by those who may not use it.
pub(super) fn is_listed(service: &Service) -> bool {
    match service.settings.listed {
        Listed::Auto => service.owner_name == LOCAL_ACCOUNT,
        Listed::Yes => true,
        Listed::No => false,
    }
}

/// Whether requests of an account (`None`: of one without any) to a service are let through.
fn may_use(account: Option<AccountId>, service: &Service) -> bool {
    service.settings.public || account == Some(service.owner)
}

/// `name`, or `owner/name` of those that are not the viewer's. The first account's stand for everybody
/// under their names, unless the viewer has one of that name itself; `own` are those.
fn name_for(viewer: Viewer, service: &Service, own: &HashSet<&str>) -> String {
    let is_own = viewer.0 == Some(service.owner);
    let is_first = service.owner_name == LOCAL_ACCOUNT && !own.contains(service.name.as_str());
    if is_own || is_first {
        service.name.clone()
    } else {
        format!("{}/{}", service.owner_name, service.name)
    }
}

/// The service that a viewer calls so: by the name under which it is seen, or by owner and name.
pub(super) fn named<'v>(visible: &'v [Visible], name: &str) -> Option<&'v Visible> {
    let exact = visible.iter().find(|seen| seen.name == name);
    exact.or_else(|| {
        let (owner, name) = name.split_once('/')?;
        let mut all = visible.iter();
        all.find(|seen| seen.service.owner_name == owner && seen.service.name == name)
    })
}
