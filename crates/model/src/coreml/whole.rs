//! Reads a complete ML Program for an engine: one function, its inputs and outputs, and its
//! weights.

use std::path::{Path, PathBuf};

use super::outline::{MAX_PROGRAM_BYTES, ModelOutline, read_bytes};
use super::place::ModelFiles;
use crate::executorch::body::ByteRange;
use crate::executorch::coreml::{PackageFunction, ProtoMessage, read_functions};
use crate::{FormatError, ModelValue, ValueKind};
use pkgtool_base::source::{Pages, ReadAt};

/// A function of an ML Program.
#[derive(Debug)]
pub struct StandaloneProgram {
    /// The function, with the names of its inputs and outputs in the method's order.
    pub package: PackageFunction,
    /// The file with its weights; the model file itself if the program has no weight file.
    pub weights: PathBuf,
}

/// Returns the labels of the classifier that implements a method of the model at `path`; `None` if it does not classify.
///
/// # Errors
///
/// Fails if the model is invalid.
pub fn class_labels(path: &Path, method: &str) -> Result<Option<Vec<String>>, FormatError> {
    let place = ModelFiles::find(path)?;
    let source = place.open_model()?;
    let outline = ModelOutline::read(&source);
    let outline = outline.map_err(|error| error.within(place.model_name()))?;
    Ok(outline.class_labels(method).map(<[String]>::to_vec))
}

impl StandaloneProgram {
    /// Reads the function that implements a method of the model at `path`.
    ///
    /// # Errors
    ///
    /// Fails if the model is invalid or not an ML Program.
    pub fn read(path: &Path, method: &str) -> Result<Self, FormatError> {
        let place = ModelFiles::find(path)?;
        let source = place.open_model()?;
        let within = |error: FormatError| error.within(place.model_name());
        let outline = ModelOutline::read(&source).map_err(within)?;
        if !outline.is_program() {
            let parts = outline.part_names().map(|part| format!("`{part}`"));
            return Err(FormatError::unsupported(format_args!(
                "a Core ML model of kind {} ({}) is not an ML Program; Core ML runs it, on Apple's systems",
                outline.kind,
                parts.collect::<Vec<_>>().join(", ")
            )));
        }
        let info = outline.info(&[]);
        let has_names = info.names_methods;
        let found = info.methods.iter().find(|known| known.name == method);
        let found = found
            .or(info.methods.first().filter(|_| !has_names))
            .cloned();
        let no_function = |has: String| {
            FormatError::new(format_args!(
                "unknown function `{method}`: expected one of {has}"
            ))
        };
        let Some(found) = found else {
            let names: Vec<&str> = info.methods.iter().map(|known| &*known.name).collect();
            return Err(no_function(names.join(", ")));
        };
        let pages = Pages::new(&source);
        let bytes =
            read_bytes(&pages, outline.body, MAX_PROGRAM_BYTES, "program").map_err(within)?;
        let message = ProtoMessage::new(&bytes, outline.body.offset, "program");
        let mut program = read_functions(message).map_err(within)?;
        let wanted = if has_names { &found.name } else { "main" };
        let function = match program.remove(wanted) {
            None if !has_names && program.len() == 1 => program.pop_first().map(|(_, only)| only),
            function => function,
        };
        let Some(function) = function else {
            let names: Vec<String> = program.into_keys().collect();
            return Err(no_function(names.join(", ")));
        };
        let mut files: Vec<(&str, _)> = outline.weight_files().collect();
        let weights = match files.pop() {
            None => None,
            Some((file, records)) if files.is_empty() => {
                let (name, source) = place.weights(file)?;
                super::check_records(&source, &records).map_err(|error| error.within(&name))?;
                let range = ByteRange {
                    offset: 0,
                    size: source.len(),
                };
                Some((place.weights_path(file)?, range))
            }
            Some((file, _)) => {
                files.push((file, Vec::new()));
                let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
                return Err(FormatError::unsupported(format_args!(
                    "unsupported program with weights in several files: {}; Core ML runs it, on Apple's systems",
                    names.join(", ")
                )));
            }
        };
        let names = |values: &[ModelValue]| -> Vec<String> {
            // Engines compute probabilities; the most likely label follows from them.
            let is_label = |value: &&ModelValue| matches!(value.kind, ValueKind::ClassLabel(_));
            let values = values.iter().filter(|value| !is_label(value));
            let names = values.map(|value| value.name.clone());
            names.map(Option::unwrap_or_default).collect()
        };
        let (weights, range) = weights.unzip();
        Ok(Self {
            package: PackageFunction::new(
                function,
                names(&found.inputs),
                names(&found.outputs),
                range,
            ),
            weights: weights.unwrap_or_else(|| place.model_path().to_owned()),
        })
    }
}
