//! Lists every variant of a package, for all its backends. `compare --all` runs this list.
//!
//! Invariant: everything that a config names is in the list. An unreadable entry is listed with its
//! error.

use std::path::{Path, PathBuf};

use super::selection::{self, ModelFile, SelectedVariant, Selection, SelectionError};
use pkgtool_base::package::{Backend, Config, Variant};
use pkgtool_base::source::json::JsonPath;

/// A variant of a package for one backend.
#[derive(Debug)]
pub struct PackageVariant {
    /// The config.
    pub config: PathBuf,
    /// Path of the variant in the config.
    pub path: JsonPath,
    /// The config's backend.
    pub backend: Option<Backend>,
    /// Precision token.
    pub precision: Option<String>,
    /// The methods of its model files, in the config's order.
    pub parts: Vec<VariantMethod>,
}

/// A method of one of a variant's model files.
#[derive(Debug)]
pub struct VariantMethod {
    /// The component, in a multi-component variant.
    pub component: Option<String>,
    /// The method; `None` if the file cannot be read.
    pub method: Option<String>,
    /// The model file and signature, or the error that prevents a run.
    pub selection: Result<Selection, SelectionError>,
}

/// A filter for variants; an empty or absent field matches everything.
#[derive(Debug, Clone, Default)]
pub struct VariantFilter {
    /// Backends.
    pub backends: Vec<Backend>,
    /// Precision tokens.
    pub precisions: Vec<String>,
    /// Component of multi-component variants.
    pub component: Option<String>,
    /// Method.
    pub method: Option<String>,
}

/// Returns all matching variants below `path`: a directory with packages of one model, or a config.
pub fn variants(
    path: &Path,
    wanted: &VariantFilter,
) -> Result<Vec<PackageVariant>, SelectionError> {
    let is_config = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let configs = if path.is_dir() {
        selection::configs_below(path, &wanted.backends)?
    } else if is_config {
        vec![(path.to_owned(), selection::config(path)?)]
    } else {
        return Err(SelectionError::Refused(format!(
            "{} is not a package: name its directory or a config",
            path.display()
        )));
    };
    let mut variants = Vec::new();
    for (path, config) in &configs {
        for variant in &config.variants {
            let is_wanted = |token: &String| wanted.precisions.contains(token);
            let precision = variant.precision.as_ref();
            if wanted.precisions.is_empty() || precision.is_some_and(is_wanted) {
                variants.push(PackageVariant::read(path, config, variant, wanted));
            }
        }
    }
    Ok(variants)
}

impl PackageVariant {
    fn read(path: &Path, config: &Config, variant: &Variant, wanted: &VariantFilter) -> Self {
        let mut parts = Vec::new();
        for file in &variant.files {
            if wanted.component.is_some() && wanted.component != file.component {
                continue;
            }
            let component = file.component.clone();
            let model = match ModelFile::of_variant(path, config, variant, file) {
                Ok(model) => model,
                Err(error) => {
                    parts.push(VariantMethod {
                        component,
                        method: None,
                        selection: Err(error),
                    });
                    continue;
                }
            };
            for method in model.methods() {
                if wanted.method.as_ref().is_none_or(|asked| *asked == method) {
                    parts.push(VariantMethod {
                        component: component.clone(),
                        selection: model.select(Some(&method)),
                        method: Some(method),
                    });
                }
            }
        }
        Self {
            config: path.to_owned(),
            path: variant.path.clone(),
            backend: config.backend,
            precision: variant.precision.clone(),
            parts,
        }
    }

    /// Returns a label that is unique within the package, such as `int8 for qnn`.
    pub fn label(&self) -> String {
        let precision = self.precision.as_deref().unwrap_or("(no precision)");
        match self.backend {
            Some(backend) => format!("{precision} for {backend}"),
            None => precision.to_owned(),
        }
    }

    /// Finds a part by name. With `is_only`, the single part of a variant matches any name.
    pub fn part(&self, name: &str, is_only: bool) -> Option<&VariantMethod> {
        let mut parts = self.parts.iter();
        match &self.parts[..] {
            [only] if is_only => Some(only),
            _ => parts.find(|part| part.name(&self.parts) == name),
        }
    }

    /// Returns the identity of the variant, for findings about it.
    pub fn selected(&self) -> Option<&SelectedVariant> {
        let mut parts = self.parts.iter();
        parts.find_map(|part| part.selection.as_ref().ok()?.variant.as_ref())
    }
}

impl VariantMethod {
    /// Returns the unique name of the part within its variant: `component`, `component/method` if
    /// the component has several methods, or `method` without components.
    pub fn name(&self, among: &[Self]) -> String {
        let method = self.method.as_deref().unwrap_or("?");
        let Some(component) = &self.component else {
            return method.to_owned();
        };
        let of_it = among.iter().filter(|part| part.component == self.component);
        if of_it.count() > 1 {
            format!("{component}/{method}")
        } else {
            component.clone()
        }
    }
}
