//! The element types of tensors: those that a config can express, and ONNX's wider unsigned integers,
//! which models use although no config can declare them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 1 byte.
    Int8,
    /// Signed, 2 bytes.
    Int16,
    /// Signed, 4 bytes.
    Int32,
    /// Signed, 8 bytes.
    Int64,
    /// Unsigned, 1 byte.
    Uint8,
    /// Unsigned, 2 bytes.
    Uint16,
    /// Unsigned, 4 bytes.
    Uint32,
    /// Unsigned, 8 bytes.
    Uint64,
    /// IEEE 754 binary16.
    Float16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// The upper half of a binary32.
    Bfloat16,
}

/// Names and sizes in bytes, in the order of the type.
const TABLE: [(DType, &str, u64); 13] = [
    (DType::Bool, "bool", 1),
    (DType::Int8, "int8", 1),
    (DType::Int16, "int16", 2),
    (DType::Int32, "int32", 4),
    (DType::Int64, "int64", 8),
    (DType::Uint8, "uint8", 1),
    (DType::Uint16, "uint16", 2),
    (DType::Uint32, "uint32", 4),
    (DType::Uint64, "uint64", 8),
    (DType::Float16, "float16", 2),
    (DType::Float32, "float32", 4),
    (DType::Float64, "float64", 8),
    (DType::Bfloat16, "bfloat16", 2),
];

impl DType {
    /// All element types.
    pub const ALL: [Self; 13] = {
        let mut all = [Self::Bool; 13];
        let mut at = 0;
        while at < all.len() {
            assert!(TABLE[at].0 as usize == at, "the table is in order");
            all[at] = TABLE[at].0;
            at += 1;
        }
        all
    };

    /// Returns the element types that a config can express, in the order of the specification.
    pub fn configurable() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|dtype| dtype.is_configurable())
    }

    /// Returns whether a config can express the type.
    pub fn is_configurable(self) -> bool {
        !matches!(self, Self::Uint16 | Self::Uint32 | Self::Uint64)
    }

    /// Returns the name that configs use.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Returns the dtype with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the size of an element, in bytes.
    pub fn size(self) -> u64 {
        TABLE[self as usize].2
    }

    /// Returns whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Self::Float16 | Self::Float32 | Self::Float64 | Self::Bfloat16
        )
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
