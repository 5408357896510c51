//! Backend directories with a missing or misnamed config, collected while a directory tree is
//! walked.
//!
//! Discovery reports them, and the rules `config-missing` and `config-name` turn them into
//! findings. Invariant: only names are inspected. A directory without models and without a misnamed
//! config is not a package.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use walkdir::DirEntry;

use super::walked::{WalkRecord, strip_current_dir};
use super::{Backend, config, model_file};

/// A backend directory without a `config.json`, or with a misnamed copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareDirectory {
    /// The directory.
    pub directory: PathBuf,
    /// A file whose name was meant to be `config.json`.
    pub misnamed: Option<String>,
    /// True if a `config.json` exists.
    pub has_config: bool,
    /// Names of model files.
    pub models: Vec<String>,
}

impl BareDirectory {
    /// Returns the name of the misnamed or missing file.
    pub fn file_name(&self) -> &str {
        match &self.misnamed {
            Some(name) if self.has_config => name,
            _ => config::FILE_NAME,
        }
    }
}

/// Maximum number of model files named in a finding.
const MAX_MODELS: usize = 3;

/// The directories of one walk that contain models, configs or misnamed configs.
pub(super) struct BackendDirectories {
    /// True if the walk begins in a backend directory; its path may be `.`.
    begins_in_one: bool,
    seen: HashMap<OsString, DirectoryState>,
    /// Model files whose names are not valid UTF-8, so that no config can name them.
    nameless: Vec<PathBuf>,
}

#[derive(Default)]
struct DirectoryState {
    in_backend: bool,
    has_config: bool,
    misnamed: Option<String>,
    models: Vec<String>,
}

impl DirectoryState {
    fn take(&mut self, name: &str, is_config: bool, is_model: bool, entry: &DirEntry) {
        if is_config {
            self.has_config = true;
        } else if is_model {
            self.models.push(name.to_owned());
        } else if self.misnamed.is_none() && !entry.file_type().is_dir() {
            self.misnamed = Some(name.to_owned());
        }
    }

    fn is_faulty(&self) -> bool {
        let has_models = || self.models.iter().any(|name| !model_file::is_shadow(name));
        self.in_backend && (self.misnamed.is_some() || !self.has_config && has_models())
    }
}

impl BackendDirectories {
    pub(super) fn new(directory: &Path) -> Self {
        let real = directory.canonicalize();
        let name = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
        // A link counts by its own name; `.` and `..` count by the directory they stand for.
        let name = name(directory).or_else(|| name(&real.ok()?));
        Self {
            begins_in_one: is_backend(name.as_deref().and_then(|name| name.to_str())),
            seen: HashMap::new(),
            nameless: Vec::new(),
        }
    }

    /// Records an entry and returns whether it is in a backend directory, if its name is relevant.
    /// Called for every file of a walk, so it tests the name first.
    pub(super) fn record(&mut self, entry: &DirEntry, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            if model_file::has_extension(&name.to_string_lossy()) {
                self.nameless.push(strip_current_dir(entry.path()));
            }
            return false;
        };
        let is_config = name == config::FILE_NAME;
        let is_model = !is_config && model_file::has_extension(name);
        let is_misnamed = !is_config && !is_model && is_misnamed(name);
        if entry.depth() == 0 || !(is_config || is_model || is_misnamed) {
            return false;
        }
        let Some(parent) = entry.path().parent() else {
            return false;
        };
        let in_backend = match entry.depth() {
            1 => self.begins_in_one,
            _ => is_backend(parent.file_name().and_then(|name| name.to_str())),
        };
        if in_backend || is_model {
            if !self.seen.contains_key(parent.as_os_str()) {
                self.seen.insert(parent.into(), DirectoryState::default());
            }
            if let Some(home) = self.seen.get_mut(parent.as_os_str()) {
                home.in_backend = in_backend;
                home.take(name, is_config, is_model, entry);
            }
        }
        in_backend
    }

    /// Takes the model files that no config can name.
    pub(super) fn take_nameless(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.nameless)
    }

    /// Returns the backend directories without a proper config. The names of all models are added
    /// to `walked`.
    pub(super) fn finish(self, walked: &mut WalkRecord) -> Vec<BareDirectory> {
        let mut bare = Vec::new();
        for (directory, home) in self.seen {
            let directory = strip_current_dir(Path::new(&directory));
            if home.is_faulty() {
                let models = home
                    .models
                    .iter()
                    .filter(|name| !model_file::is_shadow(name));
                bare.push(BareDirectory {
                    directory: directory.clone(),
                    misnamed: home.misnamed,
                    has_config: home.has_config,
                    models: models.take(MAX_MODELS).cloned().collect(),
                });
            }
            if !home.models.is_empty() {
                walked.add_models(directory, home.models);
            }
        }
        bare.sort_by(|a, b| a.directory.cmp(&b.directory));
        bare
    }
}

fn is_backend(name: Option<&str>) -> bool {
    name.is_some_and(|name| Backend::from_name(name).is_some())
}

/// Returns whether a name was meant to be `config.json`. `config.yaml` belongs to other libraries.
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
        || is_copy(&lower)
}

/// Returns whether a lower-case name is that of a copy of `config.json`:
/// `config (1).json`, `config - copy.json`, `copy of config.json`, `config.json.bak`.
fn is_copy(lower: &str) -> bool {
    let behind = lower.strip_prefix("config.json");
    if behind.is_some_and(|rest| [".bak", ".orig", ".old", "~"].contains(&rest)) {
        return true;
    }
    let stem = lower.strip_suffix(".json");
    let Some(rest) = stem.and_then(|stem| {
        stem.strip_prefix("copy of ")
            .unwrap_or(stem)
            .strip_prefix("config")
    }) else {
        return false;
    };
    let word = rest.trim_matches([' ', '-', '_', '(', ')']);
    let word = word.strip_prefix("copy").unwrap_or(word).trim_start();
    let is_numbered = rest.contains('(') || rest.contains("copy") || lower.starts_with("copy of ");
    is_numbered && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_misnamed;

    #[test]
    fn copies_are_told_by_their_names() {
        for name in [
            "config (1).json",
            "config(2).json",
            "config copy.json",
            "config copy 2.json",
            "config - Copy.json",
            "Copy of config.json",
            "config.json.bak",
            "Config.json",
        ] {
            assert!(is_misnamed(name), "{name}");
        }
        for name in [
            "config.json",
            "config_sentence_transformers.json",
            "tokenizer_config.json",
            "config_2.json",
            "config (fp16).json",
            "copy.json",
        ] {
            assert!(!is_misnamed(name), "{name}");
        }
    }
}
