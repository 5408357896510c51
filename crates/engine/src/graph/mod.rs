//! The operator vocabulary: the table of operators that all front ends share, and the kernels, the
//! corrections of the library and the plans behind them.
//!
//! A graph is built by [`builder::Builder`]. [`operators`] has a row per operator. A computation that
//! the library lacks is a [`kernel::Kernel`]. [`corrections`] repairs what the library computes wrongly.
//! [`runner`] runs a planned graph.
//!
//! Invariant: nothing here knows a file format.

#![cfg_attr(
    not(test),
    expect(
        clippy::wildcard_imports,
        reason = "the library's prelude for operators"
    )
)]

pub(crate) mod attention;
pub(crate) mod builder;
pub(crate) mod calling;
pub(crate) mod convolution;
pub(crate) mod corrections;
pub(crate) mod dynamic;
pub(crate) mod elements;
pub(crate) mod engine_error;
pub(crate) mod error_function;
pub(crate) mod fast;
pub(crate) mod frame;
pub(crate) mod guard;
pub(crate) mod head_state;
pub(crate) mod holdings;
pub(crate) mod images;
pub(crate) mod kernel;
pub(crate) mod operators;
pub(crate) mod overwrite;
pub(crate) mod phrases;
pub(crate) mod places;
pub(crate) mod plans;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod product;
mod recording;
pub(crate) mod recurrence;
pub(crate) mod recurrent;
pub(crate) mod resize;
pub(crate) mod rows;
pub(crate) mod runner;
pub(crate) mod spare;
pub(crate) mod table;
pub(crate) mod transposed;
pub(crate) mod watch;
pub(crate) mod weights;
pub(crate) mod wording;

use tract_onnx::tract_core::internal::DatumType;

pub(crate) use engine_error::{NAME, failed, run_failed, unsupported};

use crate::tensor::{DType, Tensor};
use guard::LibraryFailure;

/// Returns tract's datum type for a dtype.
pub(crate) fn datum_type(dtype: DType) -> DatumType {
    match elements::datum_type(dtype) {
        DatumType::F16 => DatumType::F32,
        other => other,
    }
}

/// Converts a tensor to tract's representation of it in a graph.
pub(crate) fn give(tensor: &Tensor) -> Result<tract_onnx::prelude::Tensor, LibraryFailure> {
    if tensor.dtype() != DType::Float16 {
        return elements::to_tract(tensor);
    }
    let (halves, _) = tensor.bytes().as_chunks::<2>();
    let values = halves
        .iter()
        .map(|half| weights::widen(tensor.dtype(), *half));
    let values: Vec<f32> = values.collect();
    let shape = elements::sizes(tensor.shape())?;
    guard::guarded(|| tract_onnx::prelude::Tensor::from_shape(&shape, &values))
}
