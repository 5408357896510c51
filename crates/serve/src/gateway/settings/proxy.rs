//! Settings of proxies, which are services that forward requests to other HTTP services: address,
//! key, headers, health check.
//!
//! Invariant: secrets are never shown. The settings hold no key: a variable or a file does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::secrets::{key_from_file, key_from_variable, no_setting};
use super::{GatewaySettings, LOCAL_ACCOUNT, SettingsError};
use crate::service::{UpstreamAddress, UpstreamKey, UpstreamOptions};
use pkgtool_base::source::redact::{is_secret_name, redact, redact_address};

/// Maximum number of addresses of a proxy.
const MAX_ADDRESSES: usize = 64;

/// Headers that settings cannot set: they belong to a connection or a body, or the gateway sets
/// them itself.
const RESERVED_HEADERS: [&str; 11] = [
    "accept",
    "accept-encoding",
    "connection",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Prefixes of such headers.
const RESERVED_HEADER_PREFIXES: [&str; 2] = ["content-", "proxy-"];

/// A service that forwards requests to another HTTP service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Name of the service.
    pub name: String,
    /// The account that owns it.
    #[serde(default = "local_account")]
    pub account: String,
    /// Address to which requests are posted, or a list of equivalent addresses.
    pub upstream: Addresses,
    /// Display name in the registry; default: its name.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Environment variable with the upstream's key.
    #[serde(default)]
    pub key_env: Option<String>,
    /// File with the upstream's key. Each reload reads it again.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Header of the key; default: `Authorization: Bearer KEY`.
    #[serde(default)]
    pub key_header: Option<String>,
    /// Path of the upstream's health check; default: the check is off.
    #[serde(default)]
    pub health: Option<String>,
    /// Time between two health checks, in seconds.
    #[serde(default = "health_every_s")]
    pub health_every_s: f64,
    /// Headers that are sent with every call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Addresses as they are written in the file. They may contain credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Addresses(Vec<String>);

impl Addresses {
    /// Returns the addresses without credentials.
    fn redacted(&self) -> Self {
        Self(
            self.0
                .iter()
                .map(|address| redact_address(address))
                .collect(),
        )
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.redacted().0).finish()
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Vec<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, or a list of addresses")
            }

            fn visit_str<E>(self, one: &str) -> Result<Self::Value, E> {
                Ok(vec![one.to_owned()])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(address) = list.next_element()? {
                    all.push(address);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_any(OneOrMore).map(Self)
    }
}

impl GatewaySettings {
    /// Returns the settings without credentials.
    pub(super) fn redacted(&self) -> Self {
        let mut shown = self.clone();
        shown.database = self.database.redacted();
        for proxy in &mut shown.proxies {
            proxy.upstream = proxy.upstream.redacted();
        }
        for webhook in &mut shown.webhooks {
            webhook.url = redact_address(&webhook.url);
        }
        shown
    }

    /// Returns how to call the upstream of each proxy, with its key, in the order of the proxies.
    pub fn upstreams(&self) -> Result<Vec<UpstreamOptions>, SettingsError> {
        let proxies = self.proxies.iter().enumerate();
        proxies
            .map(|(number, proxy)| proxy.options(ProxyIndex(number), self.limits.answer_bytes))
            .collect()
    }

    /// Checks the proxies, except their keys, which are read when the server starts.
    pub(super) fn check_proxies(&self) -> Result<(), SettingsError> {
        let mut names = BTreeSet::new();
        for (number, proxy) in self.proxies.iter().enumerate() {
            let place = ProxyIndex(number);
            check_name(place, &proxy.name)?;
            if !names.insert((&proxy.account, &proxy.name)) {
                let expected = format!(
                    "the account `{}` has a proxy of this name already: change one of the names",
                    proxy.account
                );
                return Err(place.wrong("name", &proxy.name, &expected));
            }
            proxy.check(place)?;
        }
        Ok(())
    }
}

/// Index of a proxy in the settings.
#[derive(Clone, Copy)]
struct ProxyIndex(usize);

impl ProxyIndex {
    fn wrong(self, key: &str, found: &str, expected: &str) -> SettingsError {
        SettingsError::Value {
            place: format!("proxies[{}].{key}", self.0),
            found: format!("`{}`", redact(found)),
            expected: expected.to_owned(),
        }
    }
}

fn check_name(place: ProxyIndex, name: &str) -> Result<(), SettingsError> {
    if name.is_empty() || name.contains('/') || name.contains(char::is_control) {
        let expected = "expected a name without `/`, which stands between an account and its service, \
                        and without control characters";
        return Err(place.wrong("name", name, expected));
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        let expected = format!(
            "a number would be read as the id of a service: add a letter, such as `proxy-{name}`"
        );
        return Err(place.wrong("name", name, &expected));
    }
    Ok(())
}

impl Proxy {
    fn check(&self, place: ProxyIndex) -> Result<(), SettingsError> {
        let addresses = self.addresses(place)?;
        self.check_key(place, &addresses)?;
        self.headers(place)?;
        if let Some(path) = &self.health {
            let is_path = path.starts_with('/')
                && !path.starts_with("//")
                && path
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'#');
            if !is_path {
                let expected = "expected a path at the upstream's server, such as `/health`";
                return Err(place.wrong("health", path, expected));
            }
        }
        let every = self.health_every_s;
        if !(0.1..=86_400.0).contains(&every) {
            let expected = "expected 0.1 to 86400 seconds";
            return Err(place.wrong("health_every_s", &every.to_string(), expected));
        }
        Ok(())
    }

    fn addresses(&self, place: ProxyIndex) -> Result<Vec<UpstreamAddress>, SettingsError> {
        let written = &self.upstream.0;
        if !(1..=MAX_ADDRESSES).contains(&written.len()) {
            let expected = format!("expected 1 to {MAX_ADDRESSES} addresses");
            let found = format!("{} addresses", written.len());
            return Err(place.wrong("upstream", &found, &expected));
        }
        let mut addresses: Vec<UpstreamAddress> = Vec::with_capacity(written.len());
        for text in written {
            let address = UpstreamAddress::parse(text);
            let shown = redact_address(text);
            let address = address.map_err(|error| place.wrong("upstream", &shown, &error))?;
            if addresses.contains(&address) {
                return Err(place.wrong("upstream", &shown, "it is listed twice: remove one"));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    fn check_key(
        &self,
        place: ProxyIndex,
        addresses: &[UpstreamAddress],
    ) -> Result<(), SettingsError> {
        let has_key = self.key_env.is_some() || self.key_file.is_some();
        if let (Some(env), Some(_)) = (&self.key_env, &self.key_file) {
            let expected = "`key_file` is set, too: remove one of them";
            return Err(place.wrong("key_env", env, expected));
        }
        if let Some(header) = &self.key_header
            && !has_key
        {
            let expected = "the key is missing: set `key_env` or `key_file`";
            return Err(place.wrong("key_header", header, expected));
        }
        if let Some(env) = &self.key_env {
            no_setting(env).map_err(|expected| place.wrong("key_env", env, &expected))?;
        }
        let header = self.key_header(place)?;
        if has_key && header == AUTHORIZATION && addresses.iter().any(UpstreamAddress::has_user) {
            let expected = "the address has a user, and both would be sent as `Authorization`: remove one \
                            of them, or set `key_header`";
            let shown = self.upstream.redacted().0.join(", ");
            return Err(place.wrong("upstream", &shown, expected));
        }
        Ok(())
    }

    fn key_header(&self, place: ProxyIndex) -> Result<HeaderName, SettingsError> {
        let Some(name) = &self.key_header else {
            return Ok(AUTHORIZATION);
        };
        settable_header(name).map_err(|expected| place.wrong("key_header", name, &expected))
    }

    fn headers(&self, place: ProxyIndex) -> Result<HeaderMap, SettingsError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let key = format!("headers.{name}");
            let header = settable_header(name);
            let header = header.map_err(|expected| place.wrong(&key, "set", &expected))?;
            if is_secret_name(name) {
                let expected = format!(
                    "its name suggests a secret, which must not be in settings: put the value \
                     into a variable or a file, and set `key_env` or `key_file` with `key_header = \"{name}\"`"
                );
                return Err(place.wrong(&key, "set", &expected));
            }
            let is_text = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            let (true, Ok(value)) = (is_text, HeaderValue::from_str(value)) else {
                let expected = "expected printable ASCII characters on one line";
                return Err(place.wrong(&key, &value.escape_debug().to_string(), expected));
            };
            if headers.insert(header, value).is_some() {
                return Err(place.wrong(&key, "set twice", "remove one of the two spellings"));
            }
        }
        let key_header = self.key_header(place)?;
        if headers.contains_key(&key_header) {
            let expected = "`key_header` sets the same header: remove one of them";
            return Err(place.wrong("headers", key_header.as_str(), expected));
        }
        Ok(headers)
    }

    fn options(
        &self,
        place: ProxyIndex,
        max_answer: usize,
    ) -> Result<UpstreamOptions, SettingsError> {
        Ok(UpstreamOptions {
            label: format!("{}/{}", self.account, self.name),
            display_name: self
                .display_name
                .clone()
                .unwrap_or_else(|| self.name.clone()),
            addresses: self.addresses(place)?,
            key: self.key(place)?,
            headers: self.headers(place)?,
            health: self.health.clone(),
            health_every: Duration::from_secs_f64(self.health_every_s),
            max_answer,
        })
    }

    /// Reads the key from its variable or file.
    fn key(&self, place: ProxyIndex) -> Result<Option<UpstreamKey>, SettingsError> {
        let (setting, named, text) = match (&self.key_env, &self.key_file) {
            (Some(name), _) => ("key_env", name.clone(), key_from_variable(name)),
            (None, Some(path)) => ("key_file", path.display().to_string(), key_from_file(path)),
            (None, None) => return Ok(None),
        };
        let wrong = |expected: String| place.wrong(setting, &named, &expected);
        let text = text.map_err(wrong)?;
        let secret = text.trim();
        if secret.is_empty() {
            return Err(wrong(
                "it is empty: write the upstream's key to it".to_owned(),
            ));
        }
        let key = UpstreamKey::new(self.key_header(place)?, secret);
        key.map(Some)
            .map_err(|reason| wrong(format!("it {reason}: write only the upstream's key to it")))
    }
}

/// Checks the name of a header that settings may set.
fn settable_header(name: &str) -> Result<HeaderName, String> {
    let header = HeaderName::from_bytes(name.as_bytes());
    let header = header.map_err(|_| "expected a header's name, such as `X-Org`".to_owned())?;
    let known = header.as_str();
    let is_own = RESERVED_HEADERS.contains(&known)
        || RESERVED_HEADER_PREFIXES
            .iter()
            .any(|prefix| known.starts_with(prefix));
    if is_own {
        return Err("the gateway sets this header itself: remove it".to_owned());
    }
    Ok(header)
}

pub(super) fn local_account() -> String {
    LOCAL_ACCOUNT.to_owned()
}

fn health_every_s() -> f64 {
    10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(proxy: &str) -> Result<(), SettingsError> {
        let text = format!("[[proxies]]\nname = \"x\"\n{proxy}\n");
        let settings: GatewaySettings = toml::from_str(&text).expect("it is TOML");
        settings.check()
    }

    #[test]
    fn proxies_have_all_that_an_upstream_asks_for() {
        for right in [
            "upstream = \"http://h/\"",
            "upstream = [\"http://h/\", \"https://u:p@h:8443/x?y=z\"]\nhealth = \"/up?full\"",
            "upstream = \"http://h/\"\nkey_env = \"K\"\nheaders = { \"X-Org\" = \"a b\" }",
            "upstream = \"http://u:p@h/\"\nkey_file = \"k\"\nkey_header = \"x-api-key\"",
        ] {
            check(right).unwrap_or_else(|error| panic!("{right}: {error}"));
        }
    }

    #[test]
    fn what_is_wrong_with_a_proxy_is_told_without_credentials() {
        let url = "upstream = \"http://me:hush@h/\"";
        for (wrong, says) in [
            ("upstream = \"me:hush@h\"".to_owned(), "proxies[0].upstream"),
            (
                "upstream = \"http:/me:hu sh@h:x/\"".to_owned(),
                "invalid port",
            ),
            ("upstream = \"ftp://me:hush@h\"".to_owned(), "`http://`"),
            ("upstream = []".to_owned(), "1 to 64 addresses"),
            (
                "upstream = [\"http://h\", \"http://h/\"]".to_owned(),
                "twice",
            ),
            (
                "upstream = \"http://***@h/\"".to_owned(),
                "hidden credentials",
            ),
            (format!("{url}\nkey_env = \"K\""), "has a user"),
            (
                format!("{url}\nkey_env = \"K\"\nkey_file = \"k\""),
                "remove one",
            ),
            (
                format!("{url}\nkey_header = \"x-api-key\""),
                "key is missing",
            ),
            (format!("{url}\nkey_env = \"PKGTOOL_KEY\""), "another name"),
            (
                format!("{url}\nkey_env = \"K\"\nkey_header = \"host\""),
                "sets this header itself",
            ),
            (
                format!("{url}\nkey_env = \"K\"\nkey_header = \"a b\""),
                "header's name",
            ),
            (
                format!("{url}\nheaders = {{ Content-Type = \"x\" }}"),
                "sets this header itself",
            ),
            (
                format!("{url}\nheaders = {{ Connection = \"x\" }}"),
                "sets this header itself",
            ),
            (
                format!("{url}\nheaders = {{ Authorization = \"hush\" }}"),
                "key_header = \"Authorization\"",
            ),
            (
                format!("{url}\nheaders = {{ X-Org = \"a\\nb: hu\" }}"),
                "on one line",
            ),
            (
                format!("{url}\nheaders = {{ X-Org = \"a\", x-org = \"b\" }}"),
                "two spellings",
            ),
            (format!("{url}\nhealth = \"health\""), "such as `/health`"),
            (format!("{url}\nhealth_every_s = 0"), "0.1 to 86400"),
        ] {
            let error = check(&wrong).expect_err(&wrong).to_string();
            assert!(error.contains(says), "{says} in {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn names_are_no_numbers_and_each_has_one_proxy() {
        for (name, says) in [
            ("2", "`proxy-2`"),
            ("a/b", "without `/`"),
            ("", "expected a name"),
        ] {
            let text = format!("[[proxies]]\nname = \"{name}\"\nupstream = \"http://h/\"");
            let settings: GatewaySettings = toml::from_str(&text).expect("it is TOML");
            let error = settings.check().expect_err(name).to_string();
            assert!(
                error.contains(says) && error.contains("proxies[0].name"),
                "{error}"
            );
        }
        let twice = "[[proxies]]\nname = \"x\"\nupstream = \"http://h/\"\n".repeat(2);
        let settings: GatewaySettings = toml::from_str(&twice).expect("it is TOML");
        let error = settings.check().expect_err("two of a name").to_string();
        assert!(error.contains("proxies[1].name"), "{error}");
    }

    #[test]
    fn printed_settings_and_debugging_show_no_credentials() {
        let text =
            "[[proxies]]\nname = \"x\"\nupstream = [\"http://me:hush@h/?k=hush\", \"http://g/\"]";
        let settings: GatewaySettings = toml::from_str(text).expect("it is TOML");
        for shown in [settings.print(), format!("{settings:?}")] {
            assert!(shown.contains("http://***@h/?***"), "{shown}");
            assert!(!shown.contains("hush"), "{shown}");
        }
    }
}
