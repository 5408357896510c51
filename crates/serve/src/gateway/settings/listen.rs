//! The address to listen on: an IP address, or a host name that the system resolves.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of a host name, in bytes (RFC 1035).
const MAX_HOST_NAME_BYTES: usize = 253;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Listen {
    /// IP address and port: `127.0.0.1:8080`, `[::1]:8080`.
    Address(SocketAddr),
    /// Host name and port: `localhost:8080`.
    Name(String, u16),
}

/// The text is not a valid address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid address to listen on: `{text}`; expected HOST:PORT, such as 127.0.0.1:8080, [::1]:8080 or \
     localhost:8080"
)]
pub struct InvalidListenAddress {
    text: String,
}

impl Listen {
    /// Resolves the addresses, IPv4 first. Clients that use the name try all of them; other clients
    /// use `127.0.0.1`.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, io::Error> {
        let (name, port) = match self {
            Self::Address(address) => return Ok(vec![*address]),
            Self::Name(name, port) => (name.as_str(), *port),
        };
        let mut all: Vec<SocketAddr> = tokio::net::lookup_host((name, port)).await?.collect();
        all.sort_by_key(SocketAddr::is_ipv6);
        all.dedup();
        if all.is_empty() {
            return Err(io::Error::other("the name resolves to no address"));
        }
        Ok(all)
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl FromStr for Listen {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = text.rsplit_once(':').and_then(|(name, port)| {
            let is_name = (1..=MAX_HOST_NAME_BYTES).contains(&name.len())
                && name.bytes().all(is_of_names)
                // A name of digits only is a mistyped address.
                && name.bytes().any(|byte| byte.is_ascii_alphabetic());
            is_name.then_some(Self::Name(name.to_owned(), port.parse().ok()?))
        });
        name.ok_or_else(|| InvalidListenAddress {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

impl TryFrom<String> for Listen {
    type Error = InvalidListenAddress;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::Listen;

    #[test]
    fn addresses_and_names_are_told_apart() {
        for text in [
            "127.0.0.1:8080",
            "[::1]:0",
            "localhost:8080",
            "a-b.example:1",
        ] {
            let listen: Listen = text.parse().expect(text);
            assert_eq!(listen.to_string(), text);
            let is_name = matches!(listen, Listen::Name(..));
            assert_eq!(is_name, text.contains(|it: char| it.is_ascii_lowercase()));
        }
        for text in [
            "",
            "localhost",
            ":8080",
            "8080",
            "localhost:",
            "localhost:65536",
            "local host:1",
            "127.0.0:80",
            "::1:80x",
            "http://localhost:8080",
            "localhost:+1x",
        ] {
            let error = text.parse::<Listen>().expect_err(text);
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
    }
}
