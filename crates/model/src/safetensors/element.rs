//! Names of the dtypes in a safetensors header, and their size in bits.

use crate::ElementType;
use pkgtool_base::package::DType;

/// Returns the type and the bits per element for a dtype of safetensors 0.8.
pub(super) fn element_of(name: &str) -> Option<(ElementType, u64)> {
    use DType::{Bfloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Uint8};
    let known = |dtype: DType| Some((ElementType::Known(dtype), dtype.size() * 8));
    let other = |name: &str, bits| Some((ElementType::Other(name.to_owned()), bits));
    match name {
        "BOOL" => known(Bool),
        "U8" => known(Uint8),
        "I8" => known(Int8),
        "I16" => known(Int16),
        "I32" => known(Int32),
        "I64" => known(Int64),
        "F16" => known(Float16),
        "BF16" => known(Bfloat16),
        "F32" => known(Float32),
        "F64" => known(Float64),
        "U16" => other("uint16", 16),
        "U32" => other("uint32", 32),
        "U64" => other("uint64", 64),
        "C64" => other("complex64", 64),
        "F4" => other("float4e2m1", 4),
        "F6_E2M3" => other("float6e2m3", 6),
        "F6_E3M2" => other("float6e3m2", 6),
        "F8_E4M3" => other("float8e4m3fn", 8),
        "F8_E5M2" => other("float8e5m2", 8),
        "F8_E8M0" => other("float8e8m0", 8),
        "F8_E4M3FNUZ" => other("float8e4m3fnuz", 8),
        "F8_E5M2FNUZ" => other("float8e5m2fnuz", 8),
        _ => None,
    }
}
