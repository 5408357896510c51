//! The other files that tensors keep their data in, and those of graphs that were compiled before.
//!
//! Locations are kept as the file writes them; whether they are safe to open is not asked here.

use std::collections::HashMap;

use super::Error;
use super::wire::Field;
use crate::model::ExternalData;

/// Most distinct files.
const MAX_LOCATIONS: usize = 4096;

/// External files in the order in which the model names them.
#[derive(Default)]
pub(super) struct Locations {
    /// Each with where it is named first.
    files: Vec<(u64, ExternalData)>,
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
        let file = self.file(tensor, location)?;
        file.tensors += 1;
        file.needs_bytes = file.needs_bytes.max(Some(end));
        Ok(())
    }

    /// Adds the file of a compiled graph.
    pub(super) fn add_context(&mut self, node: &Field<'_>, location: String) -> Result<(), Error> {
        self.file(node, location).map(|_| ())
    }

    /// The file at `location`, which is new or was met before.
    fn file(&mut self, owner: &Field<'_>, location: String) -> Result<&mut ExternalData, Error> {
        if let Some(&index) = self.index.get(&location) {
            let (first, file) = &mut self.files[index];
            *first = owner.offset().min(*first);
            return Ok(file);
        }
        if self.files.len() == MAX_LOCATIONS {
            return Err(Error::TooManyLocations {
                place: owner.place().to_string(),
                offset: owner.offset(),
                limit: MAX_LOCATIONS,
            });
        }
        owner.keep(2 * location.len() as u64)?;
        let index = self.files.len();
        self.index.insert(location.clone(), index);
        let file = ExternalData {
            location: Some(location),
            needs_bytes: None,
            tensors: 0,
            named: Vec::new(),
        };
        self.files.push((owner.offset(), file));
        Ok(&mut self.files[index].1)
    }

    /// The files.
    pub(super) fn into_files(mut self) -> Vec<ExternalData> {
        self.files.sort_by_key(|(first, _)| *first);
        self.files.into_iter().map(|(_, file)| file).collect()
    }
}
