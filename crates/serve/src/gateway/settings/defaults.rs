//! Default values of the settings, limits that follow from others, and timeouts as durations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::operators::{
    Admin, BatchLimits, Console, MetricsBounds, TrainingLimits, TrustedProxies, UsageKept,
};
use super::{
    Cors, DatabaseSetting, GatewaySettings, Limits, Log, LogFormat, ObjectsSettings, ServerRole,
    Sources, Tasks, Timeouts, Tls, WorkersSettings,
};
use crate::service::ServiceSettings;
use pkgtool_engine::runtime::process::sandbox::SandboxMode;

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)).into(),
            data_dir: PathBuf::new(),
            database: DatabaseSetting::Own,
            role: ServerRole::All,
            packages: Vec::new(),
            memory_budget: 0,
            ort_library: PathBuf::new(),
            sandbox: SandboxMode::Auto,
            sources: Sources::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            tasks: Tasks::default(),
            objects: ObjectsSettings::default(),
            usage: UsageKept::default(),
            training: TrainingLimits::default(),
            batches: BatchLimits::default(),
            log: Log::default(),
            metrics: MetricsBounds::default(),
            admin: Admin::default(),
            workers: WorkersSettings::default(),
            console: Console::default(),
            trusted_proxies: TrustedProxies::default(),
            cors: Cors::default(),
            tls: Tls::default(),
            defaults: ServiceSettings::default(),
            services: BTreeMap::new(),
            devices: Vec::new(),
            publishers: Vec::new(),
            proxies: Vec::new(),
            webhooks: Vec::new(),
        }
    }
}

impl Limits {
    /// Returns the maximum memory of all request bodies, in bytes.
    pub fn body_memory(&self) -> usize {
        match self.body_memory_bytes {
            0 => self.body_bytes.saturating_mul(2),
            bytes => bytes,
        }
    }

    /// Returns the maximum number of open connections that have shown no key.
    pub fn connections_without_key(&self) -> usize {
        match self.connections_without_key {
            0 => self.connections.div_ceil(4).saturating_mul(3),
            most => most,
        }
        .clamp(1, self.connections)
    }

    /// Returns the maximum number of requests in flight of one key.
    pub fn requests_per_key(&self) -> usize {
        match self.requests_per_key {
            0 => self.connections.div_ceil(2),
            most => most,
        }
    }

    /// Returns the maximum number of requests in flight of an account.
    pub fn requests_per_account(&self) -> usize {
        match self.requests_per_account {
            0 => self.connections.div_ceil(4).saturating_mul(3),
            most => most,
        }
    }

    /// Returns the maximum number of open connections from one address that have shown no key.
    pub fn connections_per_address(&self) -> usize {
        let all = self.connections_without_key();
        match self.connections_per_address {
            0 => all.div_ceil(2),
            most => most.min(all),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 250,
            running: 50,
            attempts: 3,
            stored_tasks: 0,
            stored_bytes: 0,
            cpu_seconds_per_day: 0,
            body_bytes: 64 << 20,
            body_memory_bytes: 0,
            disk_free_bytes: 64 << 20,
            answer_bytes: 256 << 20,
            header_bytes: 32 << 10,
            header_count: 100,
            connections: 4096,
            connections_without_key: 0,
            connections_per_address: 0,
            requests_per_key: 0,
            requests_per_account: 0,
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

impl Timeouts {
    /// Returns the timeout for the head of a request.
    pub fn header(&self) -> Duration {
        Duration::from_secs_f64(self.header_s)
    }

    /// Returns the timeout for the body of a request.
    pub fn body(&self) -> Duration {
        Duration::from_secs_f64(self.body_s)
    }

    /// Returns the grace period for running requests and tasks when the server stops.
    pub fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.grace_s)
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            answer_ttl_days: 7.0,
            record_ttl_days: 7.0,
            inline_bytes: 16 << 10,
            running: 0,
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
