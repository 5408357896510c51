//! External files of an ONNX model: files with tensor data and precompiled graphs.
//!
//! Locations are kept as the file writes them; [`ExternalData::locate`] checks later whether they
//! are safe to open.

use std::collections::HashMap;

use super::wire::WireField;
use crate::{ExternalData, FormatError};

/// Maximum number of distinct files.
const MAX_LOCATIONS: usize = 4096;

/// External files in the order in which the model names them.
#[derive(Default)]
pub(super) struct ExternalFiles {
    /// Each file with the offset of its first reference.
    files: Vec<(u64, ExternalData)>,
    index: HashMap<String, usize>,
}

impl ExternalFiles {
    /// Adds a tensor whose data ends at byte `end` of `location`.
    pub(super) fn add(
        &mut self,
        tensor: &WireField<'_>,
        location: String,
        end: u64,
    ) -> Result<(), FormatError> {
        let file = self.file(tensor, location)?;
        file.tensors += 1;
        file.needs_bytes = file.needs_bytes.max(Some(end));
        Ok(())
    }

    /// Adds the file of a precompiled graph.
    pub(super) fn add_context(
        &mut self,
        node: &WireField<'_>,
        location: String,
    ) -> Result<(), FormatError> {
        self.file(node, location).map(|_| ())
    }

    /// Returns the entry for the file at `location`; adds it if it is new.
    fn file(
        &mut self,
        owner: &WireField<'_>,
        location: String,
    ) -> Result<&mut ExternalData, FormatError> {
        if let Some(&index) = self.index.get(&location) {
            let (first, file) = &mut self.files[index];
            *first = owner.offset().min(*first);
            return Ok(file);
        }
        if self.files.len() == MAX_LOCATIONS {
            return Err(owner.position().violates(format_args!(
                "tensors in more than {MAX_LOCATIONS} external files"
            )));
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

    /// Returns the files in the order of their first reference.
    pub(super) fn into_files(mut self) -> Vec<ExternalData> {
        self.files.sort_by_key(|(first, _)| *first);
        self.files.into_iter().map(|(_, file)| file).collect()
    }
}
