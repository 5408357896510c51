//! Starts the webhooks of the settings.

use super::super::exit::Failure;
use super::proxies::account_named;
use pkgtool_serve::account::Account;
use pkgtool_serve::gateway::settings::GatewaySettings;
use pkgtool_serve::service::upstream_client;
use pkgtool_serve::task::Stores;
use pkgtool_serve::webhook::{WebhookOptions, Webhooks};

/// Starts to send events, unless other servers do.
pub(super) async fn start(
    settings: &GatewaySettings,
    accounts: &[Account],
    stores: &Stores,
) -> Result<Option<Webhooks>, Failure> {
    if !settings.role.dispatches() {
        return Ok(None);
    }
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let webhooks = settings.webhooks.iter().map(|webhook| {
        Ok(WebhookOptions {
            name: webhook.name.clone(),
            account: account_named(accounts, &webhook.account)?,
            url: webhook.url.clone(),
            events: webhook.events.clone(),
            secret: webhook.secret().map_err(|error| other(&error))?,
        })
    });
    let webhooks = webhooks.collect::<Result<_, Failure>>()?;
    let store = stores.webhooks().await.map_err(|error| other(&error))?;
    let client = upstream_client().map_err(|error| other(&error))?;
    let started = Webhooks::start(store, webhooks, client).await;
    started.map(Some).map_err(|error| other(&error))
}
