//! Reader for ExecuTorch programs (`.pte`) and bundled programs (`.bpte`), which are FlatBuffers.
//!
//! | module | role |
//! |---|---|
//! | `container`, `flatbuffer` | locate the FlatBuffer and read it with bounds checks |
//! | `verify`, `load` | apply the checks that a device makes before it runs a program |
//! | `storage` | locates segments, constants and payloads |
//! | `plan`, `value` | read methods and their values |
//! | `dynamism` | determines the dynamic dimensions |
//! | `delegate`, `wiring`, `relations` | derive dynamic dimensions from delegate payloads |
//! | `contents` | summarises delegate payloads |
//! | `body` | reads the complete program for an engine |

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
pub(crate) mod flatbuffer;
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

pub use content::{
    LoweredPrecision, PayloadSummary, Port, QuantizationScheme, StateTensor, WeightCount,
    WeightStorage,
};
pub use contents::{Payload, contents, payload_summary};
pub use flat_tensor::FlatTensor;
pub use place::place;
pub use stored::ConstantData;

use super::format::has_extension;
use super::{ModelError, ModelFormat, ModelInfo};
use pkgtool_base::source::ReadAt;

/// The ExecuTorch program format.
#[derive(Debug)]
pub struct ExecuTorchFormat;

impl ModelFormat for ExecuTorchFormat {
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
