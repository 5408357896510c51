//! Settings of webhooks: address, events, secret.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::proxy::local_account;
use super::secrets::{key_from_file, key_from_variable, no_setting};
use super::{GatewaySettings, SettingsError};
use crate::webhook::WebhookSecret;
use pkgtool_base::source::redact::{redact, redact_address};

/// The events that a webhook may get, without the part after the dot.
const KINDS: [&str; 3] = ["task", "batch", "job"];

/// A server that gets an event when a task, a batch or a training job ends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its name. Events that wait for it belong to the name.
    pub name: String,
    /// The account whose events it gets.
    #[serde(default = "local_account")]
    pub account: String,
    /// Address to which events are posted.
    pub url: String,
    /// Types of events, such as `batch.completed` or `task.*`; default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Environment variable with the secret of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// File with the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = redact_address(&self.url);
        f.debug_struct("Webhook")
            .field("name", &self.name)
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Returns the secret of its signatures.
    pub fn secret(&self) -> Result<WebhookSecret, SettingsError> {
        let (setting, named, text) = match (&self.secret_env, &self.secret_file) {
            (Some(name), None) => ("secret_env", name.clone(), key_from_variable(name)),
            (None, Some(path)) => {
                let text = key_from_file(path);
                ("secret_file", path.display().to_string(), text)
            }
            (None, None) => {
                let expected = "set `secret_env` or `secret_file`: requests are signed";
                return Err(self.wrong("secret_file", "missing", expected));
            }
            (Some(_), Some(_)) => {
                let expected = "`secret_file` is set, too: remove one of them";
                return Err(self.wrong("secret_env", "set", expected));
            }
        };
        let secret = text.and_then(|text| WebhookSecret::parse(&text));
        secret.map_err(|expected| self.wrong(setting, &named, &expected))
    }

    fn check(&self) -> Result<(), SettingsError> {
        if self.name.is_empty() || self.name.contains(char::is_control) {
            let expected = "expected a name without control characters";
            return Err(self.wrong("name", &self.name.escape_debug().to_string(), expected));
        }
        if let Some(env) = &self.secret_env {
            no_setting(env).map_err(|expected| self.wrong("secret_env", env, &expected))?;
        }
        let url = Url::parse(&self.url).ok();
        let is_address = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if !url.as_ref().is_some_and(is_address) {
            let expected = "expected an address that begins with `https://` or `http://`";
            return Err(self.wrong("url", &redact_address(&self.url), expected));
        }
        let is_known = |event: &String| {
            let (kind, _) = event.split_once('.').unwrap_or((event, ""));
            event == "*" || KINDS.contains(&kind)
        };
        if let Some(unknown) = self.events.iter().find(|event| !is_known(event)) {
            let expected = "expected a type such as `task.completed`, `batch.*` or `job.failed`";
            return Err(self.wrong("events", unknown, expected));
        }
        Ok(())
    }

    fn wrong(&self, key: &str, found: &str, expected: &str) -> SettingsError {
        SettingsError::Value {
            place: format!("webhooks.{}.{key}", self.name.escape_debug()),
            found: format!("`{}`", redact(found)),
            expected: expected.to_owned(),
        }
    }
}

impl GatewaySettings {
    pub(super) fn check_webhooks(&self) -> Result<(), SettingsError> {
        let mut names = BTreeSet::new();
        for webhook in &self.webhooks {
            webhook.check()?;
            if !names.insert(&webhook.name) {
                let expected = "another webhook has this name: change one of them";
                return Err(webhook.wrong("name", &webhook.name, expected));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(webhook: &str) -> Result<(), String> {
        let text = format!("[[webhooks]]\nname = \"x\"\n{webhook}\n");
        let settings: GatewaySettings = toml::from_str(&text).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())?;
        let secret = settings.webhooks[0].secret();
        secret.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn wrong_webhooks_are_rejected_without_their_credentials() {
        for (wrong, says) in [
            ("url = \"me:hush@h\"", "webhooks.x.url"),
            ("url = \"ftp://me:hush@h\"", "https://"),
            ("url = \"http://h\"\nevents = [\"x.y\"]", "batch.*"),
            ("url = \"http://h\"", "secret_env"),
            (
                "url = \"http://h\"\nsecret_env = \"PKGTOOL_HUSH\"",
                "choose another name",
            ),
            (
                "url = \"http://h\"\nsecret_env = \"PKG_NOT_SET\"",
                "variable",
            ),
            (
                "url = \"http://h\"\nsecret_file = \"/nowhere\"",
                "cannot read",
            ),
            ("url = \"http://h\"\nsecret = \"hush\"", "unknown field"),
        ] {
            let error = check(wrong).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
            assert!(!error.contains("hush@"), "{error}");
        }
    }
}
