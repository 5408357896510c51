//! From what the user names (a package, a config, a model file) to one method of one model file.
//!
//! Invariant: what is selected exists, is readable, and its external data is in its own folder.
//! Where a choice is open and a default would be a guess, the error lists what there is.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{self, ModelInfo, OpenError};
use crate::package::{
    Backend, Config, Discovery, FileRef, LoadFault, Loaded, MethodSignature, Methods, Roots,
    Variant, config, model_file, reference, roots,
};
use crate::source::json::JsonPath;
use crate::tensor::{Signature, SignatureError};

/// What the user chose beside the path; `None` leaves it open.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Precision of the variant.
    pub precision: Option<String>,
    /// Backend, where a directory holds packages for several.
    pub backend: Option<Backend>,
    /// Component of a multi-component variant.
    pub component: Option<String>,
    /// Method.
    pub method: Option<String>,
}

/// One method of one model file.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The variant of a package it belongs to; `None` for a model file named by itself.
    pub variant: Option<SelectedVariant>,
    /// The model file.
    pub model: PathBuf,
    /// What its header says.
    pub info: ModelInfo,
    /// The method's inputs and outputs.
    pub signature: Signature,
}

/// A variant of a package.
#[derive(Debug, Clone)]
pub struct SelectedVariant {
    /// The config.
    pub config: PathBuf,
    /// The package's name: its model token, with its size where it has one.
    pub package: String,
    /// The config's backend.
    pub backend: Option<Backend>,
    /// Precision token.
    pub precision: Option<String>,
    /// The component, in a multi-component variant.
    pub component: Option<String>,
    /// The variant's place in the config.
    pub path: JsonPath,
}

/// Why nothing was selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// Nothing to work on at the path.
    #[error("{0}")]
    Nothing(String),
    /// Anything else, in words that say what to do.
    #[error("{0}")]
    Refused(String),
    /// The file is no model that can be read.
    #[error("{} {error}", model.display())]
    Model {
        /// The file.
        model: PathBuf,
        /// Why not.
        error: OpenError,
    },
    /// The method takes or gives what is no tensor.
    #[error("{}: {error}", model.display())]
    Signature {
        /// The model file.
        model: PathBuf,
        /// What is no tensor.
        error: SignatureError,
    },
}

type Selected<T> = Result<T, SelectionError>;

/// A model file, its header read, and the methods to select from.
#[derive(Debug, Clone)]
pub struct ModelFile {
    variant: Option<SelectedVariant>,
    model: PathBuf,
    info: ModelInfo,
    declared: Vec<MethodSignature>,
}

impl ModelFile {
    /// Reads the header of `file`, which `variant` of the config at `path` names.
    pub fn of_variant(
        path: &Path,
        config: &Config,
        variant: &Variant,
        file: &FileRef,
    ) -> Selected<Self> {
        let directory = path.parent().unwrap_or(Path::new(""));
        let roots = Roots::new();
        let absolute = roots.absolute(directory);
        let depth = roots::depth_below(&absolute, &roots.package_root(&absolute));
        let model = match reference::resolve(directory, depth, &file.reference) {
            Ok(model) => model,
            Err(error) => return refused(path, &format!("`{}` {error}", file.reference)),
        };
        let selected = SelectedVariant {
            config: path.to_owned(),
            package: package_name(config, directory),
            backend: config.backend,
            precision: variant.precision.clone(),
            component: file.component.clone(),
            path: variant.path.clone(),
        };
        let declared = match &variant.methods {
            Methods::Absent => &[][..],
            Methods::Declared { groups, .. } => groups
                .iter()
                .find(|group| group.component == file.component)
                .map_or(&[][..], |group| &group.methods),
        };
        Self::open(model, Some(selected), declared.to_vec())
    }

    fn open(
        file: PathBuf,
        variant: Option<SelectedVariant>,
        declared: Vec<MethodSignature>,
    ) -> Selected<Self> {
        let info = match model::open(&file) {
            Ok((info, _)) => info,
            Err(error) => return Err(SelectionError::Model { model: file, error }),
        };
        check_external_data(&file, &info)?;
        if info.methods.is_empty() {
            let what = match info.format {
                "gguf" | "safetensors" => {
                    "holds tensors, and no method: nothing here runs it; `pkgtool inspect` shows what is in it"
                }
                _ if info.named.is_empty() => "has no methods",
                _ => "holds data for programs, and no method; name the program that it lies beside",
            };
            return refused(&file, what);
        }
        Ok(Self {
            variant,
            model: file,
            info,
            declared,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.model
    }

    /// What its header says.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The names of the methods that can be called, in the file's or the config's order.
    pub fn methods(&self) -> Vec<String> {
        let Self { info, declared, .. } = self;
        if info.names_methods {
            let callable = info.methods.iter().filter(|method| !method.constant);
            callable.map(|method| method.name.clone()).collect()
        } else if declared.is_empty() {
            vec![info.methods[0].name.clone()]
        } else {
            declared.iter().map(|method| method.name.clone()).collect()
        }
    }

    /// The method asked for; without a choice `forward`, or the only one.
    pub fn select(&self, method: Option<&str>) -> Selected<Selection> {
        let name = self.method_name(method)?;
        // An ONNX file has one graph, which answers to whatever method a config declares.
        let method = match self.info.method(&name) {
            Some(method) => method,
            None => &self.info.methods[0],
        };
        let mut declared = self.declared.iter();
        let declared = declared.find(|signature| signature.name == name);
        let signature =
            Signature::of(method, declared).map_err(|error| SelectionError::Signature {
                model: self.model.clone(),
                error,
            })?;
        Ok(Selection {
            variant: self.variant.clone(),
            model: self.model.clone(),
            info: self.info.clone(),
            signature: Signature {
                method: name,
                ..signature
            },
        })
    }

    fn method_name(&self, chosen: Option<&str>) -> Selected<String> {
        let names = self.methods();
        let Some(name) = chosen else {
            return match default_method(&names) {
                Some(name) => Ok(name.to_owned()),
                None => refused(
                    &self.model,
                    &format!(
                        "has several methods; choose one with --method: {}",
                        listed(&names)
                    ),
                ),
            };
        };
        let is_constant = self.info.names_methods && self.info.method(name).is_some();
        if is_constant || names.iter().any(|known| known == name) {
            return Ok(name.to_owned());
        }
        refused(
            &self.model,
            &format!("has no method `{name}`; it has {}", listed(&names)),
        )
    }
}

/// The method that is meant where none is named: `forward`, or the only one.
pub fn default_method(names: &[String]) -> Option<&str> {
    let forward = names.iter().find(|name| *name == "forward");
    match names {
        [only] => Some(only),
        _ => forward.map(String::as_str),
    }
}

/// Selects one method below `path`.
pub fn select(path: &Path, choice: &Choice) -> Selected<Selection> {
    if let Some((found, config)) = config_at(path, choice.backend)? {
        return in_config(&found, &config, choice);
    }
    for (what, chosen) in [
        ("precision", &choice.precision),
        ("component", &choice.component),
    ] {
        if let Some(chosen) = chosen {
            let reason = format!(
                "is a model file, not a package: it has no {what} to choose `{chosen}` from"
            );
            return refused(path, &reason);
        }
    }
    ModelFile::open(path.to_owned(), None, Vec::new())?.select(choice.method.as_deref())
}

/// Selects a link of a chain: a component of this name, or, of a model that is not divided into
/// components or of the chosen one, a method.
pub fn select_link(path: &Path, choice: &Choice, name: &str) -> Selected<Selection> {
    let mut choice = choice.clone();
    let config = config_at(path, choice.backend)?;
    let divided = match &config {
        Some((found, config)) => {
            let files = &variant_of(found, config, &choice)?.files;
            files.iter().any(|file| file.component.is_some())
        }
        None => false,
    };
    if divided && choice.component.is_none() {
        choice.component = Some(name.to_owned());
    } else {
        choice.method = Some(name.to_owned());
    }
    select(path, &choice)
}

/// The config that a path means, and where it is; none if it is a model file.
fn config_at(path: &Path, backend: Option<Backend>) -> Selected<Option<(PathBuf, Config)>> {
    let kind = fs::metadata(path)
        .map_err(|error| SelectionError::Refused(format!("{}: {error}", path.display())))?;
    if kind.is_dir() && !model_file::is_bundle(&path.to_string_lossy()) {
        let (found, config) = config_below(path, backend)?;
        return Ok(Some((found, config)));
    }
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(None);
    }
    let config = self::config(path)?;
    if let (Some(asked), Some(has)) = (backend, config.backend)
        && asked != has
    {
        return refused(path, &format!("is a package for {has}, not for {asked}"));
    }
    Ok(Some((path.to_owned(), config)))
}

/// The one config below a directory, for the backend if one is chosen. Of packages that differ only
/// in their backend the first in the specification's order is taken: it runs on most machines.
fn config_below(directory: &Path, backend: Option<Backend>) -> Selected<(PathBuf, Config)> {
    let backend: Vec<Backend> = backend.into_iter().collect();
    Ok(configs_below(directory, &backend)?.swap_remove(0))
}

/// The configs of one model below a directory, those for these backends if any are named, in the
/// specification's order of backends; at least one.
pub(super) fn configs_below(
    directory: &Path,
    backends: &[Backend],
) -> Selected<Vec<(PathBuf, Config)>> {
    let is_wanted = |backend: Option<Backend>| {
        backends.is_empty() || backend.is_some_and(|backend| backends.contains(&backend))
    };
    let mut configs = Vec::new();
    for found in Discovery::walk(&[directory.to_owned()]).found {
        let loaded = Loaded::read(&found.path);
        if found.is_config(&loaded) {
            let config = config_of(&found.path, &loaded)?;
            if is_wanted(config.backend) {
                configs.push((found.path, config));
            }
        }
    }
    let Some((_, first)) = configs.first() else {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        let wanted = if names.is_empty() {
            String::new()
        } else {
            format!(" for {}", names.join(" or "))
        };
        return Err(SelectionError::Nothing(format!(
            "{}: no package{wanted} is there (no {} in a directory named after a backend)",
            directory.display(),
            config::FILE_NAME
        )));
    };
    let identity = |config: &Config| (config.model.clone(), config.size.clone());
    let only = identity(first);
    if configs.iter().any(|(_, config)| identity(config) != only) {
        let paths: Vec<String> = configs
            .iter()
            .map(|(path, _)| format!("`{}`", path.display()))
            .collect();
        let reason = format!("holds several packages; name one of {}", paths.join(", "));
        return refused(directory, &reason);
    }
    let order = |config: &Config| {
        let place = |backend| Backend::ALL.iter().position(|known| *known == backend);
        config.backend.and_then(place).unwrap_or(usize::MAX)
    };
    configs.sort_by_key(|(_, config)| order(config));
    Ok(configs)
}

/// What the config at `path` says.
pub fn config(path: &Path) -> Selected<Config> {
    config_of(path, &Loaded::read(path))
}

fn config_of(path: &Path, loaded: &Loaded) -> Selected<Config> {
    let reason = match &loaded.document {
        Ok(document) => return Ok(Config::from_document(document)),
        Err(LoadFault::Unreadable(reason)) => format!("cannot be read: {reason}"),
        Err(LoadFault::TooLarge(size)) => format!("is no config: it has {size} bytes"),
        Err(LoadFault::Empty) => "is empty".to_owned(),
        Err(LoadFault::LfsPointer(_)) => {
            "is a Git LFS pointer, not the config; run `git lfs pull`".to_owned()
        }
        Err(LoadFault::Syntax(error)) => format!(
            "is not JSON: {}; `pkgtool validate` shows the place",
            error.message
        ),
    };
    refused(path, &reason)
}

fn in_config(path: &Path, config: &Config, choice: &Choice) -> Selected<Selection> {
    let variant = variant_of(path, config, choice)?;
    let file = file_of(path, variant, choice)?;
    ModelFile::of_variant(path, config, variant, file)?.select(choice.method.as_deref())
}

fn package_name(config: &Config, directory: &Path) -> String {
    let tokens = [config.model.as_deref(), config.size.as_deref()];
    let name = tokens.into_iter().flatten().collect::<Vec<_>>().join("_");
    if name.is_empty() {
        directory.display().to_string()
    } else {
        name
    }
}

fn tokens(config: &Config) -> Vec<String> {
    let variants = config.variants.iter();
    variants
        .filter_map(|variant| variant.precision.clone())
        .collect()
}

/// The variant of the chosen precision; without a choice the first in the config.
fn variant_of<'c>(path: &Path, config: &'c Config, choice: &Choice) -> Selected<&'c Variant> {
    let Some(precision) = &choice.precision else {
        let first = config.variants.first();
        return first.map_or_else(|| refused(path, "has no variants"), Ok);
    };
    let mut named = config
        .variants
        .iter()
        .filter(|variant| variant.precision.as_ref() == Some(precision));
    match (named.next(), named.next()) {
        (Some(variant), None) => Ok(variant),
        (Some(_), Some(_)) => refused(
            path,
            &format!(
                "has several variants of precision `{precision}`; name the model file instead"
            ),
        ),
        (None, _) => {
            let has = listed(&tokens(config));
            refused(
                path,
                &format!("has no variant of precision `{precision}`; it has {has}"),
            )
        }
    }
}

fn file_of<'v>(path: &Path, variant: &'v Variant, choice: &Choice) -> Selected<&'v FileRef> {
    let names: Vec<String> = variant
        .files
        .iter()
        .filter_map(|file| file.component.clone())
        .collect();
    match (&choice.component, &variant.files[..]) {
        (None, [only]) => Ok(only),
        (None, []) => refused(path, "has a variant without `file` and `components`"),
        (None, _) => refused(
            path,
            &format!(
                "has several components; choose one with --component, or several in turn with --chain: {}",
                listed(&names)
            ),
        ),
        (Some(wanted), files) => {
            let found = files
                .iter()
                .find(|file| file.component.as_ref() == Some(wanted));
            found.map_or_else(
                || {
                    let has = if names.is_empty() {
                        "no components".to_owned()
                    } else {
                        listed(&names)
                    };
                    refused(path, &format!("has no component `{wanted}`; it has {has}"))
                },
                Ok,
            )
        }
    }
}

/// Refuses data outside the model's folder before an engine could read it, links out of it
/// included.
fn check_external_data(model: &Path, info: &ModelInfo) -> Selected<()> {
    let directory = match model.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    for external in &info.external {
        if let Err(error) = external.locate(directory) {
            return refused(model, &error.to_string());
        }
    }
    Ok(())
}

fn listed(names: &[String]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}`{name}`");
    }
    text
}

fn refused<T>(path: &Path, reason: &str) -> Selected<T> {
    Err(SelectionError::Refused(format!(
        "{} {reason}",
        path.display()
    )))
}
