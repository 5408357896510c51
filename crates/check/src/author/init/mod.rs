//! `pkgtool init`: plans configs for directories of model files, and the evidence for each field.
//!
//! Invariant: planning writes nothing. Every value has evidence, and every unknown required field
//! is listed as missing. A value that is only likely is a guess, used only if the caller accepts
//! guesses.

mod arrange;
mod beside;
mod capability;
mod draft;
mod file;
mod home;
mod kept;
mod license;
mod names;
mod precision;
mod sketch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::policy::Policy;
use home::InitRequest;
use pkgtool_base::diagnostic::{Report, Severity};
use pkgtool_base::package::{
    Backend, LoadedFile, PrecisionList, Roots, Skipped, model_file, precision as list,
};
use sketch::Sketch;

pub use capability::CAPABILITIES;
pub use home::SkippedDirectory;

/// The directory to write configs for, and the facts already known.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// A backend directory, or a tree with several.
    pub directory: PathBuf,
    /// Replace existing configs.
    pub force: bool,
    /// Accept guesses.
    pub accept_guesses: bool,
    /// A precision list that replaces all other lists.
    pub precisions: Option<PathBuf>,
    /// The values given by the author.
    pub given: Given,
}

/// Values given by the author.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The model token.
    pub model: Option<String>,
    /// The family.
    pub family: Option<String>,
    /// The size token.
    pub size: Option<String>,
    /// Capabilities; empty to let `init` propose them.
    pub capabilities: Vec<String>,
    /// The licence.
    pub license: Option<String>,
    /// The backend: selects its directories, and applies to a directory with another name.
    pub backend: Option<Backend>,
    /// Precision tokens by file name.
    pub precisions: BTreeMap<String, String>,
    /// The precision of every file without other evidence.
    pub precision: Option<String>,
}

/// The planned configs.
#[derive(Debug, Default)]
pub struct InitPlan {
    /// One draft for each directory.
    pub drafts: Vec<ConfigDraft>,
    /// Directories with models that get no config.
    pub passed_over: Vec<SkippedDirectory>,
}

/// A planned config.
#[derive(Debug)]
pub struct ConfigDraft {
    /// The path of the config.
    pub path: PathBuf,
    /// The path as reports show it.
    pub shown: String,
    /// Its fields with their evidence, in the order of the text.
    pub fields: Vec<DraftField>,
    /// Required fields that are unknown.
    pub missing: Vec<Missing>,
    /// Additional remarks.
    pub remarks: Vec<String>,
    /// The text; `None` while a field is missing.
    pub text: Option<String>,
    /// The findings of validation.
    pub report: Report,
}

/// A value and its evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftField {
    /// JSON Pointer into the config.
    pub pointer: String,
    /// The value; for methods, only their names.
    pub value: Json,
    /// The evidence.
    pub evidence: String,
    /// True if the value is only likely.
    pub guess: bool,
}

/// A required field that is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The field.
    pub need: Need,
    /// The reason why it is unknown.
    pub why: String,
    /// A likely value.
    pub proposal: Option<String>,
}

/// A value that the author has to give.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// `model`.
    Model,
    /// `family`.
    Family,
    /// `capabilities`.
    Capabilities,
    /// `backend`.
    Backend,
    /// `license`.
    License,
    /// The precision of the file of this name.
    Precision(String),
}

/// The reason why planning failed.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The directory cannot be accessed.
    #[error("{path}: {error}", path = .path.display())]
    NoSuchDirectory {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// The path is a file.
    #[error("{path}: not a directory; a config belongs beside its model files: give their directory", path = .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// No model files were found.
    #[error(
        "no model files in {path}: looked for {extensions}; a package keeps them in a directory named after its \
         backend{more}",
        path = .path.display(), extensions = model_file::extensions(), more = passed_over(.skipped)
    )]
    NoModels {
        /// The directory.
        path: PathBuf,
        /// Skipped files and directories.
        skipped: Vec<Skipped>,
    },
    /// A precision list is unusable.
    #[error("{path}: not a usable precision list; check it with `pkgtool validate {path}`", path = .path.display())]
    Precisions {
        /// The list.
        path: PathBuf,
    },
    /// A given precision is not in the precision list.
    #[error("`{token}` is not in the precision list; it has: {known}")]
    UnknownPrecision {
        /// The token.
        token: String,
        /// The list's tokens.
        known: String,
    },
    /// A precision is given for a file that does not exist.
    #[error("a precision is given for `{name}`, but no model file has that name")]
    UnknownFile {
        /// The name.
        name: String,
    },
}

impl Need {
    /// Returns the command-line option that supplies it.
    pub fn flag(&self) -> String {
        match self {
            Self::Model => "--model NAME".to_owned(),
            Self::Family => "--family NAME".to_owned(),
            Self::Capabilities => "--capability NAME".to_owned(),
            Self::Backend => "--backend NAME".to_owned(),
            Self::License => "--license NAME".to_owned(),
            Self::Precision(file) => format!("--precision {file}=TOKEN"),
        }
    }

    /// Returns the field's name.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Family => "family",
            Self::Capabilities => "capabilities",
            Self::Backend => "backend",
            Self::License => "license",
            Self::Precision(_) => "precision",
        }
    }
}

impl ConfigDraft {
    /// Returns whether validation found errors. Such a draft must not be written.
    pub fn has_errors(&self) -> bool {
        let mut diagnostics = self.report.diagnostics.iter();
        diagnostics.any(|one| one.severity == Severity::Error)
    }
}

/// Plans the configs of all directories with model files below `options.directory`, except those
/// that the project's settings exclude.
pub fn plan(options: &InitOptions, policy: &Policy) -> Result<InitPlan, InitError> {
    let path = &options.directory;
    let metadata = path
        .metadata()
        .map_err(|error| InitError::NoSuchDirectory {
            path: path.clone(),
            error,
        })?;
    if !metadata.is_dir() {
        return Err(InitError::NotADirectory { path: path.clone() });
    }
    let roots = Roots::new();
    let wish = InitRequest {
        directory: path,
        backend: options.given.backend,
        force: options.force,
    };
    let home::SearchResult {
        homes,
        passed_over,
        skipped,
    } = home::find(&wish, policy, &roots);
    if homes.is_empty() && passed_over.is_empty() {
        return Err(InitError::NoModels {
            path: path.clone(),
            skipped,
        });
    }
    let given = match &options.precisions {
        Some(path) => Some(read_list(path)?),
        None => None,
    };
    let mut sketches = Vec::new();
    for home in homes {
        let list = given
            .clone()
            .map_or_else(|| nearest_list(&home, &roots), Ok)?;
        let list = list.with(&policy.extra_precisions(&home.absolute));
        sketches.push(Sketch::draw(home, list, options, &roots));
    }
    check_given(&sketches, &passed_over, options)?;
    sketch::agree(&mut sketches);
    let drafts = sketches.into_iter();
    let drafts = drafts.map(|sketch| draft::compose(&sketch, options, policy, &roots));
    Ok(InitPlan {
        drafts: drafts.collect(),
        passed_over,
    })
}

/// Summarizes the skipped paths, with the reason for the first one.
fn passed_over(skipped: &[Skipped]) -> String {
    let Some(first) = skipped.first() else {
        return String::new();
    };
    let others = match skipped.len() - 1 {
        0 => String::new(),
        1 => "; so was another path".to_owned(),
        n => format!("; so were {n} other paths"),
    };
    let path = first.path.display();
    format!("; {path} was skipped ({}){others}", first.reason)
}

/// Rejects given precisions with unknown tokens or for unknown files.
fn check_given(
    sketches: &[Sketch],
    passed: &[SkippedDirectory],
    options: &InitOptions,
) -> Result<(), InitError> {
    let given = &options.given;
    let tokens = given.precisions.values().chain(&given.precision);
    for token in tokens {
        if let Some(sketch) = sketches.iter().find(|sketch| !sketch.list.contains(token)) {
            let known: Vec<&str> = sketch.list.tokens().collect();
            return Err(InitError::UnknownPrecision {
                token: token.clone(),
                known: known.join(", "),
            });
        }
    }
    let has = |name: &String| {
        sketches
            .iter()
            .any(|sketch| sketch.home.files.contains(name))
    };
    match given
        .precisions
        .keys()
        .find(|name| passed.is_empty() && !has(name))
    {
        Some(name) => Err(InitError::UnknownFile { name: name.clone() }),
        None => Ok(()),
    }
}

fn nearest_list(home: &home::ModelDirectory, roots: &Roots) -> Result<PrecisionList, InitError> {
    let mut places = roots.list_places(&home.absolute, &home.root, None);
    let path = places.find_map(|place| {
        let path = place.join(list::FILE_NAME);
        path.symlink_metadata().is_ok().then_some(path)
    });
    path.map_or_else(|| Ok(PrecisionList::embedded()), |path| read_list(&path))
}

fn read_list(path: &Path) -> Result<PrecisionList, InitError> {
    let unusable = || InitError::Precisions {
        path: path.to_owned(),
    };
    let loaded = LoadedFile::read(path);
    let document = loaded.document.as_ref().map_err(|_| unusable())?;
    let list = PrecisionList::from_document(document);
    if list.tokens().next().is_none() {
        return Err(unusable());
    }
    Ok(list)
}
