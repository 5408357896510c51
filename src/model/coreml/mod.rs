//! Core ML models that stand by themselves: `.mlpackage`, a folder, and `.mlmodel`, one file.
//!
//! `place` finds the files of a folder, `parts` walks the outer levels of a model, whose weights it steps over,
//! `feature` and `description` read what a model takes and gives, `layers` names what a neural network is made
//! of, `operations` counts those of an ML Program, `outline` puts them together, `whole` reads an ML Program for
//! what runs it. Protobuf messages, operations and weight records are read as those in ExecuTorch's payloads are
//! (`executorch/coreml`). Invariant: of a weight file only the heads of records are read.

mod description;
mod error;
mod feature;
mod layers;
mod operations;
mod outline;
mod parts;
mod place;
mod whole;

use std::path::Path;

pub use error::Error;
pub use place::folder_size;
pub use whole::Whole;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use crate::source::{FileSource, ReadAt};
use outline::Outline;
use place::Place;

/// The format of Core ML's models.
#[derive(Debug)]
pub struct CoreMl;

impl ModelFormat for CoreMl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["mlmodel"]) || is_package(path)
    }

    /// A protobuf message has no first bytes of its own.
    fn is_marked(&self, _first_bytes: &[u8]) -> bool {
        false
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(Outline::read(source)?.info(&[]))
    }

    /// A `.mlpackage` that is one file is none.
    fn inspect_named(&self, path: &Path, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        if is_package(path) && !place::is_zip(source) {
            return Err(Error::NoFolder.into());
        }
        self.inspect(source)
    }

    fn inspect_folder(&self, path: &Path) -> Option<Result<ModelInfo, ModelError>> {
        is_package(path).then(|| Ok(inspect_package(path)?))
    }
}

/// The format's name.
const NAME: &str = "coreml";

fn is_package(path: &Path) -> bool {
    has_extension(path, &["mlpackage"])
}

/// Reads the model in a folder, and holds what it needs against the weight files there.
fn inspect_package(path: &Path) -> Result<ModelInfo, Error> {
    let place = Place::find(path)?;
    let source = place.open_model()?;
    let outline = Outline::read(&source).map_err(|error| error.within(place.model_name()))?;
    let mut files = vec![(place.model_name().to_owned(), source.len())];
    for (written, records) in outline.weight_files() {
        let (name, file) = place.weights(written)?;
        let size = file.len();
        check_records(&file, &records).map_err(|error| error.within(&name))?;
        files.push((name, size));
    }
    Ok(outline.info(&files))
}

/// Whether the records that a program names are in its weight file, whole and of its types.
fn check_records(file: &FileSource, records: &[operations::Record]) -> Result<(), Error> {
    let pages = crate::source::Pages::new(file);
    for record in records {
        record.check(&pages)?;
    }
    Ok(())
}
