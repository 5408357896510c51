//! Reader for standalone Core ML models: `.mlpackage` folders and `.mlmodel` files.
//!
//! | module | role |
//! |---|---|
//! | `place` | finds the files of a package |
//! | `parts` | walks the outer fields of a model file and skips weights |
//! | `description`, `feature` | read inputs, outputs, states and metadata |
//! | `layers` | counts the layers of a neural network |
//! | `operations` | counts the operations of an ML Program |
//! | `outline` | combines these into a description of the model |
//! | `whole` | reads a complete ML Program for an engine |
//!
//! `executorch/coreml` provides the readers for protobuf messages, operations and weight records,
//! which have the same form in ExecuTorch payloads. Invariant: only the headers of records in a
//! weight file are read.

mod description;
mod feature;
mod layers;
mod operations;
mod outline;
mod parts;
mod place;
mod whole;

use std::path::Path;

pub use place::folder_size;
pub use whole::{StandaloneProgram, class_labels};

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use crate::FormatError;
use outline::ModelOutline;
use pkgtool_base::source::{FileSource, ReadAt};
use place::ModelFiles;

/// The Core ML format.
#[derive(Debug)]
pub struct CoreMl;

impl ModelFormat for CoreMl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["mlmodel"]) || is_package(path)
    }

    /// Always false: a protobuf message has no magic number.
    fn is_marked(&self, _first_bytes: &[u8]) -> bool {
        false
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(ModelOutline::read(source)?.info(&[]))
    }

    /// Rejects a `.mlpackage` that is a file instead of a folder.
    fn inspect_named(&self, path: &Path, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        if is_package(path) && !place::is_zip(source) {
            return Err(FormatError::new(
                "the `.mlpackage` is a file: expected a folder with a Manifest.json",
            )
            .into());
        }
        self.inspect(source)
    }

    fn inspect_folder(&self, path: &Path) -> Option<Result<ModelInfo, ModelError>> {
        is_package(path).then(|| Ok(inspect_package(path)?))
    }
}

/// Name of the format.
const NAME: &str = "coreml";

fn is_package(path: &Path) -> bool {
    has_extension(path, &["mlpackage"])
}

/// Reads the model in a package and checks its weight records against the weight files there.
fn inspect_package(path: &Path) -> Result<ModelInfo, FormatError> {
    let place = ModelFiles::find(path)?;
    let source = place.open_model()?;
    let outline = ModelOutline::read(&source).map_err(|error| error.within(place.model_name()))?;
    let mut files = vec![(place.model_name().to_owned(), source.len())];
    for (written, records) in outline.weight_files() {
        let (name, file) = place.weights(written)?;
        let size = file.len();
        check_records(&file, &records).map_err(|error| error.within(&name))?;
        files.push((name, size));
    }
    Ok(outline.info(&files))
}

/// Checks that the records named by a program exist in its weight file, complete and with the
/// expected types.
fn check_records(
    file: &FileSource,
    records: &[operations::WeightRecord],
) -> Result<(), FormatError> {
    let pages = pkgtool_base::source::Pages::new(file);
    for record in records {
        record.check(&pages)?;
    }
    Ok(())
}
