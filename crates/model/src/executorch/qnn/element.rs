//! The tensor types of QNN (`Qnn_DataType_t` of Qualcomm's public `QnnTypes.h`).
//!
//! The low byte counts bits in decimal digits (`0x0232` is a 32-bit float). For a caller, quantised
//! values have the type of the stored integers.

use crate::ElementType;
use pkgtool_base::package::DType;

/// Returns the type of this number.
pub(super) fn element_of(code: u32) -> ElementType {
    use DType::{Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8};
    let other = |name: &str| ElementType::Other(name.to_owned());
    let known = match code {
        0x0008 | 0x0308 => Int8,
        0x0016 | 0x0316 => Int16,
        0x0032 | 0x0332 => Int32,
        0x0064 => Int64,
        0x0108 | 0x0408 => Uint8,
        0x0216 => Float16,
        0x0232 => Float32,
        0x0264 => Float64,
        0x0508 => Bool,
        0x0116 | 0x0416 => return other("uint16"),
        0x0132 | 0x0432 => return other("uint32"),
        0x0164 => return other("uint64"),
        0x0304 => return other("int4"),
        0x0404 => return other("uint4"),
        0x0608 => return other("string"),
        _ => return other(&format!("Qnn_DataType_t {code:#06x}")),
    };
    ElementType::Known(known)
}
