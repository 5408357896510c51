//! Portable readings: a backend's program run by an engine without that backend, and the notice
//! shown with its answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tensor::DType;
use pkgtool_base::package::Backend;

/// A program for a backend, run by an engine that lacks the backend. Every answer carries the
/// sentence that `Display` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortableReading {
    /// The backend.
    pub of: Backend,
}

/// The precision in which a delegate's half-precision graph is computed without its backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// Weights in their stored precision, everything else in float32.
    #[default]
    Wide,
    /// Every result is rounded to the dtype that the graph declares for it.
    Half,
}

impl Rounding {
    /// Returns the dtype in which a value of the declared dtype is computed.
    pub fn computed_dtype(self, declared: DType) -> DType {
        match (self, declared) {
            (Self::Wide, DType::Float16 | DType::Bfloat16) => DType::Float32,
            _ => declared,
        }
    }
}

impl fmt::Display for PortableReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, hardware) = match self.of {
            Backend::CoreMl => ("a Core ML", "the Neural Engine"),
            Backend::Mlx => ("an MLX", "the GPU"),
            Backend::Vulkan => ("a Vulkan", "the GPU"),
            Backend::Qnn => ("a QNN", "the Hexagon processor"),
            Backend::Xnnpack => ("an XNNPACK", "the processor"),
        };
        write!(
            f,
            "portable reading of {program} program: computed as written, without the rounding of {hardware}"
        )
    }
}
