//! How a program for a backend is read where the backend is not, and what is told of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::package::Backend;
use crate::tensor::DType;

/// A program that was made for a backend, read by an engine that has nothing of the backend. The sentence
/// belongs to every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The backend.
    pub of: Backend,
}

/// How a delegate's graph in half precision is computed where its backend is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// Weights as they are stored, everything else in float32.
    #[default]
    Wide,
    /// Every result is rounded to the dtype that the graph declares for it.
    Half,
}

impl Rounding {
    /// The dtype that stands for a declared one.
    pub fn held(self, declared: DType) -> DType {
        match (self, declared) {
            (Self::Wide, DType::Float16 | DType::Bfloat16) => DType::Float32,
            _ => declared,
        }
    }
}

impl fmt::Display for Reading {
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
            "portable reading of {program} program: what the program says, not what {hardware} rounds"
        )
    }
}
