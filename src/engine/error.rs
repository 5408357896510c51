//! Why an engine could not do what it was asked.

use serde::{Deserialize, Serialize};

use crate::tensor::limit::Limit;

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
