//! Taking over what changed while the server runs: settings, keys, proxies, the certificate.
//!
//! Invariant: everything is checked before anything changes; what is wrong is told, and all stays as it
//! was.

use super::super::exit::Failure;
use super::Args;
use super::log::Level;
use super::parts::Live;
use super::proxies::upstreams;
use crate::gateway::Tls;
use crate::gateway::settings::Changes;

/// The setting of the proxies.
const PROXIES: &str = "proxies";

/// What is replaced.
pub(super) struct Reload {
    pub(super) args: Args,
    pub(super) live: Live,
    pub(super) tls: Option<Tls>,
    pub(super) level: Level,
}

impl Reload {
    /// Takes over what changed, as far as a running server can.
    pub(super) fn now(&self) -> Result<Changes, String> {
        let wanted = super::settings(&self.args).map_err(|failure| failure.to_string())?;
        let changes = self.live.settings().take_over(&wanted);
        let mut changes = changes.map_err(|error| error.to_string())?;
        let filter = Level::parse(&changes.settings.log)?;
        let told = |failure: Failure| failure.to_string();
        let upstreams = upstreams(&changes.settings, &self.args).map_err(told)?;
        let proxies = self.live.proxies(&changes.settings, upstreams);
        let proxies = proxies.map_err(told)?;
        if self.live.has_changed(&proxies) && !changes.taken.iter().any(|it| it == PROXIES) {
            // A key's file has another key.
            changes.taken.push(PROXIES.to_owned());
        }
        if let Some(tls) = &self.tls {
            // The last thing that can fail, and the first that changes.
            tls.renew_now(&changes.settings)
                .map_err(|error| error.to_string())?;
        }
        self.level.set(filter);
        self.live.take_over(changes.settings.clone(), proxies);
        Ok(changes)
    }
}
