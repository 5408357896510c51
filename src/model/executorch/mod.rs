//! ExecuTorch programs (`.pte`) and bundled programs (`.bpte`), read from the FlatBuffer alone.
//!
//! `container` finds the FlatBuffer in the file, `flatbuffer` reads it with every access checked,
//! `verify` and `load` check what a device checks before it runs one, `storage` knows where bytes are kept, `plan` and `value` read methods, `dynamism` settles which
//! dimensions vary. `delegate` looks into the payloads of delegates for evidence of that, `wiring`
//! joins it to a method's values, `relations` draws the conclusions. `contents` says what payloads hold.

pub mod body;
mod container;
mod content;
mod contents;
pub mod coreml;
mod couple;
mod declared;
mod delegate;
mod dynamism;
mod element;
mod error;
mod evidence;
mod flat_tensor;
pub(in crate::model) mod flatbuffer;
mod load;
pub mod mlx;
mod path;
mod payload_graph;
mod payload_header;
mod place;
mod plan;
mod program;
pub mod qnn;
mod relations;
mod schema;
mod shape;
mod storage;
mod stored;
mod value;
mod verify;
pub mod vulkan;
mod wiring;
pub mod xnnpack;

use std::path::Path;

pub use content::{Content, Count, Lowered, Port, Scheme, State, Stored};
pub use contents::{Payload, content_of, contents};
pub use error::{Error, Place};
pub use flat_tensor::FlatTensor;
pub use place::place;
pub use stored::Data;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use crate::source::ReadAt;

/// The ExecuTorch program format.
#[derive(Debug)]
pub struct ExecuTorch;

impl ModelFormat for ExecuTorch {
    fn name(&self) -> &'static str {
        "executorch"
    }

    fn is_named(&self, path: &Path) -> bool {
        has_extension(path, &["pte", "bpte"])
    }

    fn is_marked(&self, first_bytes: &[u8]) -> bool {
        first_bytes.get(4..8).is_some_and(|id| {
            container::is_of_family(id, *b"ET") || container::is_of_family(id, *b"BP")
        })
    }

    fn inspect(&self, source: &dyn ReadAt) -> Result<ModelInfo, ModelError> {
        Ok(program::inspect(source)?)
    }
}
