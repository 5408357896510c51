//! Builds proxy services from the settings, at the start and at each reload. A proxy forwards
//! requests to another HTTP service, its upstream.

use std::sync::Arc;

use super::super::exit::Failure;
use super::{ServeArgs, config_file};
use pkgtool_serve::account::{Account, AccountId, AccountStore};
use pkgtool_serve::gateway::Services;
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::service::engine::Engines;
use pkgtool_serve::service::{Service, ServiceKind, Upstream, UpstreamOptions};

/// Returns the options of the upstreams of all proxies, including their API keys.
pub(super) fn upstream_options(
    settings: &GatewaySettings,
    args: &ServeArgs,
) -> Result<Vec<UpstreamOptions>, Failure> {
    let upstreams = settings.upstreams();
    upstreams.or_else(|error| {
        let file = config_file(args)?;
        let error = match file {
            Some(file) => error.in_file(&file),
            None => error,
        };
        Err(Failure::Other(error.to_string()))
    })
}

/// Returns the proxies of the settings with their upstreams. A running upstream with unchanged
/// options is reused.
pub(super) async fn build_proxies(
    (settings, upstreams): (&GatewaySettings, Vec<UpstreamOptions>),
    (accounts, store): (&[Account], &dyn AccountStore),
    engines: &Engines,
    running: Option<&Services>,
) -> Result<Vec<Service>, Failure> {
    let mut services = Vec::new();
    for (proxy, options) in settings.proxies.iter().zip(upstreams) {
        let owner = account_named(accounts, &proxy.account)?;
        let before = running.and_then(|running| running.proxy(owner, &proxy.name));
        let upstream = match before.as_deref().map(|service| &service.kind) {
            Some(ServiceKind::Proxy(upstream)) if *upstream.options() == options => {
                Arc::clone(upstream)
            }
            _ => Upstream::start(options)
                .map_err(|error| Failure::Other(format!("proxy `{}`: {error}", proxy.name)))?,
        };
        let service = settings.service(&proxy.account, &proxy.name);
        let number = store.service_number(owner, &proxy.name).await;
        services.push(Service {
            id: number.map_err(|error| Failure::Other(error.to_string()))?,
            owner,
            owner_name: proxy.account.clone(),
            meter: engines.meters().of(&proxy.account, &proxy.name),
            name: proxy.name.clone(),
            settings: service.map_err(|error| Failure::Other(error.to_string()))?,
            kind: ServiceKind::Proxy(upstream),
        });
    }
    Ok(services)
}

/// Returns the account with this name.
pub(super) fn account_named(accounts: &[Account], name: &str) -> Result<AccountId, Failure> {
    let found = accounts.iter().find(|account| account.name == name);
    found.map(|account| account.id).ok_or_else(|| {
        Failure::Other(format!(
            "unknown account `{name}`; create it with `pkgtool accounts create --name {name} \
             --rps 50`"
        ))
    })
}
