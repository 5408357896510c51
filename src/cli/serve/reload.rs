//! Taking over what changed while the server runs: settings, keys, the certificate. Asked for by SIGHUP.
//!
//! Invariant: everything is checked before anything changes; what is wrong is told, and all stays as it
//! was.

use std::sync::Arc;

use super::Args;
use super::log::Level;
use super::parts::Live;
use crate::gateway::{Gateway, Tls};

/// What is replaced.
pub(super) struct Reload {
    pub(super) args: Args,
    pub(super) gateway: Arc<Gateway>,
    pub(super) live: Live,
    pub(super) tls: Option<Tls>,
    pub(super) level: Level,
}

impl Reload {
    /// Takes over what changed, and says what.
    pub(super) fn now(&self) {
        let done = self.take_over();
        self.gateway.count_reload(done.is_ok());
        if let Err(error) = done {
            tracing::error!(
                error,
                "nothing is taken over: the settings stay as they were"
            );
        }
    }

    fn take_over(&self) -> Result<(), String> {
        let wanted = super::settings(&self.args).map_err(|failure| failure.to_string())?;
        let changes = self.gateway.current().take_over(&wanted);
        let changes = changes.map_err(|error| error.to_string())?;
        let settings = changes.settings;
        let filter = Level::parse(&settings.log)?;
        if let Some(tls) = &self.tls {
            // The last thing that can fail, and the first that changes.
            tls.renew_now(&settings)
                .map_err(|error| error.to_string())?;
        }
        self.level.set(filter);
        self.live.take_over(settings);
        let taken = changes.taken.join(", ");
        tracing::info!(changed = taken, "settings and keys are read again");
        if !changes.left.is_empty() {
            let settings = changes.left.join(", ");
            tracing::warn!(settings, "changed settings that take a restart");
        }
        Ok(())
    }
}
