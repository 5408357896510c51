//! Data types for the native libraries of engines on this machine, as `backends` lists them.
//!
//! Engines search for the libraries and fill these types in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Provider;

/// Origin of a library. The variants are in the order of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryOrigin {
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
    /// Place where the library was found.
    pub origin: LibraryOrigin,
    /// Its version, if its name, package or symbols reveal it.
    pub version: Option<String>,
    /// Providers built into it: at least [`Provider::Cpu`], or empty if the library is unusable.
    pub providers: Vec<Provider>,
    /// Why it is unusable.
    pub problem: Option<String>,
}

/// A provider in a library of its own, which the engine loads at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// The provider in it.
    pub provider: Provider,
    /// Its library.
    pub path: PathBuf,
    /// The vendor's library that it needs, if any.
    pub backend: Option<PathBuf>,
}

/// A backend that an engine's library can delegate a part of a model to, as the library reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeBackend {
    /// The backend's name in model files.
    pub name: String,
    /// Is `true` if the library reports that the backend works on this machine.
    pub available: bool,
}

/// The libraries of an engine on a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installations {
    /// Its libraries, best first. The first usable one with a provider runs that provider.
    pub libraries: Vec<Installation>,
    /// Providers in libraries of their own, which any of the libraries can load.
    pub plugins: Vec<Plugin>,
}

impl LibraryOrigin {
    /// Returns a description for people.
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

    /// Returns `true` if the user named this library.
    pub fn is_user_choice(self) -> bool {
        matches!(self, Self::Named | Self::Variable(_))
    }
}
