//! Reloads settings, keys, proxies and the certificate while the server runs.
//!
//! Invariant: everything is checked before anything changes. On an error, nothing changes and the
//! error is reported.

use super::super::exit::Failure;
use super::ServeArgs;
use super::log::LevelHandle;
use super::parts::ReloadTargets;
use super::proxies::upstream_options;
use pkgtool_serve::gateway::ServerCertificate;
use pkgtool_serve::gateway::settings::Changes;

/// Name of the setting with the proxies.
const PROXIES: &str = "proxies";

/// The inputs and the targets of a reload.
pub(super) struct Reload {
    pub(super) args: ServeArgs,
    pub(super) live: ReloadTargets,
    pub(super) tls: Option<ServerCertificate>,
    pub(super) level: LevelHandle,
}

impl Reload {
    /// Applies changed settings as far as a running server can.
    pub(super) fn now(&self) -> Result<Changes, String> {
        let wanted = super::settings(&self.args).map_err(|failure| failure.to_string())?;
        let changes = self.live.settings().merge_reloadable(&wanted);
        let mut changes = changes.map_err(|error| error.to_string())?;
        let filter = LevelHandle::parse(&changes.settings.log)?;
        let told = |failure: Failure| failure.to_string();
        let upstreams = upstream_options(&changes.settings, &self.args).map_err(told)?;
        let proxies = self.live.proxies(&changes.settings, upstreams);
        let proxies = proxies.map_err(told)?;
        if self.live.have_upstreams_changed(&proxies)
            && !changes.taken.iter().any(|it| it == PROXIES)
        {
            // The content of an API key file has changed.
            changes.taken.push(PROXIES.to_owned());
        }
        if let Some(tls) = &self.tls {
            // Renewing the certificate is the last step that can fail, and the first that changes
            // anything.
            tls.renew_now(&changes.settings)
                .map_err(|error| error.to_string())?;
        }
        self.level.set(filter);
        self.live.apply(changes.settings.clone(), proxies);
        Ok(changes)
    }
}
