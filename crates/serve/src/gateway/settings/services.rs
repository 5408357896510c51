//! Settings of single services: the tables `[services.NAME]` of `gateway.toml`.
//!
//! A key names a service as `NAME` (of the first account) or `"ACCOUNT/NAME"`.
//!
//! Invariant: each service has at most one table, and each table belongs to an existing service.

use super::{GatewaySettings, LOCAL_ACCOUNT, SettingsError, check_service};
use crate::service::ServiceSettings;
use pkgtool_base::source::suggest;

/// Maximum number of services that an error lists.
const MAX_LISTED_SERVICES: usize = 20;

impl GatewaySettings {
    /// Returns the settings of a service: the defaults, overridden by its own table.
    pub fn service(&self, account: &str, name: &str) -> Result<ServiceSettings, SettingsError> {
        let full = format!("{account}/{name}");
        let plain = (account == LOCAL_ACCOUNT).then(|| self.services.get(name));
        let own = self.services.get(&full).or(plain.flatten());
        let Some(own) = own else {
            return Ok(self.defaults.clone());
        };
        let invalid = |error: &dyn std::fmt::Display| SettingsError::Value {
            place: place(&full),
            found: error.to_string(),
            expected:
                "see `defaults` in `pkgtool serve --print-config` for the settings of a service"
                    .to_owned(),
        };
        let mut all = toml::Table::try_from(&self.defaults).map_err(|error| invalid(&error))?;
        all.extend(own.clone());
        let settings: ServiceSettings = all.try_into().map_err(|error| invalid(&error))?;
        check_service(&place(&full), &settings)?;
        Ok(settings)
    }

    /// Checks that every table belongs to one of the known services, given as owner and name.
    /// Reports the first that does not.
    pub fn check_services(&self, known: &[(String, String)]) -> Result<(), SettingsError> {
        for key in self.services.keys() {
            let (owner, name) = owner_and_name(key);
            if known.iter().any(|(of, known)| of == owner && known == name) {
                continue;
            }
            let meant = nearest(owner, name, known);
            let mut names: Vec<String> = known.iter().map(|(of, name)| short(of, name)).collect();
            names.sort();
            names.dedup();
            if names.len() > MAX_LISTED_SERVICES {
                let more = names.len() - MAX_LISTED_SERVICES;
                names.truncate(MAX_LISTED_SERVICES);
                names.push(format!("{more} more"));
            }
            return Err(SettingsError::Service {
                place: place(key),
                owner: owner.to_owned(),
                name: name.to_owned(),
                meant: meant.map(|meant| format!("; did you mean {}?", place(&meant))),
                known: if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                },
            });
        }
        Ok(())
    }

    /// Checks that each table is valid, and that no service has two.
    pub(super) fn check_places(&self) -> Result<(), SettingsError> {
        for key in self.services.keys() {
            let (owner, name) = owner_and_name(key);
            if owner == LOCAL_ACCOUNT && key != name && self.services.contains_key(name) {
                return Err(SettingsError::Value {
                    place: place(key),
                    found: format!("the same service as {}", place(name)),
                    expected: "merge both into one".to_owned(),
                });
            }
            self.service(owner, name)?;
        }
        Ok(())
    }
}

/// Splits a key into owner and name. The default owner is the first account.
fn owner_and_name(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or((LOCAL_ACCOUNT, key))
}

/// Returns the key of a service.
fn short(owner: &str, name: &str) -> String {
    if owner == LOCAL_ACCOUNT {
        name.to_owned()
    } else {
        format!("{owner}/{name}")
    }
}

/// Returns the table's name as it is written in the file.
fn place(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !key.is_empty() && key.bytes().all(is_bare) {
        format!("`[services.{key}]`")
    } else {
        format!("`[services.\"{key}\"]`")
    }
}

/// Returns the most similar known service. A service of the same name with another owner comes
/// first.
fn nearest(owner: &str, name: &str, known: &[(String, String)]) -> Option<String> {
    let mut same = known.iter().filter(|(_, known)| known == name);
    if let (Some((of, name)), None) = (same.next(), same.next()) {
        return Some(short(of, name));
    }
    let full: Vec<String> = known
        .iter()
        .map(|(of, name)| format!("{of}/{name}"))
        .collect();
    let wanted = format!("{owner}/{name}");
    let meant = suggest::nearest(&wanted, full.iter().map(String::as_str))?;
    let (of, name) = owner_and_name(meant);
    Some(short(of, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> GatewaySettings {
        toml::from_str(text).expect("it is TOML")
    }

    fn known() -> Vec<(String, String)> {
        [
            ("local", "sum"),
            ("local", "gpt-4.1"),
            ("acme", "sum"),
            ("acme", "weigh"),
        ]
        .map(|(owner, name)| (owner.to_owned(), name.to_owned()))
        .into()
    }

    #[test]
    fn each_account_has_its_own() {
        let settings = settings(
            "[services.sum]\nqueue = 1\n[services.\"acme/sum\"]\nqueue = 2\n\
             [services.\"local/gpt-4.1\"]\nqueue = 3",
        );
        settings.check().expect("they are right");
        settings.check_services(&known()).expect("all are there");
        for (owner, name, queue) in [
            ("local", "sum", 1),
            ("acme", "sum", 2),
            ("local", "gpt-4.1", 3),
            ("other", "sum", 256),
            ("acme", "gpt-4.1", 256),
        ] {
            let found = settings.service(owner, name).expect("it is right").queue;
            assert_eq!(found, queue, "{owner}/{name}");
        }
    }

    #[test]
    fn a_place_of_no_service_is_told_with_what_was_meant() {
        for (key, meant) in [
            ("sun", "did you mean `[services.sum]`?"),
            ("weigh", "did you mean `[services.\"acme/weigh\"]`?"),
            (
                "\"acme/wiegh\"",
                "did you mean `[services.\"acme/weigh\"]`?",
            ),
            (
                "\"other/weigh\"",
                "did you mean `[services.\"acme/weigh\"]`?",
            ),
            ("nothing_like_it", "acme/sum, acme/weigh, gpt-4.1, sum"),
        ] {
            let settings = settings(&format!("[services.{key}]\nqueue = 1"));
            let error = settings.check_services(&known()).expect_err(key);
            assert!(error.to_string().contains(meant), "{error}");
        }
        let settings = settings("[services.x]");
        let error = settings.check_services(&[]).expect_err("there is none");
        assert!(error.to_string().contains("none"), "{error}");
    }

    #[test]
    fn one_service_has_one_place() {
        let settings = settings("[services.sum]\nqueue = 1\n[services.\"local/sum\"]\nqueue = 2");
        let error = settings.check().expect_err("there are two");
        assert!(error.to_string().contains("merge both into one"), "{error}");
    }
}
