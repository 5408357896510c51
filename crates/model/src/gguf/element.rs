//! The tensor types of ggml: their names, and the number of elements and bytes per block.
//!
//! Sources: `enum ggml_type` and the block structures of `ggml-common.h`, also `GGML_QUANT_SIZES`
//! of the Python package `gguf`.

use crate::ElementType;
use pkgtool_base::package::DType;

/// A ggml tensor type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgmlType {
    /// Its number in GGUF files.
    pub number: u32,
    /// Its name (`q4_k`).
    pub name: &'static str,
    /// Number of elements per block.
    pub block_elements: u64,
    /// Size of a block in bytes.
    pub bytes: u64,
}

const fn row(number: u32, name: &'static str, block: u64, bytes: u64) -> GgmlType {
    GgmlType {
        number,
        name,
        block_elements: block,
        bytes,
    }
}

static TYPES: &[GgmlType] = &[
    row(0, "f32", 1, 4),
    row(1, "f16", 1, 2),
    row(2, "q4_0", 32, 18),
    row(3, "q4_1", 32, 20),
    row(6, "q5_0", 32, 22),
    row(7, "q5_1", 32, 24),
    row(8, "q8_0", 32, 34),
    row(10, "q2_k", 256, 84),
    row(11, "q3_k", 256, 110),
    row(12, "q4_k", 256, 144),
    row(13, "q5_k", 256, 176),
    row(14, "q6_k", 256, 210),
    row(15, "q8_k", 256, 292),
    row(16, "iq2_xxs", 256, 66),
    row(17, "iq2_xs", 256, 74),
    row(18, "iq3_xxs", 256, 98),
    row(19, "iq1_s", 256, 50),
    row(20, "iq4_nl", 32, 18),
    row(21, "iq3_s", 256, 110),
    row(22, "iq2_s", 256, 82),
    row(23, "iq4_xs", 256, 136),
    row(24, "i8", 1, 1),
    row(25, "i16", 1, 2),
    row(26, "i32", 1, 4),
    row(27, "i64", 1, 8),
    row(28, "f64", 1, 8),
    row(29, "iq1_m", 256, 56),
    row(30, "bf16", 1, 2),
    row(34, "tq1_0", 256, 54),
    row(35, "tq2_0", 256, 66),
    row(39, "mxfp4", 32, 17),
    row(40, "nvfp4", 64, 36),
    row(41, "q1_0", 128, 18),
];

/// Returns the type of this number; `None` if the number is newer than this list.
pub fn ggml_type(number: u32) -> Option<GgmlType> {
    TYPES.iter().find(|known| known.number == number).copied()
}

/// Returns the element type for a ggml type number.
pub(super) fn element_of(number: u32) -> ElementType {
    let dtype = match number {
        0 => DType::Float32,
        1 => DType::Float16,
        24 => DType::Int8,
        25 => DType::Int16,
        26 => DType::Int32,
        27 => DType::Int64,
        28 => DType::Float64,
        30 => DType::Bfloat16,
        _ => {
            let known = ggml_type(number).map(|known| known.name.to_owned());
            return ElementType::Other(known.unwrap_or_else(|| format!("ggml type {number}")));
        }
    };
    ElementType::Known(dtype)
}
