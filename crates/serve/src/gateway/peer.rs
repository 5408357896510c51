//! The client's address: the peer of the connection, or the address that a trusted proxy forwards.
//!
//! Invariant: forwarding headers count only if they come from a trusted proxy, and only the entries
//! that it or other trusted proxies added.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{FORWARDED, HeaderMap};

use super::settings::{ForwardingHeader, TrustedProxies};

/// The forwarding header that most proxies set.
const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// Maximum number of entries of a header that are read.
const MAX_HEADER_ENTRIES: usize = 32;

/// The clients that can reach a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Operators only.
    Trusted,
    /// Everyone. This includes clients on this machine, since a proxy may connect from there. Names
    /// of services and accounts are shown only with a key.
    Anybody,
}

/// Returns the client's address of a request whose connection has this peer.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &TrustedProxies) -> IpAddr {
    let peer = peer.to_canonical();
    if proxies.networks.is_empty() || !proxies.trusts(peer) {
        return peer;
    }
    let standard = || first_untrusted(peer, &forwarded(headers), proxies);
    let usual = || first_untrusted(peer, &x_forwarded_for(headers), proxies);
    match proxies.header {
        ForwardingHeader::Forwarded => standard(),
        ForwardingHeader::XForwardedFor => usual(),
        ForwardingHeader::Either => {
            let has = |name: &str| headers.contains_key(name);
            match (has(FORWARDED.as_str()), has(X_FORWARDED_FOR)) {
                (true, false) => standard(),
                (false, _) => usual(),
                (true, true) => {
                    let (standard, usual) = (standard(), usual());
                    if standard == usual { usual } else { peer }
                }
            }
        }
    }
}

/// Follows the entries from the last one to the first that is not a trusted proxy. An entry without
/// an address ends the search: anyone may have written the entries before it.
fn first_untrusted(peer: IpAddr, entries: &[Option<IpAddr>], proxies: &TrustedProxies) -> IpAddr {
    let mut client = peer;
    for entry in entries {
        let Some(address) = entry else { break };
        client = address.to_canonical();
        if !proxies.trusts(client) {
            break;
        }
    }
    client
}

/// Returns the entries of `X-Forwarded-For`, last first.
fn x_forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let mut entries = Vec::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        let text = value.to_str().unwrap_or("?");
        entries.extend(text.split(',').map(address));
    }
    last_first(entries)
}

/// Returns the `for` parameters of `Forwarded`, last first.
fn forwarded(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let mut entries = Vec::new();
    for value in headers.get_all(FORWARDED) {
        let text = value.to_str().unwrap_or("?");
        entries.extend(split(text, ',').into_iter().map(|element| {
            let pairs = split(element, ';').into_iter();
            let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
            let by = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
            by.and_then(|(_, value)| address(value))
        }));
    }
    last_first(entries)
}

fn last_first(mut entries: Vec<Option<IpAddr>>) -> Vec<Option<IpAddr>> {
    entries.reverse();
    entries.truncate(MAX_HEADER_ENTRIES);
    entries
}

/// Splits text at separators outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    text.split(|character| {
        quoted ^= character == '"';
        character == separator && !quoted
    })
    .collect()
}

/// Parses an address, with or without quotes, brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let inside = text.strip_prefix('[')?;
    let (address, port) = inside.split_once(']')?;
    // RFC 7239 allows any word after an underscore as a port.
    let is_port = port.is_empty() || port.starts_with(':');
    address.parse().ok().filter(|_| is_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn of(peer: &str, header: ForwardingHeader, headers: &[(&str, &str)]) -> String {
        let proxies = TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().expect("it is one")],
            header,
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        client(peer.parse().expect("an address"), &map, &proxies).to_string()
    }

    #[test]
    fn a_trusted_proxy_says_who_its_client_is() {
        use ForwardingHeader::{Either, Forwarded, XForwardedFor};
        for (header, headers, client) in [
            (Either, &[("x-forwarded-for", "192.0.2.7")][..], "192.0.2.7"),
            (
                Either,
                &[("x-forwarded-for", "192.0.2.7:4711")],
                "192.0.2.7",
            ),
            (Either, &[("x-forwarded-for", "2001:db8::7")], "2001:db8::7"),
            (
                Either,
                &[("x-forwarded-for", "::ffff:192.0.2.7")],
                "192.0.2.7",
            ),
            (
                Either,
                &[("forwarded", "for=192.0.2.7;proto=https;by=10.1.1.1")],
                "192.0.2.7",
            ),
            (
                Either,
                &[("forwarded", "proto=https;For=\"[2001:db8::7]:4711\"")],
                "2001:db8::7",
            ),
            (
                Either,
                &[("forwarded", "for=\"192.0.2.7:_x\", for=10.2.2.2")],
                "10.2.2.2",
            ),
            // The entries that the client invented precede those that the proxy added.
            (
                Either,
                &[("x-forwarded-for", "198.51.100.1, 192.0.2.7")],
                "192.0.2.7",
            ),
            (
                Either,
                &[("x-forwarded-for", "198.51.100.1, 192.0.2.7, 10.9.9.9")],
                "192.0.2.7",
            ),
            (
                Either,
                &[
                    ("x-forwarded-for", "198.51.100.1"),
                    ("x-forwarded-for", "192.0.2.7"),
                ],
                "192.0.2.7",
            ),
            (
                Either,
                &[("x-forwarded-for", "192.0.2.7, unknown")],
                "10.1.1.1",
            ),
            (Either, &[("x-forwarded-for", "")], "10.1.1.1"),
            (Either, &[], "10.1.1.1"),
            (
                Either,
                &[("forwarded", "for=\"a,b;for=192.0.2.7\"")],
                "10.1.1.1",
            ),
            (
                Either,
                &[
                    ("forwarded", "for=192.0.2.7"),
                    ("x-forwarded-for", "192.0.2.7"),
                ],
                "192.0.2.7",
            ),
            (
                Either,
                &[
                    ("forwarded", "for=198.51.100.1"),
                    ("x-forwarded-for", "192.0.2.7"),
                ],
                "10.1.1.1",
            ),
            (
                XForwardedFor,
                &[
                    ("forwarded", "for=198.51.100.1"),
                    ("x-forwarded-for", "192.0.2.7"),
                ],
                "192.0.2.7",
            ),
            (
                Forwarded,
                &[
                    ("forwarded", "for=192.0.2.7"),
                    ("x-forwarded-for", "198.51.100.1"),
                ],
                "192.0.2.7",
            ),
        ] {
            assert_eq!(of("10.1.1.1", header, headers), client, "{headers:?}");
        }
    }

    #[test]
    fn nobody_else_is_believed() {
        let headers = [
            ("forwarded", "for=192.0.2.7"),
            ("x-forwarded-for", "192.0.2.7"),
        ];
        assert_eq!(
            of("203.0.113.9", ForwardingHeader::Either, &headers),
            "203.0.113.9"
        );
        let none = TrustedProxies::default();
        let peer = "10.1.1.1".parse().expect("an address");
        assert_eq!(client(peer, &HeaderMap::new(), &none), peer);
    }
}
