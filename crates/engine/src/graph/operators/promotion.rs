//! Type promotion: the dtypes in which operators compute.

use crate::tensor::DType;

/// Returns the dtype in which values of two dtypes are combined.
pub(crate) fn promoted(a: DType, b: DType) -> DType {
    fn weight(dtype: DType) -> u8 {
        match dtype {
            DType::Bool => 0,
            DType::Uint8 => 1,
            DType::Int8 => 2,
            DType::Uint16 => 3,
            DType::Int16 => 4,
            DType::Uint32 => 5,
            DType::Int32 => 6,
            DType::Uint64 => 7,
            DType::Int64 => 8,
            DType::Float16 => 9,
            DType::Bfloat16 => 10,
            DType::Float32 => 11,
            DType::Float64 => 12,
        }
    }
    let (less, more) = if weight(a) <= weight(b) {
        (a, b)
    } else {
        (b, a)
    };
    match (less, more) {
        _ if less == more => more,
        (DType::Float16, DType::Bfloat16) => DType::Float32,
        (DType::Uint8, DType::Int8) => DType::Int16,
        _ => more,
    }
}

/// Returns the dtype in which a tensor and a number are combined. The number affects only the kind
/// of dtype.
pub(super) fn promoted_with_scalar(tensor: DType, scalar: DType) -> DType {
    let kind = |dtype: DType| match dtype {
        DType::Bool => 0,
        _ if dtype.is_float() => 2,
        _ => 1,
    };
    if kind(scalar) > kind(tensor) {
        scalar
    } else {
        tensor
    }
}

/// Returns the dtype for computation: float32 for float16 and bfloat16.
pub(super) fn widened(dtype: DType) -> DType {
    match dtype {
        DType::Float16 | DType::Bfloat16 => DType::Float32,
        _ => dtype,
    }
}
