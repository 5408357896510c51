//! Tensors and everything about them: dtypes, method signatures, inputs and outputs as files, and
//! agreement of outputs.
//!
//! Invariant: memory is allocated only after its size is known to be within the limit. Engines are
//! handled elsewhere.

pub mod agreement;
pub mod bundled;
mod dense;
pub mod input;
mod join;
pub mod limit;
pub mod npy;
mod output;
mod part;
mod signature;
mod summary;

pub use dense::{MAX_TENSOR_BYTES, Tensor, TensorError, byte_size};
pub use join::JoinError;
pub use output::{OutputError, write_outputs};
pub use part::PartError;
pub use pkgtool_base::package::DType;
pub use signature::{Signature, SignatureError, TensorSpec};
pub use summary::{Scalar, Summary};
