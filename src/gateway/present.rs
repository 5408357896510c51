//! What the page of metrics shows beside counts: the services, the sessions, the store as they are now.

use super::Gateway;
use super::metrics::Present;
use super::peer::Audience;

/// The present of a gateway, as this audience may see it.
pub(super) async fn present(gateway: &Gateway, audience: Audience) -> Present {
    let directory = &gateway.settings.data_dir;
    let engines = &gateway.engines;
    Present {
        is_named: audience == Audience::Trusted,
        tasks: gateway.store.load().await.ok(),
        services: gateway.services.all(),
        unserved: gateway.services.unserved().len(),
        memory: (engines.memory(), engines.budget()),
        parser_jobs: engines.parser_jobs(),
        body_bytes: gateway.memory.held(),
        meters: engines.meters().all(),
        sizes: gateway.metrics.sizes(directory).await,
    }
}
