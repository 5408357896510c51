//! Errors of engines: why a model could not be loaded or run.

use serde::{Deserialize, Serialize};

use crate::tensor::limit::RunLimit;

/// An error of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum EngineError {
    /// The engine or the provider is not on this machine.
    #[error("{what} is not available: {reason}; {help}")]
    Unavailable {
        /// The missing engine or provider.
        what: String,
        /// Why.
        reason: String,
        /// How to get it.
        help: String,
    },
    /// The engine has no code for a part of the model, or is known to compute it wrongly.
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
    /// The engine checked the model and found it invalid. No other engine would load it correctly
    /// either.
    #[error("the {engine} engine found the model invalid: {reason}")]
    Corrupt {
        /// The engine.
        engine: String,
        /// The defect.
        reason: String,
    },
    /// A run failed.
    #[error("the {engine} engine failed{}: {reason}", at(.operator.as_deref()))]
    Run {
        /// The engine.
        engine: String,
        /// The operator that failed, if the engine reports it.
        operator: Option<String>,
        /// The cause.
        reason: String,
    },
    /// A run failed because of the values of its inputs, such as an index out of range.
    #[error("the {engine} engine rejected these inputs{}: {reason}", at(.operator.as_deref()))]
    Input {
        /// The engine.
        engine: String,
        /// The operator that rejected them, if the engine reports it.
        operator: Option<String>,
        /// The value, and what would be valid.
        reason: String,
    },
    /// The process that ran the engine crashed.
    #[error("the {engine} engine's process crashed while {doing}: {reason}")]
    Died {
        /// The engine.
        engine: String,
        /// `loading the model` or `running`.
        doing: String,
        /// The signal or exit code, and its most likely meaning.
        reason: String,
    },
    /// The device cannot be used, or the connection with it ended.
    #[error("{reason}")]
    Device {
        /// The reason.
        reason: String,
        /// Whether the connection broke, so that the device may come back.
        is_lost: bool,
    },
    /// The engine was stopped by a configured limit.
    #[error("the {engine} engine reached {limit} while {doing}; {}", .limit.help())]
    Limit {
        /// The engine.
        engine: String,
        /// `loading the model` or `running`.
        doing: String,
        /// The limit.
        limit: RunLimit,
    },
}

impl EngineError {
    /// Returns `true` if another engine may succeed: this one is missing here or does not support
    /// the model.
    pub fn is_about_the_engine(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unsupported { .. })
    }

    /// Returns `true` if the model or its inputs are at fault. Another engine must not answer for
    /// them then.
    pub fn is_about_the_model(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Input { .. })
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
