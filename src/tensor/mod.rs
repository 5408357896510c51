//! Tensors and what is known of them: dtypes, signatures, inputs and outputs as files, agreement.
//!
//! Invariant: knows no engine, and takes no memory before it is known how much and that it is within the
//! limit.

pub mod agreement;
pub mod bundled;
mod dense;
mod dtype;
pub mod input;
mod join;
pub mod limit;
pub mod npy;
mod output;
mod part;
mod signature;
mod summary;

pub use dense::{MAX_BYTES, Tensor, TensorError, byte_size};
pub use dtype::DType;
pub use join::JoinError;
pub use output::{OutputError, write_outputs};
pub use part::PartError;
pub use signature::{Signature, SignatureError, TensorSpec};
pub use summary::{Scalar, Summary};
