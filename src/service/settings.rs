//! How a service runs: the settings that `gateway.toml` has for all services and for each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{OrtOption, Rounding};

/// Where a session runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In a process of its own: its crash, hang or greed is survived.
    #[default]
    Process,
    /// In a thread of the server: a little faster; a model that hangs keeps its thread for ever.
    Thread,
}

/// Whether those see a service who may not use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub enum Listed {
    /// The first account's are, others' are not.
    #[default]
    Auto,
    /// They do.
    Yes,
    /// They do not.
    No,
}

/// How it is written: `true`, `false`, or the same as a text, or `"auto"`.
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
                    "`listed` is `{other}`; it may be true, false or \"auto\""
                )),
            },
        }
    }
}

/// How a service runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSettings {
    /// Whether other accounts may call it.
    pub public: bool,
    /// Whether the registry shows it to those who may not call it.
    pub listed: Listed,
    /// Sessions that may run at the same time.
    pub instances: usize,
    /// Requests that may wait for a session.
    pub queue: usize,
    /// Most requests in one run of a model whose batch dimension is dynamic; 1 turns batching off.
    pub batch_max_size: usize,
    /// Longest time a request waits for others to share its run, in milliseconds; 0 takes only what
    /// waits already.
    pub batch_max_wait_ms: u64,
    /// Longest time of a synchronous predict, in seconds.
    pub predict_timeout_s: f64,
    /// Longest time of a task's run, in seconds; 0 is no limit.
    pub async_timeout_s: f64,
    /// Where sessions run.
    pub isolation: Isolation,
    /// Most bytes of memory of a session's process; 0 is no limit.
    pub memory_limit: u64,
    /// Threads of a run; 0 leaves it to the engine.
    pub threads: usize,
    /// How programs for Core ML, MLX and Vulkan in half precision are computed where their backend is not.
    pub rounding: Rounding,
    /// Options of ONNX Runtime's session, each `KEY=VALUE`.
    pub ort_options: Vec<OrtOption>,
    /// Loads the default model when the service appears, not at the first request.
    pub warm_up: bool,
    /// Runs a task again whose process died.
    pub retry_after_crash: bool,
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
            isolation: Isolation::Process,
            memory_limit: 0,
            threads: 0,
            rounding: Rounding::Wide,
            ort_options: Vec::new(),
            warm_up: false,
            retry_after_crash: true,
        }
    }
}

impl ServiceSettings {
    /// The limit of a synchronous predict.
    pub fn predict_timeout(&self) -> Duration {
        seconds(self.predict_timeout_s).unwrap_or(Duration::from_mins(1))
    }

    /// The limit of a task's run, if there is one.
    pub fn async_timeout(&self) -> Option<Duration> {
        seconds(self.async_timeout_s)
    }
}

fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
}
