//! Collects the current state for the metrics page: services, sessions, store, accounts.

use std::time::Duration;

use super::Gateway;
use super::auth::Viewer;
use super::metrics::{AccountMetrics, CurrentState, VisibleNames};
use super::peer::Audience;
use super::visible::usable;
use crate::account::AccountId;
use crate::database::Timestamp;

/// Returns the current state, limited to the names that this audience may see.
pub(super) async fn present(gateway: &Gateway, audience: Audience, viewer: Viewer) -> CurrentState {
    let directory = &gateway.settings.data_dir;
    let engines = &gateway.engines;
    CurrentState {
        names: names(gateway, audience, viewer),
        tasks: gateway.store.load().await.ok(),
        longest_wait: longest_wait(gateway).await,
        store: std::sync::Arc::clone(&gateway.store),
        services: gateway.services.all(),
        unserved: gateway.services.unserved().len(),
        memory: (engines.memory(), engines.budget()),
        devices: engines.devices(),
        parser_jobs: engines.parser_jobs(),
        body_bytes: gateway.memory.held(),
        meters: engines.meters().all(),
        sizes: gateway.metrics.sizes(directory).await,
        accounts: accounts(gateway, audience, viewer).await,
        workers: gateway.workers.list(),
    }
}

/// Returns how long the task that waits longest has waited.
async fn longest_wait(gateway: &Gateway) -> Option<Duration> {
    let oldest = gateway.store.oldest_waiting().await.ok()?;
    let wait = |since: Timestamp| since.until(Timestamp::now());
    Some(oldest.map_or(Duration::ZERO, wait))
}

/// Returns the values of the accounts that may be named, up to the maximum number of labels.
async fn accounts(gateway: &Gateway, audience: Audience, viewer: Viewer) -> Vec<AccountMetrics> {
    let snapshot = std::sync::Arc::clone(&gateway.directory.snapshot());
    let totals = gateway.engines.meters().cpu().totals();
    let used = |account| {
        let found = totals.iter().find(|(id, _)| *id == account);
        Duration::from_micros(found.map_or(0, |(_, micros)| *micros))
    };
    let named: Vec<AccountId> = match (audience, viewer.0) {
        (Audience::Trusted, _) => snapshot.ids(),
        (Audience::Anybody, account) => account.into_iter().collect(),
    };
    let mut accounts = Vec::new();
    for id in named.into_iter().take(gateway.settings.metrics.accounts) {
        if let Some(account) = snapshot.by_id(id) {
            accounts.push(AccountMetrics {
                name: account.name.clone(),
                cpu: used(id),
                stored: gateway
                    .stored_lately(id)
                    .await
                    .map_or_else(Vec::new, |stored| stored.by_kind().into()),
            });
        }
    }
    accounts
}

/// Returns the names that may be shown: all for operators, else the key's own account and the
/// services that it may use.
fn names(gateway: &Gateway, audience: Audience, viewer: Viewer) -> VisibleNames {
    if audience == Audience::Trusted {
        return VisibleNames::All;
    }
    let accounts = gateway.directory.snapshot();
    let Some(account) = viewer.0.and_then(|account| accounts.by_id(account)) else {
        return VisibleNames::None;
    };
    let services = usable(gateway, viewer).into_iter();
    VisibleNames::Of {
        account: account.name.clone(),
        services: services.map(|it| it.meter.label.clone()).collect(),
    }
}
