//! The seam between what wants to run a model and what can: [`Engine`] loads, [`Session`] runs.
//!
//! Invariant: no type of an inference library is visible here. Everything but the two traits can be
//! sent to another process. Knows nothing of packages and of how an engine was chosen.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::library::NativeBackend;
use crate::tensor::limit::Limit;
use crate::tensor::{Signature, Tensor};

/// Something that can load models.
pub trait Engine: Sync {
    /// Lower-case name, as `--engine` takes it.
    fn name(&self) -> &'static str;

    /// Whether this build has it, not only its name.
    fn is_built(&self) -> bool {
        true
    }

    /// Loads a model for one method. Nothing of the model runs yet.
    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError>;

    /// What its library has for parts of models, where model files name such. Loads the library:
    /// [`super::worker::Launcher::backends`] asks in a process of its own.
    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Ok(Vec::new())
    }
}

/// A loaded model, owned by one thread at a time.
pub trait Session: Send {
    /// Runs the method once. `inputs` are in the order of the signature and fit it: callers check
    /// with [`super::input::check`]. Sessions stay usable after an error.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Answer, EngineError>;

    /// What the engine tells about where the model's nodes run. Complete only after the first run.
    fn placement(&mut self) -> Placement;
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Outputs in the signature's order.
    pub outputs: Vec<Tensor>,
    /// Time of the engine's own work: from inputs in memory to outputs in memory.
    pub time: Duration,
}

/// What to load and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The model file. Its header was read: it exists and is of a format the engine may know.
    pub model: PathBuf,
    /// What the method takes and gives.
    pub signature: Signature,
    /// How.
    pub options: LoadOptions,
}

/// How to load a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOptions {
    /// Threads for a run; `None` leaves it to the engine (all cores).
    pub threads: Option<usize>,
    /// The execution provider to run on.
    pub provider: Provider,
    /// Refuse to run any node elsewhere than on the provider.
    pub strict: bool,
    /// Observe which provider runs what, for [`Session::placement`]. Only the first run is slowed
    /// down by it.
    pub observe: bool,
    /// The engine's native library, if the user named one.
    pub library: Option<PathBuf>,
    /// Let every run begin as if it was the first: what a program keeps from run to run (a cache of keys
    /// and values, a counter) is forgotten.
    #[serde(default)]
    pub forget: bool,
}

/// An execution provider: the part of an engine that computes on one kind of hardware.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The engine's own CPU code.
    #[default]
    Cpu,
    /// XNNPACK.
    Xnnpack,
    /// Apple's Core ML.
    CoreMl,
    /// Qualcomm's AI Engine Direct.
    Qnn,
    /// WebGPU, on Vulkan, Metal or Direct3D.
    WebGpu,
}

/// Where a model's nodes ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Providers with at least one node, the largest share of nodes first. Empty if the engine does
    /// not tell.
    pub shares: Vec<Share>,
}

/// What one provider did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The provider, as the engine names it.
    pub provider: String,
    /// How many nodes it ran (after the engine merged nodes).
    pub nodes: u64,
    /// Its part of all nodes, 0 to 1.
    pub node_share: f64,
    /// Its part of the time all nodes took in the observed run, 0 to 1.
    pub time_share: f64,
}

/// Why an engine could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum EngineError {
    /// The engine, or the provider, is not on this machine.
    #[error("{what} is not available: {reason}; {help}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// Why.
        reason: String,
        /// How to get it.
        help: String,
    },
    /// The engine has no code for something in the model, or is known to compute it wrongly.
    #[error("the {engine} engine cannot run {}: {reason}", list(.operators))]
    Unsupported {
        /// The engine.
        engine: String,
        /// Full operator names, sorted, each once; empty if it is not an operator.
        operators: Vec<String>,
        /// Why not.
        reason: String,
    },
    /// The model cannot be loaded.
    #[error("the {engine} engine cannot load the model: {reason}")]
    Load {
        /// The engine.
        engine: String,
        /// Why not.
        reason: String,
    },
    /// The engine checked the model and found it broken: no other would load it rightly either.
    #[error("the {engine} engine finds the model broken: {reason}")]
    Corrupt {
        /// The engine.
        engine: String,
        /// What is broken.
        reason: String,
    },
    /// A run failed.
    #[error("the {engine} engine failed{}: {reason}", at(.operator.as_deref()))]
    Run {
        /// The engine.
        engine: String,
        /// The operator it was at, where it tells.
        operator: Option<String>,
        /// What happened.
        reason: String,
    },
    /// A run failed because of what the inputs hold: an index outside what it indexes.
    #[error("the {engine} engine cannot take these inputs{}: {reason}", at(.operator.as_deref()))]
    Input {
        /// The engine.
        engine: String,
        /// The operator that does not take them, where it tells.
        operator: Option<String>,
        /// The value, and what would be valid.
        reason: String,
    },
    /// The process that ran the engine died.
    #[error("the {engine} engine's process died while it was {doing}: {reason}")]
    Died {
        /// The engine.
        engine: String,
        /// `loading the model` or `running`.
        doing: String,
        /// The signal or exit code, and what that most likely means.
        reason: String,
    },
    /// It was stopped by a limit that was set for it.
    #[error("the {engine} engine reached {limit} while it was {doing}; {}", .limit.help())]
    Limit {
        /// The engine.
        engine: String,
        /// `loading the model` or `running`.
        doing: String,
        /// The limit.
        limit: Limit,
    },
}

impl EngineError {
    /// Whether another engine may well succeed where this one failed: this one does not exist here
    /// or has no code for the model.
    pub fn is_about_the_engine(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unsupported { .. })
    }

    /// Whether what failed is the model or what was given to it, so that an answer of another engine
    /// would be one to nothing sound.
    pub fn is_about_the_model(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Input { .. })
    }
}

impl Provider {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Xnnpack => "xnnpack",
            Self::CoreMl => "coreml",
            Self::Qnn => "qnn",
            Self::WebGpu => "webgpu",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn list(operators: &[String]) -> String {
    if operators.is_empty() {
        return "the model".to_owned();
    }
    let quoted: Vec<String> = operators.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn at(operator: Option<&str>) -> String {
    operator.map_or_else(String::new, |operator| format!(" at `{operator}`"))
}
