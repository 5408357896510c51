//! Which addresses may be asked: those of private networks only if the user named one, or allowed it.
//!
//! Names are judged by what they resolve to, in the resolver of the client itself: what was judged is
//! what is connected to.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// What the resolver says of a name behind which only private addresses are.
pub(super) const REFUSED: &str = "an address of a private network";

/// Decides, for all requests of a run.
#[derive(Debug, Default)]
pub(super) struct Gate {
    private: AtomicBool,
}

impl Gate {
    /// Opens for private addresses if they are allowed, or if the first URL is at one itself.
    pub(super) fn open(&self, allow: bool, first: &[IpAddr]) {
        let private = allow || first.iter().copied().any(is_private);
        self.private.store(private, Ordering::Relaxed);
    }

    /// Whether a URL may be asked, as far as it is written in it.
    pub(super) fn lets(&self, url: &Url) -> bool {
        literal(url).is_none_or(|address| self.lets_address(address))
    }

    fn lets_address(&self, address: IpAddr) -> bool {
        self.private.load(Ordering::Relaxed) || !is_private(address)
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

/// Whether an address is of no use outside one's own network or machine.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        // Carriers' own networks, networks for tests, what is reserved.
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || a >= 240
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // IPv4 in another form: mapped, compatible, by translation (64:ff9b::/96), 6to4.
    let last = || {
        let [.., c, d] = segments;
        Ipv4Addr::from((u32::from(c) << 16) | u32::from(d))
    };
    let inner = match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last()),
        [0x2002, b, c, ..] => Some(Ipv4Addr::from((u32::from(b) << 16) | u32::from(c))),
        _ => None,
    };
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || inner.is_some_and(is_private_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_form() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "ff02::1",
        ] {
            assert!(
                is_private(private.parse().expect("an address")),
                "{private}"
            );
        }
        for public in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_private(public.parse().expect("an address")), "{public}");
        }
    }

    #[test]
    fn a_private_start_opens_the_gate() {
        let gate = Gate::default();
        let metadata = Url::parse("http://[::ffff:169.254.169.254]/latest").expect("a URL");
        assert!(!gate.lets(&metadata));
        gate.open(false, &["8.8.8.8".parse().expect("an address")]);
        assert!(!gate.lets(&metadata));
        gate.open(false, &["127.0.0.1".parse().expect("an address")]);
        assert!(gate.lets(&metadata));
    }
}
