//! Which addresses may be asked: those of private networks only if the user typed one of the same block, or allowed it.
//!
//! Names are judged by what they resolve to, in the resolver of the client itself: what was judged is
//! what is connected to.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// What the resolver says of a name behind which only private addresses are.
pub(super) const REFUSED: &str = "an address of a private network";

/// Decides, for all requests of a run.
#[derive(Debug, Default)]
pub(super) struct Gate {
    allows_all: bool,
    /// Blocks of private addresses that the user typed an address of.
    typed: Vec<Block>,
}

impl Gate {
    /// A gate for a run that begins at the URL that the user typed. What its name resolves to opens nothing: a name
    /// may resolve to anything.
    pub(super) fn new(allow: bool, typed: &Url) -> Self {
        let host = typed.host_str().unwrap_or_default();
        let addresses: Vec<IpAddr> = match literal(typed) {
            Some(address) => vec![address],
            // These names mean the machine itself, whatever a resolver says (RFC 6761).
            None if host == "localhost" || host.ends_with(".localhost") => LOOPBACK.to_vec(),
            None => Vec::new(),
        };
        Self {
            allows_all: allow,
            typed: addresses.into_iter().filter_map(private_block).collect(),
        }
    }

    /// Whether a URL may be asked, as far as it is written in it.
    pub(super) fn lets(&self, url: &Url) -> bool {
        literal(url).is_none_or(|address| self.lets_address(address))
    }

    fn lets_address(&self, address: IpAddr) -> bool {
        let is_typed = |block| self.typed.contains(&block);
        self.allows_all || private_block(address).is_none_or(is_typed)
    }
}

/// The address that a URL is written with, if it is no name.
pub(super) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// The system's resolver behind the gate.
#[derive(Debug)]
pub(super) struct GatedResolver(pub(super) Arc<Gate>);

impl Resolve for GatedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let gate = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let count = found.len();
            let open: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| gate.lets_address(address.ip()))
                .collect();
            if count > 0 && open.is_empty() {
                return Err(Box::<dyn Error + Send + Sync>::from(REFUSED));
            }
            let addresses: Addrs = Box::new(open.into_iter());
            Ok(addresses)
        })
    }
}

/// An address and how many of its first bits a block of addresses has in common.
type Block = (IpAddr, u32);

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32) -> Block {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits)
}

const fn v6(first: [u16; 4], last: u16, bits: u32) -> Block {
    let [a, b, c, d] = first;
    (IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)), bits)
}

/// What is of no use outside one's own network or machine: the blocks that the registries of special-purpose
/// addresses (RFC 6890; IANA, IPv4 and IPv6) do not call globally reachable, and multicast.
const PRIVATE: [Block; 31] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    // Its two anycast addresses are for finding translators, not for packages.
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
    // Translation within one network: what it leads to is not to be seen in it.
    v6([0x64, 0xff9b, 1, 0], 0, 48),
    v6([0x100, 0, 0, 0], 0, 64),
    v6([0x100, 0, 0, 1], 0, 64),
    // Teredo, benchmarks, protocols' own; `GLOBAL` are the exceptions.
    v6([0x2001, 0, 0, 0], 0, 23),
    v6([0x2001, 0xdb8, 0, 0], 0, 32),
    v6([0x3fff, 0, 0, 0], 0, 20),
    v6([0x5f00, 0, 0, 0], 0, 16),
    v6([0xfc00, 0, 0, 0], 0, 7),
    v6([0xfe80, 0, 0, 0], 0, 10),
    v6([0xfec0, 0, 0, 0], 0, 10),
    v6([0xff00, 0, 0, 0], 0, 8),
    // Outside of what is handed out as global unicast (2000::/3), and no form of IPv4.
    v6([0x4000, 0, 0, 0], 0, 2),
    v6([0x8000, 0, 0, 0], 0, 1),
    v6([0, 0, 0, 0], 0, 3),
];

/// Parts of private blocks that the registries call globally reachable.
const GLOBAL: [Block; 4] = [
    v6([0x2001, 3, 0, 0], 0, 32),
    v6([0x2001, 4, 0x112, 0], 0, 48),
    v6([0x2001, 0x20, 0, 0], 0, 28),
    v6([0x2001, 0x30, 0, 0], 0, 28),
];

/// The first block of private addresses that an address is in.
fn private_block(address: IpAddr) -> Option<Block> {
    let address = plain(address);
    if GLOBAL.iter().any(|block| is_in(address, *block)) {
        return None;
    }
    PRIVATE.into_iter().find(|block| is_in(address, *block))
}

fn is_in(address: IpAddr, (begin, bits): Block) -> bool {
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

/// The IPv4 address that an IPv6 address stands for, where it does: mapped, compatible, translated (`::ffff:0:a.b.c.d`,
/// `64:ff9b::/96`), 6to4.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(written) = address else {
        return address;
    };
    let inner = |high: u16, low: u16| {
        IpAddr::V4(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        ))
    };
    match written.segments() {
        // The unspecified address and that of the machine itself.
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
            // Whatever such a name resolves to.
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
            let gate = Gate::new(false, &url(typed));
            assert_eq!(gate.lets_address(here), lets_here, "{typed}");
            assert!(!gate.lets(&metadata), "{typed}");
        }
        assert!(Gate::new(false, &metadata).lets(&metadata));
        let lan = Gate::new(false, &url("http://10.0.0.1/p"));
        assert!(lan.lets(&url("http://10.9.8.7/q")) && !lan.lets(&url("http://192.168.0.1/q")));
        let all = Gate::new(true, &url("http://packages.example/p"));
        assert!(all.lets(&metadata) && all.lets_address(here));
    }
}
