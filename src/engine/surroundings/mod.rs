//! What the search for libraries looks at: environment variables, well-known directories, the
//! system's way to name libraries.
//!
//! `python.rs` knows where Python environments keep packages. Invariant: nothing here is asked of the
//! process but in [`Surroundings::of_this_process`], so that a test can make up a machine. Runs no
//! program.

pub(super) mod python;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::Needs;

/// Variables that say where libraries may be.
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

/// The machine as a search sees it.
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
    /// Directories of Python packages that belong to no environment, as a system's own.
    pub packages: Vec<PathBuf>,
}

/// The surroundings that the parent of this process has sent.
static GIVEN: OnceLock<Surroundings> = OnceLock::new();

impl Surroundings {
    /// Makes these the surroundings of this process, whose own environment is empty. Only the first count.
    pub fn give(self) {
        // The parent sends them once, at the start.
        let _ = GIVEN.set(self);
    }

    /// Those of this process.
    pub fn of_this_process() -> Self {
        GIVEN.get().cloned().unwrap_or_else(Self::look)
    }

    fn look() -> Self {
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

    /// A variable that is set to something.
    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// The absolute directory a variable names.
    pub(super) fn directory(&self, name: &str) -> Option<PathBuf> {
        self.variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// The absolute directories of a variable that lists several.
    pub(super) fn directories(&self, name: &str) -> Vec<PathBuf> {
        let list = self.variable(name).map(env::split_paths);
        list.into_iter()
            .flatten()
            .filter(|path| path.is_absolute())
            .collect()
    }

    /// The user's home directory.
    pub fn home(&self) -> Option<PathBuf> {
        self.directory("HOME")
            .or_else(|| self.directory("USERPROFILE"))
    }

    /// Where this tool keeps libraries of its own: `lib` in its data directory.
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

    /// The directories that may hold a library next to the running program.
    pub(super) fn beside_program(&self) -> Vec<PathBuf> {
        let Some(program) = &self.program else {
            return Vec::new();
        };
        let mut all = vec![program.clone(), program.join("lib")];
        all.extend(program.parent().map(|prefix| prefix.join("lib")));
        all
    }

    /// The directories in which the system looks for libraries.
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

    /// The files that loading libraries of these folders reads: the libraries there, and the system's own.
    pub(super) fn needs<'p>(&self, folders: impl IntoIterator<Item = &'p Path>) -> Needs {
        let mut needs = Needs {
            read: self.library_path(),
            list: Vec::new(),
        };
        for folder in folders.into_iter().flat_map(with_bundled) {
            let is_known = needs.list.contains(&folder) || needs.read.contains(&folder);
            if !is_known {
                let found = entries(&folder).into_iter();
                needs.read.extend(found.filter(|path| is_library(path)));
                needs.list.push(folder);
            }
        }
        needs
    }

    /// The file name of a library: `lib<name>.so` and its likes.
    pub(super) fn library_name(&self, name: &str) -> String {
        match self.os.as_str() {
            "windows" => format!("{name}.dll"),
            "macos" => format!("lib{name}.dylib"),
            _ => format!("lib{name}.so"),
        }
    }
}

/// A folder of libraries, and those where Python packages keep what such libraries need: `NAME.libs` beside `NAME`.
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

/// Whether a file is named like a library of any system, with or without a version.
fn is_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let mut parts = name.unwrap_or_default().split('.').skip(1);
    parts.any(|part| ["dll", "dylib", "so"].contains(&part))
}

/// A directory and those in it: each may be the target of `pip install --target`.
pub(super) fn with_folders(directory: &Path) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    all.extend(entries(directory).into_iter().filter(|path| path.is_dir()));
    all
}

/// What a directory holds, sorted; nothing if it cannot be listed.
pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
