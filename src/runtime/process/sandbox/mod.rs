//! What a process that works for this one may still do: read the files that it was given, and answer.
//!
//! It confines itself, before it reads a byte of a model and while it has one thread. Invariant: whatever the system
//! cannot keep it from is listed in what is in force ([`Sandbox`]), never passed over.

#[cfg(target_os = "linux")]
mod linux;
mod macos;
#[cfg(target_os = "linux")]
mod syscalls;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Whether processes are confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As far as the system can.
    #[default]
    Auto,
    /// Fully, or they do not start.
    Require,
    /// Not at all.
    Off,
}

/// What a process may use, beside what every process needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Files that it may read, and folders that it may read from.
    pub read: Vec<PathBuf>,
    /// Folders of which it may read the names.
    pub list: Vec<PathBuf>,
    /// A folder in which it may do everything but run programs.
    pub scratch: Option<PathBuf>,
    /// The provider, if it needs devices of the machine.
    pub devices: Option<String>,
}

/// How far a process is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It has nothing but what it was allowed.
    Full,
    /// A part of the protection is missing.
    Reduced,
    /// It has the rights of the user.
    None,
}

/// What is in force for a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// How far it is confined.
    pub level: Level,
    /// What it is not kept from, and why.
    pub missing: Vec<String>,
    /// The provider whose devices it may use.
    pub exception: Option<String>,
}

/// What processes of this program get.
static CHOSEN: OnceLock<Mode> = OnceLock::new();

impl Mode {
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

    /// Chooses the mode for all processes that this one starts. Only the first choice counts.
    pub fn choose(self) {
        // Commands choose once, when they begin.
        let _ = CHOSEN.set(self);
    }

    /// The mode that was chosen.
    pub fn chosen() -> Self {
        CHOSEN.get().copied().unwrap_or_default()
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is none of auto, require, off"))
    }
}

impl Level {
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
    /// None.
    pub fn none(why: &str) -> Self {
        Self {
            level: Level::None,
            missing: vec![why.to_owned()],
            exception: None,
        }
    }

    /// One that lacks this.
    fn without(missing: Vec<String>, exception: Option<String>) -> Self {
        let level = if missing.is_empty() {
            Level::Full
        } else {
            Level::Reduced
        };
        Self {
            level,
            missing,
            exception,
        }
    }
}

/// `full`, `full, with the devices of qnn`, `reduced (…)`.
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

/// Confines this process. It must have one thread: others would keep their rights.
///
/// What is missing is an error with [`Mode::Require`].
pub fn enter(mode: Mode, allowed: &Allowed) -> Result<Sandbox, String> {
    if mode == Mode::Off {
        return Ok(Sandbox::none("it is switched off"));
    }
    let sandbox = confine(allowed);
    if mode == Mode::Require && sandbox.level != Level::Full {
        return Err(sandbox.missing.join("; "));
    }
    Ok(sandbox)
}

#[cfg(target_os = "linux")]
use linux::confine;

/// The parent has started it in the system's sandbox.
#[cfg(target_os = "macos")]
fn confine(allowed: &Allowed) -> Sandbox {
    Sandbox::without(Vec::new(), allowed.devices.clone())
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn confine(_: &Allowed) -> Sandbox {
    Sandbox::none("this system has no sandbox that pkgtool can use")
}

/// The command, as it is started where a process cannot confine itself.
pub fn wrapped(command: Command, mode: Mode, allowed: &Allowed) -> Command {
    if cfg!(target_os = "macos") && mode != Mode::Off {
        return macos::wrapped(&command, allowed);
    }
    command
}

/// Whether processes are confined by the command that starts them, so that what they may use must be known before.
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
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("on".parse::<Mode>().is_err());
    }
}
