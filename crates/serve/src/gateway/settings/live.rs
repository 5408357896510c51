//! Reload of settings: the list of settings that a running server can change, and the merge of new
//! settings into current ones.
//!
//! Invariant: every changed setting outside of [`RELOADABLE`] needs a restart and is reported. A setting
//! is applied completely or not at all.

use toml::{Table, Value};

use super::{GatewaySettings, SettingsError};

/// Settings, or tables of settings, that are read on every use and can be reloaded.
const RELOADABLE: [&str; 10] = [
    "defaults",
    "limits.body_bytes",
    "limits.waiting",
    "log.level",
    "proxies",
    "services",
    "timeouts.body_s",
    "tls.certificate",
    "tls.key",
    "trusted_proxies",
];

/// The result of a reload.
#[derive(Debug)]
pub struct Changes {
    /// The new settings.
    pub settings: GatewaySettings,
    /// Names of settings that were changed.
    pub taken: Vec<String>,
    /// Names of changed settings that need a restart.
    pub needs_restart: Vec<String>,
}

impl GatewaySettings {
    /// Merges new settings into these, as far as a running server can change them.
    pub fn merge_reloadable(&self, wanted: &Self) -> Result<Changes, SettingsError> {
        let table = |settings: &Self| {
            Table::try_from(settings).map_err(|error| SettingsError::Value {
                place: "settings".to_owned(),
                found: error.to_string(),
                expected: "numbers that TOML can hold".to_owned(),
            })
        };
        let mut differences = Differences {
            // TLS cannot be switched on or off after the server began to listen.
            frozen: (self.tls.certificate.as_os_str().is_empty()
                != wanted.tls.certificate.as_os_str().is_empty())
            .then_some("tls"),
            taken: Vec::new(),
            left: Vec::new(),
        };
        let mut merged = table(self)?;
        differences.walk(&mut merged, &table(wanted)?, "");
        let settings =
            merged
                .try_into()
                .map_err(|error: toml::de::Error| SettingsError::Value {
                    place: "settings".to_owned(),
                    found: error.message().to_owned(),
                    expected: "consistent settings".to_owned(),
                })?;
        Ok(Changes {
            settings,
            taken: differences.taken,
            needs_restart: differences.left,
        })
    }
}

struct Differences {
    frozen: Option<&'static str>,
    taken: Vec<String>,
    left: Vec<String>,
}

impl Differences {
    fn walk(&mut self, now: &mut Table, wanted: &Table, above: &str) {
        let mut keys: Vec<String> = now.keys().chain(wanted.keys()).cloned().collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let place = if above.is_empty() {
                key.clone()
            } else {
                format!("{above}.{key}")
            };
            match (now.get_mut(&key), wanted.get(&key)) {
                (now, wanted) if now.as_deref() == wanted => {}
                (Some(Value::Table(now)), Some(Value::Table(wanted))) => {
                    self.walk(now, wanted, &place);
                }
                (_, wanted) => {
                    if !self.is_live(&place) {
                        self.left.push(place);
                        continue;
                    }
                    match wanted.cloned() {
                        Some(wanted) => now.insert(key, wanted),
                        None => now.remove(&key),
                    };
                    self.taken.push(place);
                }
            }
        }
    }

    fn is_live(&self, place: &str) -> bool {
        let is_in = |table: &str| {
            let rest = place.strip_prefix(table);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        RELOADABLE.iter().any(|live| is_in(live)) && !self.frozen.is_some_and(is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> GatewaySettings {
        toml::from_str(text).expect("they are right")
    }

    #[test]
    fn what_can_be_taken_over_is_and_the_rest_is_named() {
        let now = read(
            "listen = \"127.0.0.1:1\"\n[limits]\nbody_bytes = 1\nheader_count = 7\n\
             [services.a]\ninstances = 2\n[services.b]\nqueue = 3",
        );
        let wanted = read(
            "listen = \"127.0.0.1:2\"\n[limits]\nbody_bytes = 5\nheader_count = 8\n\
             [services.a]\ninstances = 4\n[services.c]\nqueue = 9\n[log]\nlevel = \"debug\"\n\
             [trusted_proxies]\nnetworks = [\"10.0.0.0/8\"]",
        );
        let changes = now.merge_reloadable(&wanted).expect("they go together");
        let expected = [
            "limits.body_bytes",
            "log.level",
            "services.a.instances",
            "services.b",
            "services.c",
            "trusted_proxies.networks",
        ];
        assert_eq!(changes.taken, expected);
        assert_eq!(changes.needs_restart, ["limits.header_count", "listen"]);
        let mut settings = wanted.clone();
        settings.listen = now.listen;
        settings.limits.header_count = 7;
        assert_eq!(changes.settings, settings);
        let again = changes
            .settings
            .merge_reloadable(&wanted)
            .expect("they go together");
        assert!(again.taken.is_empty());
        assert_eq!(again.needs_restart, changes.needs_restart);
    }

    #[test]
    fn tls_is_not_switched_on_while_running() {
        let off = read("");
        let on = read("[tls]\ncertificate = \"c\"\nkey = \"k\"");
        let other = read("[tls]\ncertificate = \"d\"\nkey = \"k\"");
        for (now, wanted) in [(&off, &on), (&on, &off)] {
            let changes = now.merge_reloadable(wanted).expect("they go together");
            assert_eq!(changes.needs_restart, ["tls.certificate", "tls.key"]);
            assert_eq!(changes.settings, *now);
        }
        let changes = on.merge_reloadable(&other).expect("they go together");
        assert_eq!(changes.taken, ["tls.certificate"]);
    }

    #[test]
    fn every_live_setting_exists() {
        let table = Table::try_from(GatewaySettings::default()).expect("it is one");
        for live in RELOADABLE {
            let mut value = Some(&Value::Table(table.clone())).cloned();
            for key in live.split('.') {
                value = value.and_then(|value| value.get(key).cloned());
            }
            assert!(value.is_some(), "{live}");
        }
    }
}
