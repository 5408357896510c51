//! Native libraries of engines on this machine, as data: what `backends` lists.
//!
//! Knows no engine and looks for nothing: engines fill this in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Provider;

/// Where a library was found, in the order in which places are looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Named by the caller.
    Named,
    /// Named by this environment variable.
    Variable(&'static str),
    /// The tool's own directory.
    Own,
    /// Next to the program.
    Program,
    /// The system's library path.
    System,
    /// A Python package.
    Python,
}

/// An engine's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The library, or the directory of its parts.
    pub path: PathBuf,
    /// Where it was found.
    pub origin: Origin,
    /// Its version, where its name, its package or its symbols tell.
    pub version: Option<String>,
    /// Providers built into it; none if it cannot be used, else at least [`Provider::Cpu`].
    pub providers: Vec<Provider>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// A provider in a library of its own, which the engine loads at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// What it provides.
    pub provider: Provider,
    /// Its library.
    pub path: PathBuf,
    /// The library of the vendor that it needs, if it needs one.
    pub backend: Option<PathBuf>,
}

/// What an engine's library can hand a part of a model to, as the library itself tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeBackend {
    /// The name that model files call it by.
    pub name: String,
    /// Whether the library says that it can be used here.
    pub available: bool,
}

/// What of an engine is on a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installations {
    /// Its libraries, best first. The first that can be used and has a provider runs it.
    pub libraries: Vec<Installation>,
    /// Providers in libraries of their own, which any of the libraries can load.
    pub plugins: Vec<Plugin>,
}

impl Origin {
    /// Words for it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Named => "--ort-lib",
            Self::Variable(name) => name,
            Self::Own => "the tool's data directory",
            Self::Program => "next to the program",
            Self::System => "the system's library path",
            Self::Python => "a Python package",
        }
    }

    /// Whether the user asked for exactly this one.
    pub fn is_wish(self) -> bool {
        matches!(self, Self::Named | Self::Variable(_))
    }
}
