//! The tensor types of TensorFlow Lite (`enum TensorType`).

use crate::ElementType;
use pkgtool_base::package::DType;

/// Returns the type of this code, and the bits per element if they are fixed.
pub(super) fn element_of(code: i8) -> (ElementType, Option<u64>) {
    use DType::{Bfloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8};
    let known = |dtype: DType| (ElementType::Known(dtype), Some(dtype.size() * 8));
    let other = |name: &str, bits| (ElementType::Other(name.to_owned()), bits);
    match code {
        0 => known(Float32),
        1 => known(Float16),
        2 => known(Int32),
        3 => known(Uint8),
        4 => known(Int64),
        5 => other("string", None),
        6 => known(Bool),
        7 => known(Int16),
        8 => other("complex64", Some(64)),
        9 => known(Int8),
        10 => known(Float64),
        11 => other("complex128", Some(128)),
        12 => other("uint64", Some(64)),
        13 => other("resource", None),
        14 => other("variant", None),
        15 => other("uint32", Some(32)),
        16 => other("uint16", Some(16)),
        17 => other("int4", Some(4)),
        18 => known(Bfloat16),
        19 => other("int2", Some(2)),
        20 => other("uint4", Some(4)),
        _ => other(&format!("TensorType {code}"), None),
    }
}
