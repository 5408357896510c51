//! Readers for the headers of model files.
//!
//! This crate owns one reader per file format and the format-neutral description they return
//! ([`ModelInfo`]). Invariant: a reader never reads weights, never panics, and checks every length
//! before it allocates memory. Its cost does not depend on the size of the file. The rules for
//! configs live elsewhere.

mod allowed;
pub mod coreml;
pub mod declaration;
mod error;
pub mod executorch;
mod external;
mod format;
pub mod gguf;
mod info;
pub mod onnx;
mod open;
pub mod precision;
pub mod qnn;
mod recognise;
pub mod safetensors;
pub mod tflite;

pub use allowed::Allowed;
pub use coreml::folder_size;
pub(crate) use error::FieldPosition;
pub use error::FormatError;
pub use external::ExternalDataError;
pub use format::{ModelError, ModelFormat};
pub use info::{
    Delegate, Dim, Dynamism, ElementType, ExternalData, Method, ModelInfo, ModelValue, NamedData,
    PictureInput, PixelColours, Segment, TensorInfo, ValueKind,
};
pub use open::{OpenError, open};
pub use recognise::{FORMATS, format_of, inspect, inspect_at};
