//! Addresses of gates.

use std::fmt;
use std::str::FromStr;

/// The port of an address without one.
const DEFAULT_PORT: u16 = 443;

/// The name and port of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GateAddress {
    host: String,
    port: u16,
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the address of a gate: expected HOST or HOST:PORT, such as gate.example.org:443"
)]
pub struct InvalidAddress {
    text: String,
}

impl GateAddress {
    /// Returns the name of the machine.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the URL of the gate.
    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{self}")
    }
}

impl fmt::Display for GateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for GateAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress {
            text: text.to_owned(),
        };
        let text = text.trim();
        // An IPv6 address stands in brackets.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| invalid())?)
            }
            _ => (text, DEFAULT_PORT),
        };
        let named = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_valid = if let Some(address) = named {
            address.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !host.is_empty() && host.len() <= 253 && host.chars().all(allowed)
        };
        if !is_valid || port == 0 {
            return Err(invalid());
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, wanted) in [
            ("gate.example.org", "gate.example.org:443"),
            (" Gate.example.org:10601 ", "gate.example.org:10601"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:443"),
        ] {
            let address: GateAddress = text.parse().expect("it is valid");
            assert_eq!(address.to_string(), wanted);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for text in [
            "", ":80", "a:", "a:0", "a:65536", "a:b", "a b", "http://a", "a/b", "::1", "[a]:1",
            "a@b:1",
        ] {
            assert!(text.parse::<GateAddress>().is_err(), "{text}");
        }
    }
}
