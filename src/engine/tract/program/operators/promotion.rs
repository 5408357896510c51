//! The dtypes that operators compute in.

use crate::tensor::DType;

/// The dtype that values of two dtypes are computed in.
pub(in super::super) fn promoted(a: DType, b: DType) -> DType {
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

/// The dtype that a tensor and a number are computed in: the number only decides its kind.
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

/// The dtype that something is computed in: float16 and bfloat16 in float32.
pub(super) fn widened(dtype: DType) -> DType {
    match dtype {
        DType::Float16 | DType::Bfloat16 => DType::Float32,
        _ => dtype,
    }
}
