//! Configs for directories of model files: what each field is, and what it was inferred from.
//!
//! Invariant: a plan writes nothing. Every value comes with its evidence, every field that is required and not
//! known is named; what is only likely is a guess, and taken only where the caller says so.

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

use crate::diagnostic::{Report, Severity};
use crate::package::{
    Backend, Loaded, PrecisionList, Roots, Skipped, model_file, precision as list,
};
use crate::policy::Policy;
use home::Wish;
use sketch::Sketch;

pub use capability::CAPABILITIES;
pub use home::PassedOver;

/// What to write configs for, and what is known already.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A backend's directory, or a tree with several.
    pub directory: PathBuf,
    /// Whether configs that are there are written anew.
    pub force: bool,
    /// Whether guesses are taken.
    pub accept_guesses: bool,
    /// A precision list that replaces all others.
    pub precisions: Option<PathBuf>,
    /// What the author says.
    pub given: Given,
}

/// What an author says of a model.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The model token.
    pub model: Option<String>,
    /// The family.
    pub family: Option<String>,
    /// The size token.
    pub size: Option<String>,
    /// Capabilities; none if they are to be proposed.
    pub capabilities: Vec<String>,
    /// The licence.
    pub license: Option<String>,
    /// The backend: only its directories, and that of a directory of another name.
    pub backend: Option<Backend>,
    /// Precision tokens by file name.
    pub precisions: BTreeMap<String, String>,
    /// The precision of every file of which nothing else says it.
    pub precision: Option<String>,
}

/// The configs to be written.
#[derive(Debug, Default)]
pub struct Plan {
    /// One for each directory.
    pub drafts: Vec<Draft>,
    /// Directories with models that get none.
    pub passed_over: Vec<PassedOver>,
}

/// A config to be written.
#[derive(Debug)]
pub struct Draft {
    /// Its path.
    pub path: PathBuf,
    /// The path as reports show it.
    pub shown: String,
    /// What it says and why, in the order of the text.
    pub fields: Vec<Field>,
    /// What has to be said before it can be written.
    pub missing: Vec<Missing>,
    /// What else should be known.
    pub remarks: Vec<String>,
    /// The text; `None` while something is missing.
    pub text: Option<String>,
    /// What validation finds in the text.
    pub report: Report,
}

/// A value and what it was inferred from.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// JSON Pointer into the config.
    pub pointer: String,
    /// The value; of methods only their names.
    pub value: Json,
    /// What says so.
    pub evidence: String,
    /// Whether it is only likely.
    pub guess: bool,
}

/// A field that is required and not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub need: Need,
    /// Why it is not known.
    pub why: String,
    /// What is likely.
    pub proposal: Option<String>,
}

/// Something that an author has to say.
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

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be had.
    #[error("{path}: {error}", path = .path.display())]
    NoSuchDirectory {
        /// The path.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is named.
    #[error("{path}: not a directory; a config stands beside its model files: name their directory", path = .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// There is no model file.
    #[error(
        "no model files in {path}: looked for {extensions}; a package has them in a directory named after its \
         backend{more}",
        path = .path.display(), extensions = model_file::extensions(), more = passed_over(.skipped)
    )]
    NoModels {
        /// The directory.
        path: PathBuf,
        /// What was not looked at, or into.
        skipped: Vec<Skipped>,
    },
    /// A precision list cannot be used.
    #[error("{path}: not a usable precision list; check it with `pkgtool validate {path}`", path = .path.display())]
    Precisions {
        /// The list.
        path: PathBuf,
    },
    /// A precision is given that the list does not have.
    #[error("`{token}` is not in the precision list; it has: {known}")]
    UnknownPrecision {
        /// The token.
        token: String,
        /// The list's tokens.
        known: String,
    },
    /// A precision is given for a file that is not there.
    #[error("a precision is given for `{name}`, but no model file has that name")]
    UnknownFile {
        /// The name.
        name: String,
    },
}

impl Need {
    /// The option of the command line that says it.
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

    /// The field's name.
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

impl Draft {
    /// Whether validation finds errors in it. Then it is not to be written.
    pub fn has_errors(&self) -> bool {
        let mut diagnostics = self.report.diagnostics.iter();
        diagnostics.any(|one| one.severity == Severity::Error)
    }
}

/// Plans the configs of all directories with model files below `options.directory`, as far as the project's settings
/// do not leave them out.
pub fn plan(options: &Options, policy: &Policy) -> Result<Plan, Error> {
    let path = &options.directory;
    let metadata = path.metadata().map_err(|error| Error::NoSuchDirectory {
        path: path.clone(),
        error,
    })?;
    if !metadata.is_dir() {
        return Err(Error::NotADirectory { path: path.clone() });
    }
    let roots = Roots::new();
    let wish = Wish {
        directory: path,
        backend: options.given.backend,
        force: options.force,
    };
    let home::Search {
        homes,
        passed_over,
        skipped,
    } = home::find(&wish, policy, &roots);
    if homes.is_empty() && passed_over.is_empty() {
        return Err(Error::NoModels {
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
    Ok(Plan {
        drafts: drafts.collect(),
        passed_over,
    })
}

/// What was not looked at, in words, and why the first of it was not.
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
    format!("; {path} was passed over ({}){others}", first.reason)
}

/// Whether what was said of precisions can be meant.
fn check_given(sketches: &[Sketch], passed: &[PassedOver], options: &Options) -> Result<(), Error> {
    let given = &options.given;
    let tokens = given.precisions.values().chain(&given.precision);
    for token in tokens {
        if let Some(sketch) = sketches.iter().find(|sketch| !sketch.list.contains(token)) {
            let known: Vec<&str> = sketch.list.tokens().collect();
            return Err(Error::UnknownPrecision {
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
        Some(name) => Err(Error::UnknownFile { name: name.clone() }),
        None => Ok(()),
    }
}

fn nearest_list(home: &home::Home, roots: &Roots) -> Result<PrecisionList, Error> {
    let mut places = roots.list_places(&home.absolute, &home.root, None);
    let path = places.find_map(|place| {
        let path = place.join(list::FILE_NAME);
        path.symlink_metadata().is_ok().then_some(path)
    });
    path.map_or_else(|| Ok(PrecisionList::embedded()), |path| read_list(&path))
}

fn read_list(path: &Path) -> Result<PrecisionList, Error> {
    let unusable = || Error::Precisions {
        path: path.to_owned(),
    };
    let loaded = Loaded::read(path);
    let document = loaded.document.as_ref().map_err(|_| unusable())?;
    let list = PrecisionList::from_document(document);
    if list.tokens().next().is_none() {
        return Err(unusable());
    }
    Ok(list)
}
