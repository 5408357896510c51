//! `Mod` with broadcasting of either operand: the library's code drops the broadcasting of the
//! first one.

use half::f16;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::change_axes::wire_rank_broadcast;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::binary::{rules, wire_cast};

use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::kernel::Kernel;

/// Builds `Mod`.
pub(crate) fn modulo(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let truncates = node.get_attr_opt::<i64>("fmod")? == Some(1);
    operator("Mod", None, Modulo { truncates })
}

#[derive(Debug, Clone)]
struct Modulo {
    /// Is `true` if the result has the sign of the dividend, like C's `fmod`, and `false` for that
    /// of the divisor.
    truncates: bool,
}

impl NodeOperator for Modulo {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        rules(s, inputs, outputs, |left, right| {
            left.common_super_type(right)
                .with_context(|| format!("{left:?} and {right:?} have no common dtype"))
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let types = inputs
            .iter()
            .map(|input| Ok(model.outlet_fact(*input)?.datum_type));
        let types = types.collect::<TractResult<Vec<_>>>()?;
        let dtype =
            DatumType::super_type_for(&types).context("the operands have no common dtype")?;
        let wires = wire_rank_broadcast(prefix, model, inputs)?;
        let wires = wire_cast(prefix, model, &wires, dtype)?;
        if dtype == TDim::datum_type() {
            return model.wire_node(prefix, tract_onnx::tract_hir::ops::math::rem(), &wires);
        }
        let shape = multi_broadcast(&[
            &*model.outlet_fact(wires[0])?.shape,
            &*model.outlet_fact(wires[1])?.shape,
        ])?;
        let truncates = self.truncates;
        let kernel = Kernel::new("Mod", tvec!(dtype.fact(shape)), move |inputs| {
            let [left, right] = inputs else {
                bail!("Mod needs two tensors");
            };
            Ok(tvec!(remainder(left, right, truncates)?))
        });
        model.wire_node(prefix, kernel, &wires)
    }
}

/// The operations of a number type for a remainder.
trait RemainderNumber: Datum + Copy {
    /// Returns the remainder with the dividend's sign; `None` for a division by zero.
    fn truncated(self, other: Self) -> Option<Self>;
    /// Returns the remainder with the divisor's sign.
    fn floored(self, other: Self) -> Option<Self>;
}

macro_rules! whole {
    ($($t:ty),*) => {$(
        impl RemainderNumber for $t {
            fn truncated(self, other: Self) -> Option<Self> {
                (other != 0).then(|| self.wrapping_rem(other))
            }

            #[allow(unused_comparisons, reason = "for unsigned numbers too")]
            fn floored(self, other: Self) -> Option<Self> {
                let rest = self.truncated(other)?;
                Some(if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest })
            }
        }
    )*};
}
whole!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! real {
    ($($t:ty: $zero:expr),*) => {$(
        impl RemainderNumber for $t {
            fn truncated(self, other: Self) -> Option<Self> {
                Some(self % other)
            }

            fn floored(self, other: Self) -> Option<Self> {
                let rest = self % other;
                Some(if rest != $zero && (rest < $zero) != (other < $zero) {
                    rest + other
                } else {
                    rest
                })
            }
        }
    )*};
}
real!(f16: f16::ZERO, f32: 0.0, f64: 0.0);

fn remainder(left: &Tensor, right: &Tensor, truncates: bool) -> TractResult<Tensor> {
    fn of<T: RemainderNumber>(
        left: &Tensor,
        right: &Tensor,
        truncates: bool,
    ) -> TractResult<Tensor> {
        let shape = multi_broadcast(&[left.shape(), right.shape()])?;
        let left = left.broadcast_to_shape(&shape)?;
        let right = right.broadcast_to_shape(&shape)?;
        let mut result = Tensor::zero_dt(T::datum_type(), &shape)?;
        {
            let (left, right) = (left.try_as_plain_ram()?, right.try_as_plain_ram()?);
            let mut view = result.try_as_plain_ram_mut()?;
            let pairs = left.as_slice::<T>()?.iter().zip(right.as_slice::<T>()?);
            for (to, (left, right)) in view.as_slice_mut::<T>()?.iter_mut().zip(pairs) {
                let rest = if truncates {
                    left.truncated(*right)
                } else {
                    left.floored(*right)
                };
                *to = rest.context("Mod divides by zero")?;
            }
        }
        Ok(result)
    }
    match left.datum_type() {
        DatumType::I8 => of::<i8>(left, right, truncates),
        DatumType::I16 => of::<i16>(left, right, truncates),
        DatumType::I32 => of::<i32>(left, right, truncates),
        DatumType::I64 => of::<i64>(left, right, truncates),
        DatumType::U8 => of::<u8>(left, right, truncates),
        DatumType::U16 => of::<u16>(left, right, truncates),
        DatumType::U32 => of::<u32>(left, right, truncates),
        DatumType::U64 => of::<u64>(left, right, truncates),
        DatumType::F16 => of::<f16>(left, right, truncates),
        DatumType::F32 => of::<f32>(left, right, truncates),
        DatumType::F64 => of::<f64>(left, right, truncates),
        other => bail!("Mod is not supported for {other:?}"),
    }
}
