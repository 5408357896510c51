//! `CumProd`: products of the elements up to each one along an axis.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::integer;
use crate::frontends::onnx::node_operator::{Built, Wired, axis_of, integers_of, same_shape};
use crate::graph::kernel::Kernel;

const NAME: &str = "CumProd";

/// Builds a `CumProd`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let [reverse, exclusive] = ["reverse", "exclusive"].map(|name| integer(node, name, 0) != 0);
    let of = CumulativeProduct { reverse, exclusive };
    same_shape(NAME, 2, [None; 2], move |prefix, model, inputs| {
        of.wire(prefix, model, inputs)
    })
}

#[derive(Debug, Clone, Copy)]
struct CumulativeProduct {
    /// From the last element to the first one.
    reverse: bool,
    /// Without the element itself.
    exclusive: bool,
}

impl CumulativeProduct {
    fn wire(self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let dtype = fact.datum_type;
        ensure!(
            [f16::datum_type(), f32::datum_type(), f64::datum_type()].contains(&dtype)
                || dtype.is_integer(),
            "products of {dtype:?} are not supported"
        );
        let kernel = Kernel::new(NAME, tvec!(fact), move |inputs| {
            let data = &inputs[0];
            let axis = match integers_of(&inputs[1])?[..] {
                [axis] => axis_of(axis, data.rank())?,
                ref other => bail!("expected one axis, got {other:?}"),
            };
            let dtype = data.datum_type();
            let products = if dtype.is_float() {
                let wide = data.cast_to::<f64>()?.into_owned();
                // Each product has the precision of the tensor.
                let round: fn(f64) -> f64 = match dtype {
                    DatumType::F16 => |value| f16::from_f64(value).to_f64(),
                    #[expect(clippy::cast_possible_truncation, reason = "it rounds to float32")]
                    DatumType::F32 => |value| f64::from(value as f32),
                    _ => |value| value,
                };
                self.products(wide, axis, 1.0, |a: f64, b| round(a * b))?
            } else {
                let wide = data.cast_to::<i64>()?.into_owned();
                self.products(wide, axis, 1, i64::wrapping_mul)?
            };
            Ok(tvec!(products.cast_to_dt(dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, inputs)
    }

    fn products<T: Datum + Copy>(
        self,
        mut data: Tensor,
        axis: usize,
        one: T,
        times: impl Fn(T, T) -> T,
    ) -> TractResult<Tensor> {
        let size = data.shape()[axis];
        let inner: usize = data.shape()[axis + 1..].iter().product();
        let block = size * inner;
        if block == 0 {
            return Ok(data);
        }
        let mut view = data.try_as_plain_ram_mut()?;
        for block in view.as_slice_mut::<T>()?.chunks_exact_mut(block) {
            for at in 0..inner {
                let mut product = one;
                for step in 0..size {
                    let step = if self.reverse { size - 1 - step } else { step };
                    let element = &mut block[step * inner + at];
                    let next = times(product, *element);
                    *element = if self.exclusive { product } else { next };
                    product = next;
                }
            }
        }
        Ok(data)
    }
}
