//! The share of the work of a server, if several servers share a database.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{DatabaseSetting, GatewaySettings, SettingsError, require};

/// The work of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerRole {
    /// Everything.
    #[default]
    All,
    /// It answers requests and accepts tasks; others run them.
    Api,
    /// It runs tasks, batches and training jobs, and sends events; it answers only probes.
    Dispatcher,
}

/// The text is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`; expected `all`, `api` or `dispatcher`")]
pub struct UnknownRole(String);

impl ServerRole {
    /// Returns whether the server answers requests of clients.
    pub fn answers(self) -> bool {
        self != Self::Dispatcher
    }

    /// Returns whether the server runs stored work: tasks, batches, training jobs, events.
    pub fn dispatches(self) -> bool {
        self != Self::Api
    }
}

impl GatewaySettings {
    /// Checks that only servers that share a database divide the work. Arguments of the command line may have changed
    /// both.
    pub fn check_role(&self) -> Result<(), SettingsError> {
        require(
            "role",
            "set",
            self.role == ServerRole::All || self.database != DatabaseSetting::Own,
            "servers share the work only if they share a database; set `database`",
        )
    }
}

impl FromStr for ServerRole {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "api" => Ok(Self::Api),
            "dispatcher" => Ok(Self::Dispatcher),
            other => Err(UnknownRole(other.to_owned())),
        }
    }
}
