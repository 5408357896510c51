//! Front ends: each lowers the graphs of one format to the operators of the vocabulary.
//!
//! Invariant: a front end reads and translates; kernels are in [`crate::graph`].

#![cfg_attr(
    not(test),
    expect(
        clippy::wildcard_imports,
        reason = "the library's prelude for operators"
    )
)]

mod coreml;
mod mlx;
pub(crate) mod onnx;
mod payload;
pub(crate) mod portable;
mod vulkan;
mod xnnpack;
