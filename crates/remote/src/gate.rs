//! Decides which network addresses may be contacted. Addresses of private networks are rejected
//! unless the user typed one of the same block, or allowed all of them.
//!
//! Names are judged by the addresses that they resolve to, inside the client's own resolver. The
//! client therefore connects to exactly the addresses that were checked.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Error of the resolver for a name that has only private addresses.
pub(super) const PRIVATE_ADDRESS_ERROR: &str = "an address of a private network";

/// The address filter for all requests of a run.
#[derive(Debug, Default)]
pub(super) struct AddressFilter {
    allows_all: bool,
    /// Blocks of private addresses that contain an address typed by the user.
    typed: Vec<AddressBlock>,
}

impl AddressFilter {
    /// Creates the filter for a run that begins at the URL that the user typed. If the URL contains
    /// a name, the addresses of that name allow nothing, since a name may resolve to any address.
    pub(super) fn new(allow: bool, typed: &Url) -> Self {
        let host = typed.host_str().unwrap_or_default();
        let addresses: Vec<IpAddr> = match literal(typed) {
            Some(address) => vec![address],
            // These names always refer to the machine itself, whatever a resolver returns (RFC
            // 6761).
            None if host == "localhost" || host.ends_with(".localhost") => LOOPBACK.to_vec(),
            None => Vec::new(),
        };
        Self {
            allows_all: allow,
            typed: addresses.into_iter().filter_map(private_block).collect(),
        }
    }

    /// Returns whether a URL may be requested. A URL with a host name is checked later, when the
    /// name is resolved.
    pub(super) fn allows(&self, url: &Url) -> bool {
        literal(url).is_none_or(|address| self.allows_address(address))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let is_typed = |block| self.typed.contains(&block);
        self.allows_all || private_block(address).is_none_or(is_typed)
    }
}

/// Returns the IP address in a URL, if its host is not a name.
pub(super) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// The system's resolver with the address filter.
#[derive(Debug)]
pub(super) struct FilteredResolver(pub(super) Arc<AddressFilter>);

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let gate = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let count = found.len();
            let open: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| gate.allows_address(address.ip()))
                .collect();
            if count > 0 && open.is_empty() {
                return Err(Box::<dyn Error + Send + Sync>::from(PRIVATE_ADDRESS_ERROR));
            }
            let addresses: Addrs = Box::new(open.into_iter());
            Ok(addresses)
        })
    }
}

/// A block of IP addresses: its first address and the number of prefix bits.
type AddressBlock = (IpAddr, u32);

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32) -> AddressBlock {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits)
}

const fn v6(first: [u16; 4], last: u16, bits: u32) -> AddressBlock {
    let [a, b, c, d] = first;
    (IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)), bits)
}

/// Addresses that are only useful inside a private network or on the machine itself: multicast, and
/// the blocks that the IANA registries of special-purpose addresses (RFC 6890, for IPv4 and IPv6)
/// mark as not globally reachable.
const PRIVATE_BLOCKS: [AddressBlock; 31] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    // The two globally reachable anycast addresses in this block are for services that locate
    // translators, never for packages.
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    v6([0, 0, 0, 0], 0, 128),
    v6([0, 0, 0, 0], 1, 128),
    // Local-use translation: the embedded address is not visible here.
    v6([0x64, 0xff9b, 1, 0], 0, 48),
    v6([0x100, 0, 0, 0], 0, 64),
    v6([0x100, 0, 0, 1], 0, 64),
    // Teredo, benchmarking and other protocols; `GLOBAL_BLOCKS` has the exceptions.
    v6([0x2001, 0, 0, 0], 0, 23),
    v6([0x2001, 0xdb8, 0, 0], 0, 32),
    v6([0x3fff, 0, 0, 0], 0, 20),
    v6([0x5f00, 0, 0, 0], 0, 16),
    v6([0xfc00, 0, 0, 0], 0, 7),
    v6([0xfe80, 0, 0, 0], 0, 10),
    v6([0xfec0, 0, 0, 0], 0, 10),
    v6([0xff00, 0, 0, 0], 0, 8),
    // Addresses outside the allocated global unicast range (2000::/3) that do not embed an IPv4
    // address.
    v6([0x4000, 0, 0, 0], 0, 2),
    v6([0x8000, 0, 0, 0], 0, 1),
    v6([0, 0, 0, 0], 0, 3),
];

/// Parts of private blocks that the registries mark as globally reachable.
const GLOBAL_BLOCKS: [AddressBlock; 4] = [
    v6([0x2001, 3, 0, 0], 0, 32),
    v6([0x2001, 4, 0x112, 0], 0, 48),
    v6([0x2001, 0x20, 0, 0], 0, 28),
    v6([0x2001, 0x30, 0, 0], 0, 28),
];

/// Returns the first private block that contains the address.
fn private_block(address: IpAddr) -> Option<AddressBlock> {
    let address = embedded_ipv4(address);
    if GLOBAL_BLOCKS.iter().any(|block| is_in(address, *block)) {
        return None;
    }
    PRIVATE_BLOCKS
        .into_iter()
        .find(|block| is_in(address, *block))
}

fn is_in(address: IpAddr, (begin, bits): AddressBlock) -> bool {
    match (address, begin) {
        (IpAddr::V4(address), IpAddr::V4(begin)) => {
            let differs = address.to_bits() ^ begin.to_bits();
            differs.leading_zeros() >= bits
        }
        (IpAddr::V6(address), IpAddr::V6(begin)) => {
            let differs = address.to_bits() ^ begin.to_bits();
            differs.leading_zeros() >= bits
        }
        _ => false,
    }
}

/// Returns the IPv4 address that an IPv6 address embeds, if any: mapped, compatible, translated
/// (`::ffff:0:a.b.c.d`, `64:ff9b::/96`) or 6to4.
fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(written) = address else {
        return address;
    };
    let inner = |high: u16, low: u16| {
        IpAddr::V4(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        ))
    };
    match written.segments() {
        // The unspecified address and the loopback address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => inner(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_private(address: &str) -> bool {
        private_block(address.parse().expect("an address")).is_some()
    }

    #[test]
    fn private_addresses_are_known_in_every_form() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.1",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:192.0.0.8",
            "::ffff:0:169.254.169.254",
            "::10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:c000:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "a000::1",
        ] {
            assert!(is_private(private), "{private}");
        }
        for public in [
            "8.8.8.8",
            "9.255.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.31.196.1",
            "192.52.193.1",
            "192.175.48.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:3::1",
            "2001:4:112::1",
            "2001:20::1",
            "2001:30::1",
            "2001:4860:4860::8888",
            "2002:808:808::",
            "2606:4700::1111",
            "2620:4f:8000::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_private(public), "{public}");
        }
    }

    #[test]
    fn only_a_typed_address_opens_the_gate() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let metadata = url("http://[::ffff:169.254.169.254]/latest");
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for (typed, lets_here) in [
            ("http://8.8.8.8/p", false),
            // The addresses of such a name do not matter.
            ("http://packages.example/p", false),
            ("http://127.0.0.1.example/p", false),
            ("http://notlocalhost/p", false),
            ("http://10.0.0.1/p", false),
            ("http://127.0.0.1/p", true),
            ("http://127.1:8080/p", true),
            ("http://[::ffff:127.0.0.1]/p", true),
            ("http://localhost:8000/p", true),
            ("http://a.LOCALHOST/p", true),
        ] {
            let gate = AddressFilter::new(false, &url(typed));
            assert_eq!(gate.allows_address(here), lets_here, "{typed}");
            assert!(!gate.allows(&metadata), "{typed}");
        }
        assert!(AddressFilter::new(false, &metadata).allows(&metadata));
        let lan = AddressFilter::new(false, &url("http://10.0.0.1/p"));
        assert!(lan.allows(&url("http://10.9.8.7/q")) && !lan.allows(&url("http://192.168.0.1/q")));
        let all = AddressFilter::new(true, &url("http://packages.example/p"));
        assert!(all.allows(&metadata) && all.allows_address(here));
    }
}
