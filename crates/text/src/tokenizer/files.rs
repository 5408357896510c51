//! Locates the tokenizer files of a package.
//!
//! Invariant: references stay within the package, like references to models. A file that the config
//! does not name is only looked for beside one that it names.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{TokenizerConfig, TokenizerError, config};
use pkgtool_base::package::{Config, Roots, reference, roots};

/// The files of a package's tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// `tokenizer_config.json`, if present.
    pub config: Option<PathBuf>,
}

impl TokenizerFiles {
    /// Resolves the files that the config at `path` names; returns `None` if it names no tokenizer.
    /// A settings file that the config does not name is looked for beside the tokenizer.
    pub fn of(path: &Path, package: &Config) -> Result<Option<Self>, TokenizerError> {
        let resolved = |key: &str| {
            let mut files = package.tokenizer_files.iter();
            let file =
                files.find(|file| file.path == pkgtool_base::source::JsonPath::root().key(key));
            let file = file.map(|file| resolve(path, key, &file.reference));
            file.transpose()
        };
        let Some(tokenizer) = resolved("tokenizer")? else {
            return Ok(None);
        };
        let config = match resolved("tokenizer_config")? {
            Some(config) => Some(config),
            None => beside(&tokenizer),
        };
        Ok(Some(Self { tokenizer, config }))
    }

    /// Returns a tokenizer's file, with the settings beside it.
    pub fn beside(tokenizer: PathBuf) -> Self {
        let config = beside(&tokenizer);
        Self { tokenizer, config }
    }

    /// Returns the folders of the package's files: of the tokenizer, of its settings, and of the
    /// model.
    pub fn directories(&self, package: &Path, model: &Path) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = Vec::new();
        for file in [&self.tokenizer, package, model] {
            let directory = file.parent().unwrap_or(Path::new("")).to_owned();
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        directories
    }

    /// Reads the settings; returns empty ones if the file is missing.
    pub fn read_config(&self) -> Result<TokenizerConfig, TokenizerError> {
        let config = self.config.as_deref().map(TokenizerConfig::read);
        Ok(config.transpose()?.unwrap_or_default())
    }
}

fn resolve(path: &Path, key: &str, reference: &str) -> Result<PathBuf, TokenizerError> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let roots = Roots::new();
    let absolute = roots.absolute(directory);
    let depth = roots::depth_below(&absolute, &roots.package_root(&absolute));
    reference::resolve(directory, depth, reference).map_err(|error| TokenizerError::Reference {
        config: path.to_owned(),
        key: key.to_owned(),
        reference: reference.to_owned(),
        reason: error.to_string(),
    })
}

/// Returns a settings file with the usual name beside the tokenizer, if present.
fn beside(tokenizer: &Path) -> Option<PathBuf> {
    let beside = tokenizer.with_file_name(config::FILE_NAME);
    beside.is_file().then_some(beside)
}
