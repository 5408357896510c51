//! The other files that tensors keep their data in.
//!
//! Locations are kept as the file writes them; whether they are safe to open is not asked here.

use std::collections::HashMap;

use super::Error;
use super::wire::Field;
use crate::model::ExternalData;

/// Most distinct files.
const MAX_LOCATIONS: usize = 4096;

/// External files in the order in which they are met.
#[derive(Default)]
pub(super) struct Locations {
    files: Vec<ExternalData>,
    index: HashMap<String, usize>,
}

impl Locations {
    /// Adds a tensor whose data ends at byte `end` of `location`.
    pub(super) fn add(
        &mut self,
        tensor: &Field<'_>,
        location: String,
        end: u64,
    ) -> Result<(), Error> {
        if let Some(&index) = self.index.get(&location) {
            let file = &mut self.files[index];
            file.tensors += 1;
            file.needs_bytes = file.needs_bytes.max(Some(end));
            return Ok(());
        }
        if self.files.len() == MAX_LOCATIONS {
            return Err(Error::TooManyLocations {
                place: tensor.place().to_string(),
                offset: tensor.offset(),
                limit: MAX_LOCATIONS,
            });
        }
        tensor.keep(2 * location.len() as u64)?;
        self.index.insert(location.clone(), self.files.len());
        self.files.push(ExternalData {
            location: Some(location),
            needs_bytes: Some(end),
            tensors: 1,
            named: Vec::new(),
        });
        Ok(())
    }

    /// The files.
    pub(super) fn into_files(self) -> Vec<ExternalData> {
        self.files
    }
}
