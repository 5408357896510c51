//! Settings of services, read from `gateway.toml`: defaults for all services and overrides for
//! each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use pkgtool_engine::{OrtOption, Rounding};

/// Isolation of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A separate process, so that the server survives crashes, hangs and excessive memory use of
    /// the model.
    #[default]
    Process,
    /// A thread of the server: slightly faster, but a model that hangs occupies its thread forever.
    Thread,
}

/// Visibility of a service to accounts that may not call it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub enum Listed {
    /// Services of the first account are visible, others are hidden.
    #[default]
    Auto,
    /// Visible.
    Yes,
    /// Hidden.
    No,
}

/// Configuration form: `true`, `false`, the same as a string, or `"auto"`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Flag(bool),
    Text(String),
}

impl From<Listed> for Written {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Auto => Self::Text("auto".to_owned()),
            Listed::Yes => Self::Flag(true),
            Listed::No => Self::Flag(false),
        }
    }
}

impl TryFrom<Written> for Listed {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        match written {
            Written::Flag(true) => Ok(Self::Yes),
            Written::Flag(false) => Ok(Self::No),
            Written::Text(text) => match text.as_str() {
                "true" => Ok(Self::Yes),
                "false" => Ok(Self::No),
                "auto" => Ok(Self::Auto),
                other => Err(format!(
                    "invalid `listed` value `{other}`: expected true, false or \"auto\""
                )),
            },
        }
    }
}

/// The machines that run the models of a package.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOn {
    /// On the devices of the gateway that take the backend of the model, if it has any; otherwise here.
    #[default]
    Auto,
    /// In processes of this machine.
    Here,
    /// On workers, which get the package.
    Workers,
}

/// The place of a package's models while none of their devices is connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutDevice {
    /// Nowhere: the service is inactive, and its tasks wait.
    #[default]
    Wait,
    /// On this machine.
    Here,
}

/// Settings of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct ServiceSettings {
    /// Allow other accounts to call it.
    pub public: bool,
    /// Visibility in the registry to accounts that may not call it.
    pub listed: Listed,
    /// Maximum number of sessions that run at the same time.
    pub instances: usize,
    /// Maximum number of requests that wait for a session.
    pub queue: usize,
    /// Maximum number of requests in one run of a model with a dynamic batch dimension; 1 disables
    /// batching.
    pub batch_max_size: usize,
    /// Maximum time that a request waits for others to share its run, in milliseconds; 0 batches
    /// only requests that are already waiting.
    pub batch_max_wait_ms: u64,
    /// Maximum duration of a synchronous predict, in seconds.
    pub predict_timeout_s: f64,
    /// Maximum duration of a task's run, in seconds; 0 means unlimited.
    pub async_timeout_s: f64,
    /// The machines that run the models of its package.
    pub run_on: RunOn,
    /// The place of these models while none of their devices is connected.
    pub without_device: WithoutDevice,
    /// Isolation of sessions.
    pub isolation: Isolation,
    /// Maximum memory of a session's process, in bytes; 0 means unlimited.
    pub memory_limit: u64,
    /// Number of threads of a run; 0 lets the engine decide.
    pub threads: usize,
    /// Rounding of half-precision Core ML, MLX and Vulkan programs that run without their native
    /// backend.
    pub rounding: Rounding,
    /// ONNX Runtime session options, each `KEY=VALUE`.
    pub ort_options: Vec<OrtOption>,
    /// Load the default model when the service appears instead of at the first request.
    pub warm_up: bool,
    /// Retry a task whose process crashed, or whose worker or device left.
    pub retry_after_crash: bool,
    /// The server is not ready while the service is inactive.
    pub required: bool,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            public: false,
            listed: Listed::Auto,
            instances: 1,
            queue: 256,
            batch_max_size: 8,
            batch_max_wait_ms: 0,
            predict_timeout_s: 60.0,
            async_timeout_s: 0.0,
            run_on: RunOn::Auto,
            without_device: WithoutDevice::Wait,
            isolation: Isolation::Process,
            memory_limit: 0,
            threads: 0,
            rounding: Rounding::Wide,
            ort_options: Vec::new(),
            warm_up: false,
            retry_after_crash: true,
            required: false,
        }
    }
}

impl ServiceSettings {
    /// Returns the time limit of a synchronous predict.
    pub fn predict_timeout(&self) -> Duration {
        seconds(self.predict_timeout_s).unwrap_or(Duration::from_mins(1))
    }

    /// Returns the time limit of a task's run, if any.
    pub fn async_timeout(&self) -> Option<Duration> {
        seconds(self.async_timeout_s)
    }
}

fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
}
