//! Resolves a path given by the user (a package, config or model file) to one method of one model
//! file.
//!
//! Invariant: the selected file exists and is readable, and its external data is in its own folder.
//! If a choice is ambiguous, the error lists the alternatives.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tensor::{Signature, SignatureError};
use pkgtool_base::package::{
    Backend, Config, Discovery, FileRef, LoadFault, LoadedFile, MethodSignature, Methods, Roots,
    Variant, config, model_file, reference, roots,
};
use pkgtool_base::source::json::JsonPath;
use pkgtool_model::{self as model, ModelInfo, OpenError};

/// The user's choices besides the path; `None` leaves one open.
#[derive(Debug, Clone, Default)]
pub struct SelectionCriteria {
    /// Precision of the variant.
    pub precision: Option<String>,
    /// Backend, for a directory with packages for several backends.
    pub backend: Option<Backend>,
    /// Component of a multi-component variant.
    pub component: Option<String>,
    /// Method.
    pub method: Option<String>,
}

/// One method of one model file.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The variant that contains it; `None` for a single model file.
    pub variant: Option<SelectedVariant>,
    /// The model file.
    pub model: PathBuf,
    /// Contents of the file's header.
    pub info: ModelInfo,
    /// Inputs and outputs of the method.
    pub signature: Signature,
}

/// A variant of a package.
#[derive(Debug, Clone)]
pub struct SelectedVariant {
    /// The config.
    pub config: PathBuf,
    /// Name of the package: its model token, with the size if it has one.
    pub package: String,
    /// The config's backend.
    pub backend: Option<Backend>,
    /// Precision token.
    pub precision: Option<String>,
    /// The component, in a multi-component variant.
    pub component: Option<String>,
    /// Path of the variant in the config.
    pub path: JsonPath,
}

/// The selection failed.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// The path contains no package.
    #[error("{0}")]
    Nothing(String),
    /// Any other reason; the text names the remedy.
    #[error("{0}")]
    Refused(String),
    /// The model file is unreadable.
    #[error("{} {error}", model.display())]
    Model {
        /// The file.
        model: PathBuf,
        /// The reason.
        error: OpenError,
    },
    /// An input or output of the method is not a tensor.
    #[error("{}: {error}", model.display())]
    Signature {
        /// The model file.
        model: PathBuf,
        /// The input or output.
        error: SignatureError,
    },
}

type Selected<T> = Result<T, SelectionError>;

/// A model file with its parsed header and its methods.
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
        let model = resolved(path, file)?;
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
                    "contains tensors but no method, so it cannot be run; `pkgtool inspect` shows its contents"
                }
                _ if info.named.is_empty() => "has no methods",
                _ => "contains data for programs but no method; name the program beside it",
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

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.model
    }

    /// Returns the contents of its header.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns the names of the callable methods, in the order of the file or config.
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

    /// Selects a method: by name, or by default `forward` or the only one.
    pub fn select(&self, method: Option<&str>) -> Selected<Selection> {
        let name = self.method_name(method)?;
        // An ONNX file has one graph, which stands for any method that a config declares.
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

/// Returns the default method: `forward`, or the only one.
pub fn default_method(names: &[String]) -> Option<&str> {
    let forward = names.iter().find(|name| *name == "forward");
    match names {
        [only] => Some(only),
        _ => forward.map(String::as_str),
    }
}

/// Selects one method below `path`.
pub fn select(path: &Path, choice: &SelectionCriteria) -> Selected<Selection> {
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

/// Returns all methods that a choice leaves open, of one variant. Files that are no models are skipped, and methods
/// whose inputs or outputs are no tensors.
pub fn candidates(path: &Path, choice: &SelectionCriteria) -> Selected<Vec<Selection>> {
    let files = match config_at(path, choice.backend)? {
        None => vec![ModelFile::open(path.to_owned(), None, Vec::new())?],
        Some((found, config)) => {
            let variant = variant_of(&found, &config, choice)?;
            let wanted =
                |file: &&FileRef| choice.component.is_none() || file.component == choice.component;
            let files = variant.files.iter().filter(wanted);
            let opened = files.map(|file| ModelFile::of_variant(&found, &config, variant, file));
            let is_other = |opened: &Selected<ModelFile>| {
                matches!(
                    opened,
                    Err(SelectionError::Model {
                        error: OpenError::UnknownFormat,
                        ..
                    })
                )
            };
            opened
                .filter(|opened| !is_other(opened))
                .collect::<Selected<Vec<_>>>()?
        }
    };
    let is_wanted = |name: &String| choice.method.is_none() || choice.method.as_ref() == Some(name);
    let methods = files.iter().flat_map(|file| {
        let mut names = file.methods();
        names.retain(is_wanted);
        // The default comes first.
        let default = default_method(&names).map(str::to_owned);
        names.sort_by_key(|name| default.as_ref() != Some(name));
        names
            .into_iter()
            .filter_map(|name| file.select(Some(&name)).ok())
    });
    Ok(methods.collect())
}

/// Returns the file of another component of the selected variant, such as a scheduler's; `None` if the variant has none.
pub fn component_file(selection: &Selection, component: &str) -> Selected<Option<PathBuf>> {
    let Some(selected) = &selection.variant else {
        return Ok(None);
    };
    let path = &selected.config;
    let config = config(path)?;
    let mut variants = config.variants.iter();
    let variant = variants.find(|variant| variant.path == selected.path);
    let file = variant.map(|variant| variant_component_file(path, variant, component));
    Ok(file.transpose()?.flatten())
}

/// Returns the file of a component of a variant in the config at `path`; `None` if the variant has none.
pub fn variant_component_file(
    path: &Path,
    variant: &Variant,
    component: &str,
) -> Selected<Option<PathBuf>> {
    let mut files = variant.files.iter();
    let file = files.find(|file| file.component.as_deref() == Some(component));
    file.map(|file| resolved(path, file)).transpose()
}

/// Resolves a reference of a config to a file.
fn resolved(path: &Path, file: &FileRef) -> Selected<PathBuf> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let roots = Roots::new();
    let absolute = roots.absolute(directory);
    let depth = roots::depth_below(&absolute, &roots.package_root(&absolute));
    reference::resolve(directory, depth, &file.reference).or_else(|error| {
        let reason = format!("`{}` {error}", file.reference);
        refused(path, &reason)
    })
}

/// Selects a link of a chain by name: a component, or a method of the chosen component or of a
/// model without components.
pub fn select_link(path: &Path, choice: &SelectionCriteria, name: &str) -> Selected<Selection> {
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

/// Returns whether a path stands for a package, not for a model file.
pub fn is_package(path: &Path) -> bool {
    is_folder(path) || is_config(path)
}

fn is_folder(path: &Path) -> bool {
    path.is_dir() && !model_file::is_bundle(&path.to_string_lossy())
}

fn is_config(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Finds the config that a path stands for; returns `None` for a model file.
fn config_at(path: &Path, backend: Option<Backend>) -> Selected<Option<(PathBuf, Config)>> {
    fs::metadata(path)
        .map_err(|error| SelectionError::Refused(format!("{}: {error}", path.display())))?;
    if is_folder(path) {
        let (found, config) = config_below(path, backend)?;
        return Ok(Some((found, config)));
    }
    if !is_config(path) {
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

/// Returns the only config below a directory, for the given backend if any. If packages differ only
/// in their backend, the first in the specification's order is used: it runs on most machines.
fn config_below(directory: &Path, backend: Option<Backend>) -> Selected<(PathBuf, Config)> {
    let backend: Vec<Backend> = backend.into_iter().collect();
    Ok(configs_below(directory, &backend)?.swap_remove(0))
}

/// Returns the configs of one model below a directory, filtered by backend if any are given, in the
/// specification's order of backends. Fails if nothing matches.
pub(super) fn configs_below(
    directory: &Path,
    backends: &[Backend],
) -> Selected<Vec<(PathBuf, Config)>> {
    let is_wanted = |backend: Option<Backend>| {
        backends.is_empty() || backend.is_some_and(|backend| backends.contains(&backend))
    };
    let mut configs = Vec::new();
    for found in Discovery::walk(&[directory.to_owned()]).found {
        let loaded = LoadedFile::read(&found.path);
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
            "{}: no package{wanted} found (no {} in a directory named after a backend)",
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
        let reason = format!(
            "contains several packages; name one of {}",
            paths.join(", ")
        );
        return refused(directory, &reason);
    }
    let order = |config: &Config| {
        let place = |backend| Backend::ALL.iter().position(|known| *known == backend);
        config.backend.and_then(place).unwrap_or(usize::MAX)
    };
    configs.sort_by_key(|(_, config)| order(config));
    Ok(configs)
}

/// Reads the config at `path`.
pub fn config(path: &Path) -> Selected<Config> {
    config_of(path, &LoadedFile::read(path))
}

fn config_of(path: &Path, loaded: &LoadedFile) -> Selected<Config> {
    let reason = match &loaded.document {
        Ok(document) => return Ok(Config::from_document(document)),
        Err(LoadFault::Unreadable(reason)) => format!("cannot be read: {reason}"),
        Err(LoadFault::TooLarge(size)) => format!("is too large for a config: {size} bytes"),
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

fn in_config(path: &Path, config: &Config, choice: &SelectionCriteria) -> Selected<Selection> {
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

/// Returns the variant of the chosen precision, or the first in the config.
fn variant_of<'c>(
    path: &Path,
    config: &'c Config,
    choice: &SelectionCriteria,
) -> Selected<&'c Variant> {
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

fn file_of<'v>(
    path: &Path,
    variant: &'v Variant,
    choice: &SelectionCriteria,
) -> Selected<&'v FileRef> {
    let names: Vec<String> = variant
        .files
        .iter()
        .filter_map(|file| file.component.clone())
        .collect();
    match (&choice.component, &variant.files[..]) {
        (None, [only]) => Ok(only),
        (None, []) => refused(path, "has a variant without `file` or `components`"),
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

/// Rejects external data outside of the model's folder, including links that lead out of it, before
/// an engine reads it.
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
