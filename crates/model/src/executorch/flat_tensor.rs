//! Reader for ExecuTorch data files (`.ptd`): named tensors that programs store outside their own
//! file.
//!
//! `body/data.rs` parses the files; this module converts the result to a [`ModelInfo`] without
//! methods.

use std::path::Path;

use super::body::DataFile;
use super::container;
use crate::format::has_extension;
use crate::{Dim, Dynamism, ModelError, ModelFormat, ModelInfo, NamedData, Segment, TensorInfo};
use pkgtool_base::source::ReadAt;

/// The format of ExecuTorch data files.
#[derive(Debug)]
pub struct FlatTensor;

impl ModelFormat for FlatTensor {
    fn name(&self) -> &'static str {
        "flat_tensor"
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["ptd"])
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        let identifier = first_bytes.get(4..8);
        identifier.is_some_and(|id| container::is_of_family(id, *b"FT"))
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        let file = DataFile::read(source)?;
        let labels = ["header".to_owned()].into_iter();
        let labels = labels.chain((0..).map(|index: u64| format!("segment {index}")));
        let segments = file.areas.iter().zip(labels).map(|(area, name)| Segment {
            name,
            offset: area.offset,
            size: area.size,
        });
        let weight_bytes = file.areas.iter().skip(1).map(|area| area.size);
        let weight_bytes = weight_bytes.fold(0, u64::saturating_add);
        let segments = segments.collect();
        let named = file.named.into_iter().map(|(name, found)| NamedData {
            name,
            tensor: found.layout.map(|(element, sizes)| TensorInfo {
                element,
                dims: Some(sizes.into_iter().map(Dim::Fixed).collect()),
                dynamism: Dynamism::Static,
            }),
        });
        Ok(ModelInfo {
            format: self.name(),
            format_by_name: None,
            format_version: "FT01".to_owned(),
            names_methods: true,
            weight_bytes,
            segments,
            named: named.collect(),
            ..ModelInfo::default()
        })
    }
}
