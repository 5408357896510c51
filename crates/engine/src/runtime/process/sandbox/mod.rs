//! The sandbox of a child process: it may read the files that it was given, and answer.
//!
//! A process confines itself before it reads any part of a model, while it has one thread. On macOS
//! the starting command confines it.
//!
//! Invariant: every missing protection is listed in [`Sandbox`].

#[cfg(target_os = "linux")]
mod linux;
mod macos;
// The filters of seccompiler are for 64-bit processors.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod syscalls;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The sandbox mode of child processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Confine processes as far as the system can.
    #[default]
    Auto,
    /// Require full confinement; processes without it do not start.
    Require,
    /// Do not confine processes.
    Off,
}

/// The permissions of a process, besides those that every process needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPermissions {
    /// Files and folders that it may read.
    pub read: Vec<PathBuf>,
    /// Folders that it may list.
    pub list: Vec<PathBuf>,
    /// Folder in which it may do everything except run programs.
    pub scratch: Option<PathBuf>,
    /// Name of the provider, if it needs devices of the machine.
    pub devices: Option<String>,
}

/// The level of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLevel {
    /// Only the granted permissions are left.
    Full,
    /// A part of the protection is missing.
    Reduced,
    /// The process has all rights of the user.
    None,
}

/// The confinement in force for a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Level of confinement.
    pub level: SandboxLevel,
    /// Missing protections, with reasons.
    pub missing: Vec<String>,
    /// Name of the provider whose devices it may use.
    pub exception: Option<String>,
}

/// The mode for child processes of this program.
static CHOSEN_MODE: OnceLock<SandboxMode> = OnceLock::new();

impl SandboxMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Require, Self::Off];

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Off => "off",
        }
    }

    /// Sets the mode for all child processes. Only the first call counts.
    pub fn choose(self) {
        // Commands set it once, when they start.
        let _ = CHOSEN_MODE.set(self);
    }

    /// Returns the chosen mode, or the default.
    pub fn chosen() -> Self {
        CHOSEN_MODE.get().copied().unwrap_or_default()
    }
}

impl FromStr for SandboxMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|mode| mode.name() == text)
            .ok_or_else(|| format!("invalid mode `{text}`: expected auto, require or off"))
    }
}

impl SandboxLevel {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reduced => "reduced",
            Self::None => "none",
        }
    }
}

impl Sandbox {
    /// Returns the description of a process without a sandbox.
    pub fn none(why: &str) -> Self {
        Self {
            level: SandboxLevel::None,
            missing: vec![why.to_owned()],
            exception: None,
        }
    }

    /// Returns the description of a sandbox with these missing protections.
    fn without(missing: Vec<String>, exception: Option<String>) -> Self {
        let level = if missing.is_empty() {
            SandboxLevel::Full
        } else {
            SandboxLevel::Reduced
        };
        Self {
            level,
            missing,
            exception,
        }
    }
}

/// Format: `full`, `full, with the devices of qnn`, `reduced (…)`.
impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.name())?;
        if let Some(provider) = &self.exception {
            write!(f, ", with the devices of {provider}")?;
        }
        if !self.missing.is_empty() {
            write!(f, " ({})", self.missing.join("; "))?;
        }
        Ok(())
    }
}

/// Confines this process. It must have only one thread: others would keep their rights.
///
/// With [`SandboxMode::Require`], a missing protection is an error.
pub fn enter(mode: SandboxMode, allowed: &SandboxPermissions) -> Result<Sandbox, String> {
    if mode == SandboxMode::Off {
        return Ok(Sandbox::none("it is switched off"));
    }
    let sandbox = confine(allowed);
    if mode == SandboxMode::Require && sandbox.level != SandboxLevel::Full {
        return Err(sandbox.missing.join("; "));
    }
    Ok(sandbox)
}

#[cfg(target_os = "linux")]
use linux::confine;

/// The parent has started the process in the system's sandbox.
#[cfg(target_os = "macos")]
fn confine(allowed: &SandboxPermissions) -> Sandbox {
    Sandbox::without(Vec::new(), allowed.devices.clone())
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn confine(_: &SandboxPermissions) -> Sandbox {
    Sandbox::none("this system has no sandbox that pkgtool can use")
}

/// Wraps the command on systems where a process cannot confine itself.
pub fn wrapped(command: Command, mode: SandboxMode, allowed: &SandboxPermissions) -> Command {
    if cfg!(target_os = "macos") && mode != SandboxMode::Off {
        return macos::wrapped(&command, allowed);
    }
    command
}

/// `true` if the starting command confines processes, so that the permissions must be known before
/// the start.
pub const IS_WRAPPED: bool = cfg!(target_os = "macos");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_says_what_it_lacks() {
        let full = Sandbox::without(Vec::new(), Some("qnn".to_owned()));
        assert_eq!(full.to_string(), "full, with the devices of qnn");
        let reduced = Sandbox::without(vec!["it can read all files".to_owned()], None);
        assert_eq!(reduced.to_string(), "reduced (it can read all files)");
        let none = Sandbox::none("it is switched off");
        assert_eq!(none.to_string(), "none (it is switched off)");
    }

    #[test]
    fn modes_are_read_by_their_names() {
        for mode in SandboxMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("on".parse::<SandboxMode>().is_err());
    }
}
