//! The gateway's settings: defaults, overridden by `gateway.toml`, overridden by environment
//! variables.
//!
//! Command line arguments override all of them; the `serve` command applies those.
//!
//! Invariant: an unknown setting is rejected, and the error says where it is.

mod database;
mod defaults;
mod devices;
mod environment;
mod listen;
mod live;
mod objects;
mod operators;
mod proxy;
mod role;
mod secrets;
mod services;
mod sources;
mod webhooks;
mod workers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use database::{DatabaseSetting, InvalidDatabase};
pub use devices::DeviceSettings;
pub use listen::{InvalidListenAddress, Listen};

use crate::service::ServiceSettings;
use crate::task::{Caps, Quota};
pub use live::Changes;
pub use objects::{ObjectsSettings, OptionalObjectsUrl};
pub use operators::{
    Admin, BatchLimits, Console, Cors, ForwardingHeader, MetricsBounds, Network, OptionalAddress,
    TrainingLimits, TrustedProxies, UsageKept, login_link,
};
use pkgtool_base::source::redact::{redact, redact_quoted};
use pkgtool_engine::OrtOption;
use pkgtool_engine::runtime::process::sandbox::SandboxMode;
pub use proxy::{Addresses, Proxy};
pub use role::{ServerRole, UnknownRole};
pub use sources::{Publisher, Sources};
pub use webhooks::Webhook;
pub use workers::WorkersSettings;

/// Name of the first account, which always exists.
pub const LOCAL_ACCOUNT: &str = "local";

/// Maximum size of a body or answer that is stored in a database record, in bytes.
const MAX_INLINE_BYTES: usize = 1 << 20;

/// Default number of running tasks per core, and its minimum in total.
const RUNNING_TASKS_PER_CORE: usize = 128;
const MIN_RUNNING_TASKS: usize = 256;

/// Name of the settings file in a data directory.
pub const CONFIG_FILE: &str = "gateway.toml";
/// A day, in seconds.
const SECONDS_PER_DAY: f64 = 86_400.0;
/// Maximum number of fields of a request's head that the HTTP library supports.
const MAX_HEADER_FIELDS: usize = 1 << 15;

/// All settings of the gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySettings {
    /// Address to listen on: an IP address or a name, with a port.
    pub listen: Listen,
    /// Directory of the database and the stored files; empty: the user's data directory.
    pub data_dir: PathBuf,
    /// URL of a PostgreSQL database, which several servers may share; empty: a database in the data directory.
    pub database: DatabaseSetting,
    /// The work of this server, if several servers share the database: `all`, `api` or `dispatcher`.
    pub role: ServerRole,
    /// Packages whose services belong to the account `local`: directories, or addresses on servers.
    pub packages: Vec<PathBuf>,
    /// Maximum memory of all loaded models, in bytes; 0: half of the machine's memory.
    pub memory_budget: u64,
    /// Path of ONNX Runtime's library; empty: search for it.
    pub ort_library: PathBuf,
    /// Sandbox for the processes that run models and parse clients' data.
    pub sandbox: SandboxMode,
    /// Filters for packages on servers.
    pub sources: Sources,
    /// Limits.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Tasks.
    pub tasks: Tasks,
    /// Object storage.
    pub objects: ObjectsSettings,
    /// Usage records of accounts.
    pub usage: UsageKept,
    /// Training.
    pub training: TrainingLimits,
    /// Batches.
    pub batches: BatchLimits,
    /// Logs.
    pub log: Log,
    /// Limits on the labels of metrics.
    pub metrics: MetricsBounds,
    /// The operators' listener.
    pub admin: Admin,
    /// Workers.
    pub workers: WorkersSettings,
    /// The console: the pages for a browser.
    pub console: Console,
    /// Proxies in front of the gateway.
    pub trusted_proxies: TrustedProxies,
    /// Cross-origin requests.
    pub cors: Cors,
    /// TLS.
    pub tls: Tls,
    /// Default settings of services.
    pub defaults: ServiceSettings,
    /// Settings of single services, by `NAME`, or by `"acme/NAME"` for a service of the account `acme`.
    pub services: BTreeMap<String, toml::Table>,
    /// Devices on which models run.
    pub devices: Vec<DeviceSettings>,
    /// Packages of other accounts.
    pub publishers: Vec<Publisher>,
    /// Services that proxy other HTTP services.
    pub proxies: Vec<Proxy>,
    /// Servers that get an event when a task, a batch or a training job ends.
    pub webhooks: Vec<Webhook>,
}

/// Limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of waiting tasks of an account. A lower limit of requests per second applies to them, too.
    pub waiting: u32,
    /// Maximum number of running tasks of an account, with the same rule.
    pub running: u32,
    /// Maximum number of attempts of a task whose process crashes.
    pub attempts: u32,
    /// Maximum number of stored tasks of an account, in any state; 0: unlimited.
    pub stored_tasks: u64,
    /// Maximum storage of an account (tasks, datasets, packages, cached vectors), in bytes; 0: unlimited.
    pub stored_bytes: u64,
    /// Maximum CPU seconds of an account's models per day (UTC); 0: unlimited.
    pub cpu_seconds_per_day: u64,
    /// Maximum size of a request's body, in bytes.
    pub body_bytes: usize,
    /// Maximum memory of all request bodies, in bytes; 0: twice `body_bytes`.
    pub body_memory_bytes: usize,
    /// Minimum free disk space in the data directory, in bytes. Below it the server reports that it is not ready.
    pub disk_free_bytes: u64,
    /// Maximum size of an upstream's answer, in bytes.
    pub answer_bytes: usize,
    /// Maximum size of a request's head, in bytes.
    pub header_bytes: usize,
    /// Maximum number of fields of a request's head.
    pub header_count: usize,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of open connections that have shown no key; 0: three quarters of `connections`.
    pub connections_without_key: usize,
    /// Maximum number of such connections from one address; 0: half of `connections_without_key`.
    pub connections_per_address: usize,
    /// Maximum number of requests in flight of one key, including long polls; 0: half of `connections`.
    pub requests_per_key: usize,
    /// Maximum number of requests in flight of all keys of an account; 0: three quarters of `connections`.
    pub requests_per_account: usize,
}

/// Timeouts, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Timeout for the head of a request, and for the pause between two requests of a connection.
    pub header_s: f64,
    /// Timeout for the body of a request.
    pub body_s: f64,
    /// Grace period for running requests and tasks when the server stops.
    pub grace_s: f64,
}

/// Tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Retention of answers of more than 150 characters, in days.
    pub answer_ttl_days: f64,
    /// Retention of finished tasks and their answers, in days; 0: until they are deleted.
    pub record_ttl_days: f64,
    /// Maximum size of bodies and answers in the database, in bytes. Longer ones are stored in files.
    pub inline_bytes: usize,
    /// Maximum number of running tasks of all accounts; 0: 128 per core, at least 256.
    pub running: usize,
    /// Seconds without a sign of life after which a running task counts as lost.
    pub lease_s: f64,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, or a filter such as `info,pkgtool::service=debug`.
    pub level: String,
    /// Format of a line.
    pub format: LogFormat,
}

/// The format of a log line.
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

/// TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// File with the certificate chain (PEM); empty: no TLS.
    pub certificate: PathBuf,
    /// File with the certificate's private key (PEM).
    pub key: PathBuf,
}

/// The settings are invalid or unreadable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is invalid.
    #[error("{}: {}", path.display(), in_one_line(error))]
    File {
        /// The file.
        path: PathBuf,
        /// Location and reason.
        error: toml::de::Error,
    },
    /// An environment variable is invalid.
    #[error("{name}: {}", redact(reason))]
    Variable {
        /// The variable.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The settings are for an unknown service.
    #[error(
        "{place}: the account `{owner}` has no service `{name}`{}; services here: {known}",
        .meant.as_deref().unwrap_or_default()
    )]
    Service {
        /// Name of the table in the file.
        place: String,
        /// Account of the service.
        owner: String,
        /// Name of the service.
        name: String,
        /// Suggestion of a similar service.
        meant: Option<String>,
        /// List of the known services.
        known: String,
    },
    /// A value in a file is invalid.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The error of the value.
        error: Box<SettingsError>,
    },
    /// A value is invalid.
    #[error("`{place}` is {found}; {expected}")]
    Value {
        /// The setting.
        place: String,
        /// The current value.
        found: String,
        /// The allowed values.
        expected: String,
    },
}

impl SettingsError {
    /// Adds the file that contains the value.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        Self::InFile {
            path: path.to_owned(),
            error: Box::new(self),
        }
    }
}

/// Formats the location of an error, the line of the file, and the cause.
fn in_one_line(error: &toml::de::Error) -> String {
    let whole = redact_quoted(&error.to_string());
    let place = whole.lines().next().unwrap_or_default();
    let is_number = |text: &str| text.trim().parse::<usize>().is_ok();
    let mut quoted = whole.lines().filter_map(|line| line.split_once('|'));
    let line = quoted.find(|(number, _)| is_number(number));
    let line = line.map_or("", |(_, line)| line.trim());
    format!("{place} (`{line}`): {}", redact(error.message()))
}

impl GatewaySettings {
    /// Reads the settings of a file, if one is given, and overrides them with those of the environment.
    pub fn read(
        path: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let from_file = match path {
            None => Self::default(),
            Some(path) => read_file(path)?,
        };
        let of_file = from_file.clone();
        let settings = environment::apply(from_file, variables)?;
        settings.check().map_err(|error| {
            // The file is named only if it has the same error without the environment.
            let in_file = of_file.check().map_err(|of_file| of_file.to_string());
            match path {
                Some(path) if in_file == Err(error.to_string()) => error.in_file(path),
                _ => error,
            }
        })?;
        Ok(settings)
    }

    /// Returns the settings as a TOML file, without credentials.
    pub fn print(&self) -> String {
        toml::to_string_pretty(&self.redacted()).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// Returns the limits of tasks.
    pub fn caps(&self) -> Caps {
        Caps {
            waiting: self.limits.waiting,
            running: self.limits.running,
            places: self.tasks.running(),
            attempts: self.limits.attempts,
            quota: Quota {
                tasks: self.limits.stored_tasks,
                bytes: self.limits.stored_bytes,
                other_bytes: 0,
            },
        }
    }

    fn check(&self) -> Result<(), SettingsError> {
        for (place, value) in [
            ("timeouts.header_s", self.timeouts.header_s),
            ("timeouts.body_s", self.timeouts.body_s),
            ("console.session_days", self.console.session_days),
            ("batches.keep_days", self.batches.keep_days),
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
        self.tasks.check()?;
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
                MAX_HEADER_FIELDS,
            ),
            ("usage.keep_days", self.usage.keep_days as usize, usize::MAX),
            ("training.running", self.training.running, usize::MAX),
            ("training.row_bytes", self.training.row_bytes, 1 << 30),
            ("training.datasets", self.training.datasets, usize::MAX),
            ("batches.running", self.batches.running, usize::MAX),
        ] {
            require(place, value, value > 0, "it must be at least 1")?;
            require(
                place,
                value,
                value <= most,
                &format!("it must be at most {most}"),
            )?;
        }
        let memory = self.limits.body_memory_bytes;
        require(
            "limits.body_memory_bytes",
            memory,
            memory == 0 || memory >= self.limits.body_bytes,
            "it must be 0 (twice `limits.body_bytes`), or at least `limits.body_bytes`",
        )?;
        // The minimum that hyper accepts for the buffer of a head.
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
            "incomplete",
            !one,
            "set both `certificate` and `key`, or neither",
        )?;
        let admin = self.admin.listen.0;
        let same =
            admin.is_some_and(|admin| self.listen == Listen::Address(admin) && admin.port() != 0);
        require(
            "admin.listen",
            &self.listen,
            !same,
            "it must differ from `listen`",
        )?;
        check_service("defaults", &self.defaults)?;
        self.console.check()?;
        self.workers.check()?;
        self.check_places()?;
        self.check_devices()?;
        self.check_webhooks()?;
        self.check_proxies()
    }
}

/// Reads a settings file, or a part of it.
fn read_file<T: DeserializeOwned>(path: &Path) -> Result<T, SettingsError> {
    let text = fs::read_to_string(path).map_err(|error| SettingsError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    toml::from_str(&text).map_err(|error| SettingsError::File {
        path: path.to_owned(),
        error,
    })
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
    fn check(&self) -> Result<(), SettingsError> {
        let inline = self.inline_bytes;
        require(
            "tasks.inline_bytes",
            inline,
            inline <= MAX_INLINE_BYTES,
            "it must be at most 1048576: longer contents are stored in files",
        )
    }

    /// Returns the maximum number of running tasks of all accounts.
    pub fn running(&self) -> u32 {
        let running = match self.running {
            0 => {
                let cores = std::thread::available_parallelism();
                let cores = cores.map_or(1, std::num::NonZero::get);
                MIN_RUNNING_TASKS.max(cores.saturating_mul(RUNNING_TASKS_PER_CORE))
            }
            running => running,
        };
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    /// Returns the retention of answers, except short ones.
    pub fn answer_ttl(&self) -> Duration {
        Duration::from_secs_f64(self.answer_ttl_days * SECONDS_PER_DAY)
    }

    /// Returns the retention of finished tasks; `None` is unlimited.
    pub fn record_ttl(&self) -> Option<Duration> {
        (self.record_ttl_days > 0.0)
            .then(|| Duration::from_secs_f64(self.record_ttl_days * SECONDS_PER_DAY))
    }
}
