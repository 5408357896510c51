//! The address of an upstream.
//!
//! Invariant: neither `Display` nor `Debug` reveals user, password or query.

use std::fmt;

use reqwest::Url;

use pkgtool_base::source::redact::{MASK, redact};

/// The address of an upstream. Its user and password are sent as basic authentication.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamAddress {
    url: Url,
    shown: String,
}

impl UpstreamAddress {
    /// Parses an address. The error does not repeat it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| {
            format!("expected an address such as `http://127.0.0.1:8000/predict`: {error}")
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("expected an address that begins with `http://` or `https://`".to_owned());
        }
        if url.username() == MASK || url.query() == Some(MASK) {
            return Err(format!(
                "`{MASK}` replaces hidden credentials; write the whole address"
            ));
        }
        url.set_fragment(None);
        let shown = redact(url.as_str());
        Ok(Self { url, shown })
    }

    /// Returns whether it contains a user or a password.
    pub fn has_user(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// Returns the full address, including its secrets.
    pub(super) fn url(&self) -> Url {
        self.url.clone()
    }

    /// Returns the address of another path on the same server, with its query.
    pub(super) fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        url.set_path(path);
        url.set_query(query);
        url
    }

    /// Returns the password as written in the address.
    pub(super) fn password(&self) -> Option<&str> {
        self.url.password()
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        let address = UpstreamAddress::parse("http://me:hush@h:81/p?code=hush#hush").expect("one");
        for shown in [address.to_string(), format!("{address:?}")] {
            assert!(shown.contains("http://***@h:81/p?***"), "{shown}");
            assert!(!shown.contains("hush"), "{shown}");
        }
        assert!(address.has_user());
        let health = address.at("/up?full=1");
        assert_eq!(health.as_str(), "http://me:hush@h:81/up?full=1");
        let plain = UpstreamAddress::parse("http://h/a").expect("one");
        assert!(!plain.has_user());
    }

    #[test]
    fn errors_do_not_repeat_the_address() {
        for wrong in [
            "u:hush@h",
            "ftp://u:hush@h/",
            "http://u:hush@",
            "http://u:hush@h:99999/",
            "http://***@h/",
            "http://h/?***",
            "",
        ] {
            let error = UpstreamAddress::parse(wrong).expect_err(wrong);
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
