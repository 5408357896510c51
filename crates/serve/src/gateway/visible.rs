//! Visibility of services in the registry: the services that a viewer sees, and their names there.
//!
//! Invariant: a service is visible if the viewer may use it or its owner lists it. A viewer's own
//! services keep their plain names. So do those of the first account, unless the viewer owns a
//! service of the same name. Other names are prefixed with the owner.

use std::collections::HashSet;
use std::sync::Arc;

use super::Gateway;
use super::auth::Viewer;
use super::settings::LOCAL_ACCOUNT;
use crate::account::AccountId;
use crate::service::{Device, Listed, Service};

/// A service that a viewer sees.
pub(super) struct VisibleService {
    pub(super) service: Arc<Service>,
    /// The base service of one that is not trained yet.
    base: Option<Arc<Service>>,
    /// The unique name of the service for this viewer.
    pub(super) name: String,
}

impl VisibleService {
    /// Returns the models that define the inputs: the service's own, or those of its base until it
    /// is trained.
    pub(super) fn device(&self) -> Option<&Arc<Device>> {
        let own = self.service.device();
        own.or_else(|| self.base.as_ref()?.device())
    }
}

/// Returns the services that a viewer sees, sorted by owner and name.
pub(super) fn visible(gateway: &Gateway, viewer: Viewer) -> Vec<VisibleService> {
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
    all.map(|(service, name)| VisibleService {
        base: gateway.services.base_of(&service),
        service,
        name,
    })
    .collect()
}

/// Returns the services that a viewer may use, sorted by owner and name.
pub(super) fn usable(gateway: &Gateway, viewer: Viewer) -> Vec<Arc<Service>> {
    let mut services = gateway.services.all();
    services.retain(|service| may_use(viewer.0, service));
    services
}

/// Returns `true` if a viewer may see a service: it is listed, or the viewer may use it.
fn sees(viewer: Viewer, service: &Service) -> bool {
    is_listed(service) || may_use(viewer.0, service)
}

/// Returns `true` if a service is listed for everyone.
pub(super) fn is_listed(service: &Service) -> bool {
    match service.settings.listed {
        Listed::Auto => service.owner_name == LOCAL_ACCOUNT,
        Listed::Yes => true,
        Listed::No => false,
    }
}

/// Returns `true` if an account may send requests to a service; `None` is a viewer without an
/// account.
fn may_use(account: Option<AccountId>, service: &Service) -> bool {
    service.settings.public || account == Some(service.owner)
}

/// Returns `name` or `owner/name`. Services of the viewer and of the first account have the short
/// form, unless the viewer owns a service of the same name; `own` are the names of those.
fn name_for(viewer: Viewer, service: &Service, own: &HashSet<&str>) -> String {
    let is_own = viewer.0 == Some(service.owner);
    let is_first = service.owner_name == LOCAL_ACCOUNT && !own.contains(service.name.as_str());
    if is_own || is_first {
        service.name.clone()
    } else {
        format!("{}/{}", service.owner_name, service.name)
    }
}

/// Finds a service by its visible name, or by owner and name.
pub(super) fn named<'v>(visible: &'v [VisibleService], name: &str) -> Option<&'v VisibleService> {
    let exact = visible.iter().find(|seen| seen.name == name);
    exact.or_else(|| {
        let (owner, name) = name.split_once('/')?;
        let mut all = visible.iter();
        all.find(|seen| seen.service.owner_name == owner && seen.service.name == name)
    })
}
