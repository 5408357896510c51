//! The gateway's settings: defaults, then `gateway.toml`, then environment variables.
//!
//! Invariant: a setting that is not known is refused, with the place where it stands. The command
//! line goes over all of it, and is not known here.

mod defaults;
mod environment;
mod listen;
mod live;
mod operators;
mod proxy;
mod services;
mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use listen::{Listen, NoPlace};

use crate::engine::OrtOption;
use crate::runtime::process::sandbox::Mode;
use crate::service::ServiceSettings;
use crate::source::redact::{redact, redact_quoted};
use crate::task::{Caps, Quota};
pub use live::Changes;
pub use operators::{
    Admin, AdminAddress, ForwardingHeader, MetricsBounds, Network, TrainingLimits, TrustedProxies,
    UsageKept,
};
pub use proxy::{Addresses, Proxy};
pub use sources::Sources;

/// Name of the account that exists from the start.
pub const LOCAL_ACCOUNT: &str = "local";

/// Most bytes that a record may hold.
const MOST_INLINE: usize = 1 << 20;

/// Running tasks for each core where the settings leave it open, and the least number of them.
const PLACES_OF_A_CORE: usize = 128;
const FEWEST_PLACES: usize = 256;

/// A day, in seconds.
const DAY: f64 = 86_400.0;
/// Most fields of a request's head: what the HTTP library can hold.
const MOST_HEADERS: usize = 1 << 15;

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where to listen: an address or a name, with a port.
    pub listen: Listen,
    /// Where the database and the blobs are; empty: the user's own data directory.
    pub data_dir: PathBuf,
    /// Directories of packages whose services belong to the account `local`, or addresses of packages on
    /// servers.
    pub packages: Vec<PathBuf>,
    /// Bytes that loaded models may take together; 0: half of the machine's memory.
    pub memory_budget: u64,
    /// ONNX Runtime's library; empty: looked for.
    pub ort_library: PathBuf,
    /// Whether the processes that run models and read what clients send are confined.
    pub sandbox: Mode,
    /// What is fetched of packages on servers.
    pub sources: Sources,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Tasks.
    pub tasks: Tasks,
    /// What accounts used.
    pub usage: UsageKept,
    /// Training.
    pub training: TrainingLimits,
    /// Logs.
    pub log: Log,
    /// What metrics tell apart.
    pub metrics: MetricsBounds,
    /// The listener for operators.
    pub admin: Admin,
    /// Proxies before the gateway.
    pub trusted_proxies: TrustedProxies,
    /// Cross-origin requests.
    pub cors: Cors,
    /// TLS.
    pub tls: Tls,
    /// How services run that say nothing else.
    pub defaults: ServiceSettings,
    /// How single services run: what differs from the defaults. By name, `"acme/NAME"` for one of the
    /// account `acme`.
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
    /// Waiting tasks of an account, if its requests per second are not fewer.
    pub waiting: u32,
    /// Running tasks of an account, likewise.
    pub running: u32,
    /// How often a task is tried whose process dies.
    pub attempts: u32,
    /// Tasks of an account that are kept, whatever their state; 0: any number.
    pub stored_tasks: u64,
    /// Bytes that an account may have stored: tasks (bodies, configs, answers), datasets, trained packages,
    /// caches of vectors; 0: any number.
    pub stored_bytes: u64,
    /// CPU seconds that the models of an account's requests may take on a day (UTC); 0: any number.
    pub cpu_seconds_per_day: u64,
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
    /// Requests of one key that are being answered, long polls among them; 0: half of `connections`.
    pub requests_per_key: usize,
    /// The same of all keys of an account; 0: three quarters of `connections`.
    pub requests_per_account: usize,
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
    /// Days for which tasks are kept that have ended, with their answers; 0: until they are deleted.
    pub record_ttl_days: f64,
    /// Bodies and answers of up to so many bytes are kept in the database, longer ones in files.
    pub inline_bytes: usize,
    /// Running tasks of all accounts; 0: 128 for each core, at least 256. An account that has fewer than an
    /// equal share of them starts tasks although all places are taken.
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
    /// Directories of its packages, or addresses.
    pub packages: Vec<PathBuf>,
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
    #[error("{}: {}", path.display(), in_one_line(error))]
    File {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: toml::de::Error,
    },
    /// An environment variable is wrong.
    #[error("{name}: {}", redact(reason))]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Settings of a service that is not there.
    #[error(
        "{place}: the account `{owner}` has no service `{name}`{}; services here: {known}",
        .meant.as_deref().unwrap_or_default()
    )]
    Service {
        /// Where they stand.
        place: String,
        /// Whose service it would be.
        owner: String,
        /// Its name.
        name: String,
        /// Which one was meant, if one is near.
        meant: Option<String>,
        /// Those that are there.
        known: String,
    },
    /// A value of a file is wrong.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<SettingsError>,
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

impl SettingsError {
    /// The error of a value that stands in this file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self::InFile {
            path: path.to_owned(),
            error: Box::new(self),
        }
    }
}

/// The place of an error, the line of the file there, and the cause.
fn in_one_line(error: &toml::de::Error) -> String {
    let whole = redact_quoted(&error.to_string());
    let place = whole.lines().next().unwrap_or_default();
    let is_number = |text: &str| text.trim().parse::<usize>().is_ok();
    let mut quoted = whole.lines().filter_map(|line| line.split_once('|'));
    let line = quoted.find(|(number, _)| is_number(number));
    let line = line.map_or("", |(_, line)| line.trim());
    format!("{place} (`{line}`): {}", redact(error.message()))
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
        let of_file = from_file.clone();
        let settings = environment::apply(from_file, variables)?;
        settings.check().map_err(|error| {
            // What the environment got wrong does not stand in the file.
            let in_file = of_file.check().map_err(|of_file| of_file.to_string());
            match path {
                Some(path) if in_file == Err(error.to_string()) => error.in_file(path),
                _ => error,
            }
        })?;
        Ok(settings)
    }

    /// The settings as a file, without credentials.
    pub fn print(&self) -> String {
        toml::to_string_pretty(&self.redacted()).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The limits of tasks.
    pub fn caps(&self) -> Caps {
        Caps {
            waiting: self.limits.waiting,
            running: self.limits.running,
            places: self.tasks.running(),
            attempts: self.limits.attempts,
            quota: Quota {
                tasks: self.limits.stored_tasks,
                bytes: self.limits.stored_bytes,
                beside: 0,
            },
        }
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
        let records = self.tasks.record_ttl_days;
        require(
            "tasks.record_ttl_days",
            records,
            (0.0..1e9).contains(&records),
            "it must be 0 (until they are deleted) or more",
        )?;
        let inline = self.tasks.inline_bytes;
        require(
            "tasks.inline_bytes",
            inline,
            inline <= MOST_INLINE,
            "it must be at most 1048576: longer contents belong into files",
        )?;
        let grace = self.timeouts.grace_s;
        require(
            "timeouts.grace_s",
            grace,
            (0.0..1e9).contains(&grace),
            "it must be 0 or more",
        )?;
        for (place, value, most) in [
            ("limits.waiting", self.limits.waiting as usize, usize::MAX),
            ("limits.running", self.limits.running as usize, usize::MAX),
            ("limits.attempts", self.limits.attempts as usize, usize::MAX),
            (
                "limits.connections",
                self.limits.connections,
                Semaphore::MAX_PERMITS,
            ),
            ("limits.body_bytes", self.limits.body_bytes, usize::MAX),
            ("limits.answer_bytes", self.limits.answer_bytes, usize::MAX),
            (
                "limits.header_count",
                self.limits.header_count,
                MOST_HEADERS,
            ),
            ("usage.keep_days", self.usage.keep_days as usize, usize::MAX),
            ("training.running", self.training.running, usize::MAX),
            ("training.row_bytes", self.training.row_bytes, 1 << 30),
            ("training.datasets", self.training.datasets, usize::MAX),
        ] {
            require(place, value, value > 0, "it must be at least 1")?;
            require(
                place,
                value,
                value <= most,
                &format!("it may be at most {most}"),
            )?;
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
        let admin = self.admin.listen.0;
        let same =
            admin.is_some_and(|admin| self.listen == Listen::Address(admin) && admin.port() != 0);
        require(
            "admin.listen",
            &self.listen,
            !same,
            "it must be another address than `listen`",
        )?;
        check_service("defaults", &self.defaults)?;
        self.check_places()?;
        self.check_proxies()
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
    OrtOption::check_all(&settings.ort_options).map_err(|reason| SettingsError::Value {
        place: format!("{place}.ort_options"),
        found: "a key twice".to_owned(),
        expected: reason,
    })?;
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

impl Tasks {
    /// Running tasks of all accounts.
    pub fn running(&self) -> u32 {
        let running = match self.running {
            0 => {
                let cores = std::thread::available_parallelism();
                let cores = cores.map_or(1, std::num::NonZero::get);
                cores.saturating_mul(PLACES_OF_A_CORE).max(FEWEST_PLACES)
            }
            running => running,
        };
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    /// How long answers are kept, but for short ones.
    pub fn answer_ttl(&self) -> Duration {
        Duration::from_secs_f64(self.answer_ttl_days * DAY)
    }

    /// How long tasks are kept that have ended.
    pub fn record_ttl(&self) -> Option<Duration> {
        (self.record_ttl_days > 0.0).then(|| Duration::from_secs_f64(self.record_ttl_days * DAY))
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

    /// Requests of one key that are being answered.
    pub fn requests_per_key(&self) -> usize {
        match self.requests_per_key {
            0 => self.connections.div_ceil(2),
            most => most,
        }
    }

    /// Requests of an account that are being answered.
    pub fn requests_per_account(&self) -> usize {
        match self.requests_per_account {
            0 => self.connections.div_ceil(4).saturating_mul(3),
            most => most,
        }
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
