//! The storage form of compressed weights, which a `constexpr_…` operation expands to floats.

use std::collections::BTreeMap;

use super::super::content::{QuantizationScheme, WeightStorage};
use super::program::{MilType, Type};

/// A value that an operation takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Operand {
    /// Its type.
    pub(super) ty: Type,
    /// True if it is in the weight file.
    pub(super) in_file: bool,
}

/// Values by the names of arguments or attributes.
pub(super) type Operands = BTreeMap<String, Operand>;

impl Operand {
    /// Returns the storage form of uncompressed elements.
    pub(super) fn plain(&self) -> WeightStorage {
        WeightStorage::plain(self.ty.kind.name())
    }
}

/// Returns the storage form of an operation's weights; `None` if they come from another operation.
pub(super) fn weight_storage(
    kind: &str,
    operands: &Operands,
    result: &Type,
) -> Option<WeightStorage> {
    let ty = |name: &str| operands.get(name).map(|operand| &operand.ty);
    let steps = |codes: &Type, scheme| WeightStorage::new_quantised(codes.kind.name(), scheme);
    match kind {
        "constexpr_blockwise_shift_scale" => {
            let codes = ty("data")?;
            Some(steps(codes, scale_scheme(codes, ty("scale"))))
        }
        "constexpr_sparse_blockwise_shift_scale" => {
            let codes = ty("nonzero_data")?;
            Some(steps(codes, scale_scheme(result, ty("scale"))))
        }
        "constexpr_affine_dequantize" => {
            let codes = ty("quantized_data")?;
            let several = ty("scale").and_then(Type::count).unwrap_or(1) > 1;
            let scheme = if several {
                QuantizationScheme::Channel
            } else {
                QuantizationScheme::Tensor
            };
            Some(steps(codes, scheme))
        }
        "constexpr_lut_to_dense" | "constexpr_lut_to_sparse" => {
            let indices = ty("indices").or_else(|| ty("indices_nonzero_data"))?;
            Some(WeightStorage::new_quantised(
                &index_type(indices, ty("lut")),
                QuantizationScheme::Palette,
            ))
        }
        "constexpr_sparse_to_dense" => Some(WeightStorage::plain(ty("nonzero_data")?.kind.name())),
        "constexpr_cast" => Some(WeightStorage::plain(ty("source_val")?.kind.name())),
        _ => None,
    }
}

/// Returns the scheme of the scales, from the ratio of the sizes of codes and scales.
fn scale_scheme(codes: &Type, scale: Option<&Type>) -> QuantizationScheme {
    let Some(scale) = scale.filter(|scale| scale.dims.len() == codes.dims.len()) else {
        return QuantizationScheme::UnknownGrouping;
    };
    if scale.dims.iter().all(|size| *size == Some(1)) {
        return QuantizationScheme::Tensor;
    }
    let dims = codes.dims.iter().zip(&scale.dims);
    let mut groups = dims.filter_map(|(codes, scales)| match (*codes, *scales) {
        (Some(codes), Some(scales)) if scales > 1 && codes > scales => Some(codes / scales),
        _ => None,
    });
    groups
        .next()
        .map_or(QuantizationScheme::Channel, QuantizationScheme::Groups)
}

/// Returns the type of table indices. Before iOS 18 they are packed into bytes, and the table's
/// size determines their bits.
fn index_type(indices: &Type, lut: Option<&Type>) -> String {
    let packed = lut.filter(|lut| indices.kind == MilType::Uint8 && lut.dims.len() == 1);
    let values = packed.and_then(Type::count).filter(|values| *values > 1);
    let bits = values.map(|values| values.next_power_of_two().trailing_zeros());
    bits.map_or_else(
        || indices.kind.name().to_owned(),
        |bits| format!("uint{bits}"),
    )
}
