//! Settings for workers, which attach by the gate protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::operators::OptionalAddress;
use super::{SettingsError, require};

/// Workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersSettings {
    /// Address of the listener for workers. If empty, it is off.
    pub listen: OptionalAddress,
    /// Seconds between two heartbeats. A worker that is silent for three of them and a second is lost.
    pub heartbeat_s: f64,
    /// Maximum number of requests in flight of a worker that does not say how many it accepts.
    pub in_flight: usize,
    /// Maximum number of workers with the same token.
    pub instances_per_token: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of attempts of a task whose worker leaves.
    pub attempts: u32,
}

impl Default for WorkersSettings {
    fn default() -> Self {
        Self {
            listen: OptionalAddress::default(),
            heartbeat_s: 5.0,
            in_flight: 16,
            instances_per_token: 256,
            connections: 4096,
            attempts: 2,
        }
    }
}

impl WorkersSettings {
    /// Returns the time between two heartbeats.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs_f64(self.heartbeat_s)
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        require(
            "workers.heartbeat_s",
            self.heartbeat_s,
            (0.1..=3600.0).contains(&self.heartbeat_s),
            "it must be from 0.1 to 3600",
        )?;
        for (place, value) in [
            ("workers.in_flight", self.in_flight),
            ("workers.instances_per_token", self.instances_per_token),
            ("workers.connections", self.connections),
            ("workers.attempts", self.attempts as usize),
        ] {
            let holds = (1..=1 << 20).contains(&value);
            require(place, value, holds, "it must be from 1 to 1048576")?;
        }
        Ok(())
    }
}
