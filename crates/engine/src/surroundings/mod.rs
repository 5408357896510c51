//! The surroundings of a search for native libraries: environment variables, well-known
//! directories, and the system's names for libraries.
//!
//! `python.rs` finds the package directories of Python environments.
//!
//! Invariant: only [`Surroundings::of_this_process`] reads the process environment, so tests can
//! describe any machine. Runs no program.

pub(super) mod python;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::RequiredFiles;

/// Variables that may name directories with libraries.
const VARIABLES: &[&str] = &[
    "APPDATA",
    "CONDA_PREFIX",
    "DYLD_LIBRARY_PATH",
    "HOME",
    "LD_LIBRARY_PATH",
    "LOCALAPPDATA",
    "ORT_DYLIB_PATH",
    "PATH",
    "PKGTOOL_DATA_DIR",
    "PKGTOOL_EXECUTORCH_DIR",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "PYTHONPATH",
    "USERPROFILE",
    "VIRTUAL_ENV",
    "XDG_DATA_HOME",
];

/// A machine as a search sees it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// `linux`, `macos`, `windows`, as in [`std::env::consts::OS`].
    pub os: String,
    /// Environment variables.
    pub variables: BTreeMap<String, OsString>,
    /// The directory of the running program.
    pub program: Option<PathBuf>,
    /// Directories in which the system keeps libraries.
    pub system: Vec<PathBuf>,
    /// Directories of Python packages outside of environments, such as the system's own.
    pub packages: Vec<PathBuf>,
}

/// The surroundings that the parent of this process sent.
static SENT_BY_PARENT: OnceLock<Surroundings> = OnceLock::new();

impl Surroundings {
    /// Sets the surroundings of this process, whose own environment is empty. Only the first call
    /// counts.
    pub fn set_for_process(self) {
        // The parent sends them once, at the start.
        let _ = SENT_BY_PARENT.set(self);
    }

    /// Returns the surroundings of this process.
    pub fn of_this_process() -> Self {
        SENT_BY_PARENT
            .get()
            .cloned()
            .unwrap_or_else(Self::read_process)
    }

    fn read_process() -> Self {
        let set = |name: &&str| Some(((*name).to_owned(), env::var_os(name)?));
        let program = env::current_exe().ok();
        let architecture = env::consts::ARCH;
        let system = [
            "/usr/local/lib".to_owned(),
            "/opt/homebrew/lib".to_owned(),
            "/usr/lib".to_owned(),
            "/usr/lib64".to_owned(),
            format!("/usr/lib/{architecture}-linux-gnu"),
            format!("/lib/{architecture}-linux-gnu"),
        ];
        Self {
            os: env::consts::OS.to_owned(),
            variables: VARIABLES.iter().filter_map(set).collect(),
            program: program.and_then(|program| Some(program.parent()?.to_owned())),
            system: system.into_iter().map(PathBuf::from).collect(),
            packages: vec![PathBuf::from("/usr/lib/python3/dist-packages")],
        }
    }

    /// Returns a variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// Returns the absolute directory that a variable names.
    pub(super) fn directory(&self, name: &str) -> Option<PathBuf> {
        self.variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// Returns the absolute directories of a variable that lists several.
    pub(super) fn directories(&self, name: &str) -> Vec<PathBuf> {
        let list = self.variable(name).map(env::split_paths);
        list.into_iter()
            .flatten()
            .filter(|path| path.is_absolute())
            .collect()
    }

    /// Returns the user's home directory.
    pub fn home(&self) -> Option<PathBuf> {
        self.directory("HOME")
            .or_else(|| self.directory("USERPROFILE"))
    }

    /// Returns the folder for this tool's own libraries: `lib` in its data directory.
    pub fn own_libraries(&self) -> Option<PathBuf> {
        if let Some(data) = self.directory("PKGTOOL_DATA_DIR") {
            return Some(data.join("lib"));
        }
        let data = match self.os.as_str() {
            "windows" => self.directory("LOCALAPPDATA"),
            "macos" => self
                .home()
                .map(|home| home.join("Library/Application Support")),
            _ => self
                .directory("XDG_DATA_HOME")
                .or_else(|| self.home().map(|home| home.join(".local/share"))),
        };
        data.map(|data| data.join("pkgtool").join("lib"))
    }

    /// Returns the directories that may hold a library next to the running program.
    pub(super) fn program_directories(&self) -> Vec<PathBuf> {
        let Some(program) = &self.program else {
            return Vec::new();
        };
        let mut all = vec![program.clone(), program.join("lib")];
        all.extend(program.parent().map(|prefix| prefix.join("lib")));
        all
    }

    /// Returns the directories in which the system looks for libraries.
    pub(super) fn library_path(&self) -> Vec<PathBuf> {
        let variable = match self.os.as_str() {
            "windows" => "PATH",
            "macos" => "DYLD_LIBRARY_PATH",
            _ => "LD_LIBRARY_PATH",
        };
        let mut all = self.directories(variable);
        all.extend(self.system.iter().cloned());
        all
    }

    /// Returns the files that loading libraries of these folders reads: the libraries there, and
    /// the system's own.
    pub(super) fn needs<'p>(&self, folders: impl IntoIterator<Item = &'p Path>) -> RequiredFiles {
        let mut needs = RequiredFiles {
            read: self.library_path(),
            list: Vec::new(),
        };
        for folder in folders.into_iter().flat_map(with_bundled) {
            let is_known = needs.list.contains(&folder) || needs.read.contains(&folder);
            if !is_known {
                let found = sorted_entries(&folder).into_iter();
                needs.read.extend(found.filter(|path| is_library(path)));
                needs.list.push(folder);
            }
        }
        needs
    }

    /// Returns the file name of a library on this system, such as `lib<name>.so`.
    pub(super) fn library_name(&self, name: &str) -> String {
        match self.os.as_str() {
            "windows" => format!("{name}.dll"),
            "macos" => format!("lib{name}.dylib"),
            _ => format!("lib{name}.so"),
        }
    }
}

/// Returns a folder of libraries with the folders where Python packages bundle their dependencies:
/// `NAME.libs` next to `NAME`.
fn with_bundled(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    for package in folder.ancestors().take(2) {
        if let Some(name) = package.file_name() {
            let mut name = name.to_owned();
            name.push(".libs");
            all.push(package.with_file_name(name));
        }
    }
    all
}

/// Returns `true` if a file name is that of a library of any system, with or without a version.
fn is_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let mut parts = name.unwrap_or_default().split('.').skip(1);
    parts.any(|part| ["dll", "dylib", "so"].contains(&part))
}

/// Returns a directory and its subdirectories: each may be the target of `pip install --target`.
pub(super) fn with_subdirectories(directory: &Path) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    all.extend(
        sorted_entries(directory)
            .into_iter()
            .filter(|path| path.is_dir()),
    );
    all
}

/// Lists a directory, sorted; empty if it cannot be listed.
pub(super) fn sorted_entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    // Names compare much faster than paths.
    let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names.iter().map(|name| directory.join(name)).collect()
}
