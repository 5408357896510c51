//! The gateway's settings: defaults, then `gateway.toml`, then environment variables.
//!
//! Invariant: a setting that is not known is refused, with the place where it stands. The command
//! line goes over all of it, and is not known here.

mod environment;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::service::ServiceSettings;
use crate::task::Caps;

/// Name of the account that exists from the start.
pub const LOCAL_ACCOUNT: &str = "local";

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Where the database and the blobs are; empty: the user's own data directory.
    pub data_dir: PathBuf,
    /// Directories of packages whose services belong to the account `local`.
    pub packages: Vec<PathBuf>,
    /// Bytes that loaded models may take together; 0: half of the machine's memory.
    pub memory_budget: u64,
    /// ONNX Runtime's library; empty: looked for.
    pub ort_library: PathBuf,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Tasks.
    pub tasks: Tasks,
    /// Logs.
    pub log: Log,
    /// Cross-origin requests.
    pub cors: Cors,
    /// TLS.
    pub tls: Tls,
    /// How services run that say nothing else.
    pub defaults: ServiceSettings,
    /// How single services run, by name: what differs from the defaults.
    pub services: BTreeMap<String, toml::Table>,
    /// Packages of other accounts.
    pub publishers: Vec<Publisher>,
    /// Services that are other HTTP services.
    pub proxies: Vec<Proxy>,
}

/// Limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Waiting tasks of an account, if its requests per second are not fewer. Only a file sets it.
    pub waiting: u32,
    /// Running tasks of an account, likewise. Only a file sets it.
    pub running: u32,
    /// How often a task is tried whose process dies. Only a file sets it.
    pub attempts: u32,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of all request bodies in memory; 0: twice `body_bytes`.
    pub body_memory_bytes: usize,
    /// Bytes that must be free where the data are; with fewer the server says that it is not ready.
    pub disk_free_bytes: u64,
    /// Bytes of an upstream's answer.
    pub answer_bytes: usize,
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Fields of a request's head.
    pub header_count: usize,
    /// Open connections.
    pub connections: usize,
    /// Open connections that have shown no key; 0: three quarters of `connections`.
    pub connections_without_key: usize,
    /// Of these, those of one address; 0: half of them.
    pub connections_per_address: usize,
}

/// Timeouts, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// For the head of a request, and between two requests of a connection.
    pub header_s: f64,
    /// For the body of a request.
    pub body_s: f64,
    /// For running requests and tasks when the server stops.
    pub grace_s: f64,
}

/// Tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Days for which answers of more than 150 characters are kept.
    pub answer_ttl_days: f64,
    /// Tasks that may run at the same time, of all accounts.
    pub running: usize,
    /// Seconds without a sign of life after which a running task is taken for lost.
    pub lease_s: f64,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, or a filter such as `info,pkgtool::service=debug`.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// Cross-origin requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// Origins whose pages may call the gateway; `*` is all.
    pub origins: Vec<String>,
}

/// TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// File with the certificate chain (PEM); empty: no TLS.
    pub certificate: PathBuf,
    /// File with its private key (PEM).
    pub key: PathBuf,
}

/// Packages of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publisher {
    /// The account's name.
    pub account: String,
    /// Directories of its packages.
    pub packages: Vec<PathBuf>,
}

/// A service that is another HTTP service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The service's name.
    pub name: String,
    /// The account that owns it.
    #[serde(default = "local_account")]
    pub account: String,
    /// Address that requests are posted to.
    pub upstream: String,
    /// What it is called in the registry; its name if not set.
    #[serde(default)]
    pub display_name: Option<String>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file can't be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is wrong.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: toml::de::Error,
    },
    /// An environment variable is wrong.
    #[error("{name}: {reason}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A value makes no sense.
    #[error("`{place}` is {found}; {expected}")]
    Value {
        /// The setting.
        place: String,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
}

impl Settings {
    /// The settings of a file (if there is one), with the environment's over it.
    pub fn read(
        path: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let from_file = match path {
            None => Self::default(),
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| SettingsError::Unreadable {
                    path: path.to_owned(),
                    error,
                })?;
                toml::from_str(&text).map_err(|error| SettingsError::File {
                    path: path.to_owned(),
                    error,
                })?
            }
        };
        let settings = environment::apply(from_file, variables)?;
        settings.check()?;
        Ok(settings)
    }

    /// The settings as a file.
    pub fn print(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The limits of tasks that only a file sets.
    pub fn caps(&self) -> Caps {
        Caps {
            waiting: self.limits.waiting,
            running: self.limits.running,
            attempts: self.limits.attempts,
        }
    }

    /// How a service runs: the defaults, with what is set for it over them.
    pub fn service(&self, name: &str) -> Result<ServiceSettings, SettingsError> {
        let Some(own) = self.services.get(name) else {
            return Ok(self.defaults.clone());
        };
        let invalid = |error: &dyn std::fmt::Display| SettingsError::Value {
            place: format!("services.{name}"),
            found: error.to_string(),
            expected: "see `defaults` in `pkgtool serve --print-config` for what a service has"
                .to_owned(),
        };
        let mut all = toml::Table::try_from(&self.defaults).map_err(|error| invalid(&error))?;
        all.extend(own.clone());
        let settings: ServiceSettings = all.try_into().map_err(|error| invalid(&error))?;
        check_service(&format!("services.{name}"), &settings)?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        for (place, value) in [
            ("timeouts.header_s", self.timeouts.header_s),
            ("timeouts.body_s", self.timeouts.body_s),
            ("tasks.answer_ttl_days", self.tasks.answer_ttl_days),
            ("tasks.lease_s", self.tasks.lease_s),
        ] {
            require(
                place,
                value,
                value > 0.0 && value < 1e9,
                "it must be greater than 0",
            )?;
        }
        let grace = self.timeouts.grace_s;
        require(
            "timeouts.grace_s",
            grace,
            (0.0..1e9).contains(&grace),
            "it must be 0 or more",
        )?;
        for (place, value) in [
            ("limits.waiting", self.limits.waiting as usize),
            ("limits.running", self.limits.running as usize),
            ("limits.attempts", self.limits.attempts as usize),
            ("limits.connections", self.limits.connections),
            ("limits.body_bytes", self.limits.body_bytes),
            ("tasks.running", self.tasks.running),
        ] {
            require(place, value, value > 0, "it must be at least 1")?;
        }
        let memory = self.limits.body_memory_bytes;
        require(
            "limits.body_memory_bytes",
            memory,
            memory == 0 || memory >= self.limits.body_bytes,
            "it must be 0 (twice `limits.body_bytes`), or at least `limits.body_bytes`",
        )?;
        // What hyper takes for the buffer of a head.
        let head = self.limits.header_bytes;
        require(
            "limits.header_bytes",
            head,
            head >= 8192,
            "it must be at least 8192",
        )?;
        let one =
            self.tls.certificate.as_os_str().is_empty() != self.tls.key.as_os_str().is_empty();
        require(
            "tls",
            "half set",
            !one,
            "set both `certificate` and `key`, or none",
        )?;
        check_service("defaults", &self.defaults)?;
        for name in self.services.keys() {
            self.service(name)?;
        }
        Ok(())
    }
}

fn check_service(place: &str, settings: &ServiceSettings) -> Result<(), SettingsError> {
    for (name, value) in [
        ("instances", settings.instances),
        ("queue", settings.queue),
        ("batch_max_size", settings.batch_max_size),
    ] {
        require(
            &format!("{place}.{name}"),
            value,
            value > 0,
            "it must be at least 1",
        )?;
    }
    let predict = settings.predict_timeout_s;
    require(
        &format!("{place}.predict_timeout_s"),
        predict,
        predict > 0.0 && predict < 1e9,
        "it must be greater than 0",
    )?;
    let limit = settings.async_timeout_s;
    require(
        &format!("{place}.async_timeout_s"),
        limit,
        (0.0..1e9).contains(&limit),
        "it must be 0 (no limit) or more",
    )
}

fn require(
    place: &str,
    found: impl std::fmt::Display,
    holds: bool,
    expected: &str,
) -> Result<(), SettingsError> {
    if holds {
        return Ok(());
    }
    Err(SettingsError::Value {
        place: place.to_owned(),
        found: found.to_string(),
        expected: expected.to_owned(),
    })
}

fn local_account() -> String {
    LOCAL_ACCOUNT.to_owned()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data_dir: PathBuf::new(),
            packages: Vec::new(),
            memory_budget: 0,
            ort_library: PathBuf::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            tasks: Tasks::default(),
            log: Log::default(),
            cors: Cors::default(),
            tls: Tls::default(),
            defaults: ServiceSettings::default(),
            services: BTreeMap::new(),
            publishers: Vec::new(),
            proxies: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 250,
            running: 50,
            attempts: 3,
            body_bytes: 64 << 20,
            body_memory_bytes: 0,
            disk_free_bytes: 64 << 20,
            answer_bytes: 256 << 20,
            header_bytes: 32 << 10,
            header_count: 100,
            connections: 4096,
            connections_without_key: 0,
            connections_per_address: 0,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header_s: 30.0,
            body_s: 60.0,
            grace_s: 10.0,
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            answer_ttl_days: 7.0,
            running: 256,
            lease_s: 30.0,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Auto,
        }
    }
}

impl Limits {
    /// Bytes of all request bodies in memory.
    pub fn body_memory(&self) -> usize {
        match self.body_memory_bytes {
            0 => self.body_bytes.saturating_mul(2),
            bytes => bytes,
        }
    }

    /// Open connections that have shown no key.
    pub fn connections_without_key(&self) -> usize {
        match self.connections_without_key {
            0 => self.connections.div_ceil(4).saturating_mul(3),
            most => most,
        }
        .clamp(1, self.connections)
    }

    /// Open connections that have shown no key, of one address.
    pub fn connections_per_address(&self) -> usize {
        let all = self.connections_without_key();
        match self.connections_per_address {
            0 => all.div_ceil(2),
            most => most.min(all),
        }
    }
}

impl Timeouts {
    /// For the head of a request.
    pub fn header(&self) -> Duration {
        Duration::from_secs_f64(self.header_s)
    }

    /// For the body of a request.
    pub fn body(&self) -> Duration {
        Duration::from_secs_f64(self.body_s)
    }

    /// For what runs when the server stops.
    pub fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.grace_s)
    }
}
