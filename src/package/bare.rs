//! Backends' directories that a walk met, and what they lack: a `config.json`.
//!
//! Invariant: only names are looked at. A directory without models and without a misspelt config is
//! nobody's package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use walkdir::DirEntry;

use super::discover::strip_current_dir;
use super::{Backend, config, model_file};

/// A backend's directory that has no `config.json`, but something that asks for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bare {
    /// The directory.
    pub directory: PathBuf,
    /// A file of a name that was meant for the config's.
    pub misnamed: Option<String>,
    /// Names of model files.
    pub models: Vec<String>,
}

/// Most model files that are named.
const MAX_MODELS: usize = 3;

/// The backends' directories of one walk.
pub(super) struct Homes {
    /// Whether the walk begins in one; its path may be `.`.
    begins_in_one: bool,
    seen: BTreeMap<PathBuf, Home>,
}

#[derive(Default)]
struct Home {
    has_config: bool,
    misnamed: Option<String>,
    models: Vec<String>,
}

impl Homes {
    pub(super) fn new(directory: &Path) -> Self {
        let real = directory.canonicalize();
        let name = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
        // A link is known by its own name, `.` and `..` by what they mean.
        let name = name(directory).or_else(|| name(&real.ok()?));
        Self {
            begins_in_one: is_backend(name.as_deref().and_then(|name| name.to_str())),
            seen: BTreeMap::new(),
        }
    }

    /// Takes an entry down; says whether it stands in a backend's directory.
    pub(super) fn look(&mut self, entry: &DirEntry) -> bool {
        if entry.depth() == 0 {
            return false;
        }
        let Some(parent) = entry.path().parent() else {
            return false;
        };
        let in_backend = match entry.depth() {
            1 => self.begins_in_one,
            _ => is_backend(parent.file_name().and_then(|name| name.to_str())),
        };
        if let (true, Some(name)) = (in_backend, entry.file_name().to_str()) {
            let is_model = model_file::has_extension(name);
            let misnamed = is_misnamed(name) && !entry.file_type().is_dir();
            if is_model || misnamed || name == config::FILE_NAME {
                let home = self.seen.entry(parent.to_owned()).or_default();
                home.has_config |= name == config::FILE_NAME;
                if misnamed && home.misnamed.is_none() {
                    home.misnamed = Some(name.to_owned());
                }
                if is_model && home.models.len() < MAX_MODELS {
                    home.models.push(name.to_owned());
                }
            }
        }
        in_backend
    }

    /// Those that lack a config.
    pub(super) fn bare(self) -> impl Iterator<Item = Bare> {
        let homes = self.seen.into_iter();
        homes
            .filter(|(_, home)| !home.has_config)
            .map(|(directory, home)| Bare {
                directory: strip_current_dir(&directory),
                misnamed: home.misnamed,
                models: home.models,
            })
    }
}

fn is_backend(name: Option<&str>) -> bool {
    name.is_some_and(|name| Backend::from_name(name).is_some())
}

/// Names that are written where `config.json` is meant. Other libraries have a `config.yaml`.
fn is_misnamed(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name != config::FILE_NAME
        && [
            config::FILE_NAME,
            "config.jsonc",
            "config.json5",
            "config.json.txt",
            "configs.json",
        ]
        .contains(&lower.as_str())
}
