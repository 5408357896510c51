//! How weights are stored that an operation makes floats of (`constexpr_…`).

use std::collections::BTreeMap;

use super::super::content::{Scheme, Stored};
use super::program::{Kind, Type};

/// A value that an operation takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Operand {
    /// Its type.
    pub(super) ty: Type,
    /// Whether it is in the weight file.
    pub(super) in_file: bool,
}

/// Values by the names of arguments or attributes.
pub(super) type Operands = BTreeMap<String, Operand>;

impl Operand {
    /// Elements that stand for themselves.
    pub(super) fn plain(&self) -> Stored {
        Stored::plain(self.ty.kind.name())
    }
}

/// How the weights of an operation are stored; nothing where they come from another one.
pub(super) fn stored(kind: &str, operands: &Operands, result: &Type) -> Option<Stored> {
    let ty = |name: &str| operands.get(name).map(|operand| &operand.ty);
    let steps = |codes: &Type, scheme| Stored::steps(codes.kind.name(), scheme);
    match kind {
        "constexpr_blockwise_shift_scale" => {
            let codes = ty("data")?;
            Some(steps(codes, blocks(codes, ty("scale"))))
        }
        "constexpr_sparse_blockwise_shift_scale" => {
            let codes = ty("nonzero_data")?;
            Some(steps(codes, blocks(result, ty("scale"))))
        }
        "constexpr_affine_dequantize" => {
            let codes = ty("quantized_data")?;
            let several = ty("scale").and_then(Type::count).unwrap_or(1) > 1;
            let scheme = if several {
                Scheme::Channel
            } else {
                Scheme::Tensor
            };
            Some(steps(codes, scheme))
        }
        "constexpr_lut_to_dense" | "constexpr_lut_to_sparse" => {
            let indices = ty("indices").or_else(|| ty("indices_nonzero_data"))?;
            Some(Stored::steps(&code(indices, ty("lut")), Scheme::Palette))
        }
        "constexpr_sparse_to_dense" => Some(Stored::plain(ty("nonzero_data")?.kind.name())),
        "constexpr_cast" => Some(Stored::plain(ty("source_val")?.kind.name())),
        _ => None,
    }
}

/// Which elements share a scale, by how often its sizes go into those of the codes.
fn blocks(codes: &Type, scale: Option<&Type>) -> Scheme {
    let Some(scale) = scale.filter(|scale| scale.dims.len() == codes.dims.len()) else {
        return Scheme::Steps;
    };
    if scale.dims.iter().all(|size| *size == Some(1)) {
        return Scheme::Tensor;
    }
    let dims = codes.dims.iter().zip(&scale.dims);
    let mut groups = dims.filter_map(|(codes, scales)| match (*codes, *scales) {
        (Some(codes), Some(scales)) if scales > 1 && codes > scales => Some(codes / scales),
        _ => None,
    });
    groups.next().map_or(Scheme::Channel, Scheme::Groups)
}

/// The type of places in a table. Before iOS 18 they are packed into bytes, and the table's size tells their bits.
fn code(indices: &Type, lut: Option<&Type>) -> String {
    let packed = lut.filter(|lut| indices.kind == Kind::Uint8 && lut.dims.len() == 1);
    let values = packed.and_then(Type::count).filter(|values| *values > 1);
    let bits = values.map(|values| values.next_power_of_two().trailing_zeros());
    bits.map_or_else(
        || indices.kind.name().to_owned(),
        |bits| format!("uint{bits}"),
    )
}
