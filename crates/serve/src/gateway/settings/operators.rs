//! Settings for operators: the admin listener, the console, cross-origin requests, trusted proxies,
//! limits of metric labels, retention of usage records, limits of training.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SettingsError, require};
use crate::service::meter::{METERED_ACCOUNTS, METERED_SERVICES};
use crate::train::dataset::DatasetLimits;

/// The operators' listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address of the listener, without TLS and keys. If empty, it is off and metrics are on the
    /// public listener.
    pub listen: OptionalAddress,
}

/// Cross-origin requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// Origins whose pages may call the gateway; `localhost`: pages of this machine, of any port;
    /// `*`: all.
    pub origins: Vec<String>,
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            origins: vec!["localhost".to_owned()],
        }
    }
}

/// The console: the pages for a browser.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Console {
    /// `false` switches it off. Then `/` is not found, and no link is printed.
    pub enabled: bool,
    /// Address of the gateway as browsers reach it, for the printed link; empty: the address of
    /// the listener.
    pub url: String,
    /// Days after which a login ends.
    pub session_days: f64,
}

/// Returns the link that logs a browser in to the gateway at an address.
///
/// Browsers do not send the part behind `#`, so it is in no log.
pub fn login_link(address: &str, code: &str) -> String {
    format!("{}/#login={code}", address.trim_end_matches('/'))
}

impl Default for Console {
    fn default() -> Self {
        Self {
            enabled: true,
            url: String::new(),
            session_days: 7.0,
        }
    }
}

impl Console {
    /// Returns the time after which a login ends.
    pub fn session_validity(&self) -> Duration {
        Duration::from_secs_f64(self.session_days * 86_400.0)
    }

    /// Returns the link that logs a browser in with a code, for a listener's scheme and address.
    pub fn link(&self, (scheme, mut address): (&str, SocketAddr), code: &str) -> String {
        if !self.url.is_empty() {
            return login_link(&self.url, code);
        }
        // Browsers reach all addresses of this machine by the loopback one.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        login_link(&format!("{scheme}://{address}"), code)
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let is_address = |url: &str| ["http://", "https://"].iter().any(|it| url.starts_with(it));
        require(
            "console.url",
            &self.url,
            self.url.is_empty() || is_address(&self.url) && !self.url.contains(['#', '?']),
            "it must be an address such as https://models.example.com/console/, without `?` and `#`",
        )
    }
}

/// An optional address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OptionalAddress(pub Option<SocketAddr>);

/// Proxies in front of the gateway that forward their clients' addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrustedProxies {
    /// Addresses or networks of the proxies, such as `10.0.0.0/8`.
    pub networks: Vec<Network>,
    /// The header that carries the client's address.
    pub header: ForwardingHeader,
}

/// The header in which proxies forward the client's address. A proxy may pass on the other header
/// from the client unchecked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardingHeader {
    /// Either header. If both are present and differ, both are ignored.
    #[default]
    Either,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    #[serde(rename = "x-forwarded-for")]
    XForwardedFor,
}

/// Limits on the labels of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsBounds {
    /// Maximum number of services with their own label, first come, first served; the rest are
    /// `other`.
    pub services: usize,
    /// Maximum number of accounts with their own label, first come, first served; the rest are
    /// `other`.
    pub accounts: usize,
}

/// Usage records of accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageKept {
    /// Retention of usage records, in days.
    pub keep_days: u32,
}

/// A network: addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Batches: files with requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchLimits {
    /// Maximum number of requests of batches that run at the same time.
    pub running: usize,
    /// Maximum number of open batches of an account.
    pub open: usize,
    /// Maximum number of requests in a batch.
    pub requests: u64,
    /// Maximum size of a file, in bytes.
    pub file_bytes: u64,
    /// Maximum number of files of an account.
    pub files: u64,
    /// Retention of files and of batches that ended, in days.
    pub keep_days: f64,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            running: 8,
            open: 50,
            requests: 50_000,
            file_bytes: 200 << 20,
            files: 1000,
            keep_days: 30.0,
        }
    }
}

impl BatchLimits {
    /// Returns the retention of files and of batches that ended.
    pub fn keep(&self) -> Duration {
        Duration::from_secs_f64(self.keep_days * 86_400.0)
    }
}

/// Limits of training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingLimits {
    /// Maximum number of concurrent jobs.
    pub running: usize,
    /// Maximum size of a dataset, in bytes.
    pub dataset_bytes: u64,
    /// Maximum number of rows in a dataset.
    pub dataset_rows: u64,
    /// Maximum size of a row, in bytes.
    pub row_bytes: usize,
    /// Maximum number of datasets of an account.
    pub datasets: usize,
    /// Maximum memory for the vectors of a dataset while a classifier is fitted, in bytes.
    pub memory_bytes: u64,
    /// Maximum size of the vectors that are cached on disk for later trainings, in bytes.
    pub cache_bytes: u64,
}

impl Default for TrainingLimits {
    fn default() -> Self {
        let bounds = DatasetLimits::default();
        Self {
            running: 1,
            dataset_bytes: bounds.bytes,
            dataset_rows: bounds.rows,
            row_bytes: bounds.row_bytes,
            datasets: 1000,
            memory_bytes: 1 << 30,
            cache_bytes: 1 << 30,
        }
    }
}

impl TrainingLimits {
    /// Returns the limits of a dataset.
    pub fn bounds(&self) -> DatasetLimits {
        DatasetLimits {
            bytes: self.dataset_bytes,
            rows: self.dataset_rows,
            row_bytes: self.row_bytes,
        }
    }
}

impl Default for MetricsBounds {
    fn default() -> Self {
        Self {
            services: METERED_SERVICES,
            accounts: METERED_ACCOUNTS,
        }
    }
}

impl Default for UsageKept {
    fn default() -> Self {
        Self { keep_days: 400 }
    }
}

impl TrustedProxies {
    /// Returns `true` if forwarding headers from this address are trusted.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.holds(address))
    }
}

impl Network {
    fn holds(&self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "invalid network `{text}`: expected for example `10.1.2.3`, `10.0.0.0/8` or `fd00::/8`"
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let address = address.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.trim().parse().map_err(|_| wrong())?,
            None => most,
        };
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl OptionalAddress {
    /// Parses an address. An empty text means that there is no address.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let address = text.parse();
        let address = address.map_err(|_| {
            format!(
                "invalid address `{text}`: expected for example `127.0.0.1:9090` or `[::1]:9090`"
            )
        })?;
        Ok(Self(Some(address)))
    }
}

impl TryFrom<String> for OptionalAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<OptionalAddress> for String {
    fn from(OptionalAddress(address): OptionalAddress) -> Self {
        address
            .map(|address| address.to_string())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusts(network: &str, address: &str) -> bool {
        let proxies = TrustedProxies {
            networks: vec![network.parse().expect(network)],
            ..TrustedProxies::default()
        };
        proxies.trusts(address.parse().expect(address))
    }

    #[test]
    fn networks_hold_their_addresses() {
        for (network, address) in [
            ("127.0.0.1", "127.0.0.1"),
            ("10.0.0.0/8", "10.255.3.4"),
            ("10.0.0.0/8", "::ffff:10.1.1.1"),
            ("0.0.0.0/0", "8.8.8.8"),
            ("192.168.1.128/25", "192.168.1.200"),
            ("fd00::/8", "fd12::1"),
            ("::/0", "2001:db8::1"),
            ("::1", "::1"),
        ] {
            assert!(trusts(network, address), "{network} {address}");
        }
        for (network, address) in [
            ("127.0.0.1", "127.0.0.2"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("192.168.1.128/25", "192.168.1.100"),
            ("0.0.0.0/0", "::1"),
            ("fd00::/8", "fe00::1"),
        ] {
            assert!(!trusts(network, address), "{network} {address}");
        }
    }

    #[test]
    fn variables_set_them() {
        let variables = [
            ("PKGTOOL_ADMIN_LISTEN", "[::1]:9090"),
            ("PKGTOOL_TRUSTED_PROXIES_NETWORKS", "10.0.0.0/8, ::1"),
            ("PKGTOOL_TRUSTED_PROXIES_HEADER", "forwarded"),
            ("PKGTOOL_METRICS_SERVICES", "7"),
            ("PKGTOOL_METRICS_ACCOUNTS", "0"),
        ];
        let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let settings = super::super::GatewaySettings::read(None, variables.into_iter());
        let settings = settings.expect("they are right");
        assert_eq!(settings.admin.listen.0.map(|it| it.port()), Some(9090));
        let proxies = &settings.trusted_proxies;
        assert!(proxies.trusts("10.1.1.1".parse().expect("an address")));
        assert!(proxies.trusts("::1".parse().expect("an address")));
        assert_eq!(proxies.header, ForwardingHeader::Forwarded);
        let bounds = (settings.metrics.services, settings.metrics.accounts);
        assert_eq!(bounds, (7, 0));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in [
            "",
            "proxy",
            "10.0.0.0/33",
            "10.0.0/8",
            "::1/129",
            "10.0.0.1/",
            "1.2.3.4/-1",
        ] {
            let error = wrong.parse::<Network>().expect_err(wrong);
            assert!(error.contains("10.0.0.0/8"), "{error}");
        }
    }
}
