//! Quantisation with a grid that the run determines, and products of such bytes with a stored
//! matrix.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::node;
use super::product::{QuantisedBytes, matrix_sizes};
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::dynamic::quantise;
use crate::graph::kernel::Kernel;
use crate::graph::pool::{computed_from_bytes, computed_to_bytes};
use crate::graph::rows::{rules_of_rows, turned, with_last};
use pkgtool_kernels::bytes::{Sign, SumProduct};
use pkgtool_kernels::{Cpu, Split};

/// Builds a product.
pub(super) fn build_product(_: &ParsingContext, node: &NodeProto) -> Built {
    let product = DynamicProduct {
        sizes: matrix_sizes(node)?,
        weights: QuantisedBytes::of(node)?,
    };
    operator(node::SUMS, None, product)
}

/// A `DynamicQuantizeLinear`.
#[derive(Debug, Clone)]
pub(super) struct DynamicQuantization;

impl NodeOperator for DynamicQuantization {
    fn outputs(&self) -> usize {
        3
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, f32::datum_type())?;
        s.equals(&outputs[0].datum_type, u8::datum_type())?;
        s.equals(&outputs[1].datum_type, f32::datum_type())?;
        s.equals(&outputs[2].datum_type, u8::datum_type())?;
        s.equals(&outputs[1].rank, 0)?;
        s.equals(&outputs[2].rank, 0)?;
        s.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let facts = tvec!(
            u8::fact(shape),
            f32::fact([0_usize; 0]),
            u8::fact([0_usize; 0])
        );
        let kernel = Kernel::new("QuantizeRun", facts, move |inputs| {
            let mut grid = None;
            let work = |from: &[&[f32]], to: &mut [u8], split: Split| {
                grid = Some(quantise(from[0], to, split)?);
                Ok(())
            };
            let bytes = computed_to_bytes(DatumType::U8, inputs[0].shape(), inputs, work)?;
            let grid = grid.context("the numbers were not read")?;
            let zero = grid.sign.byte(grid.zero_point);
            let scale = Arc::new(tensor0(grid.scale));
            Ok(tvec!(bytes, scale, Arc::new(tensor0(zero))))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

#[derive(Debug, Clone)]
struct DynamicProduct {
    /// Inputs and outputs of a row.
    sizes: [usize; 2],
    weights: QuantisedBytes,
}

impl NodeOperator for DynamicProduct {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&outputs[0].datum_type, i32::datum_type())?;
        if let Some(zero) = inputs.get(2) {
            s.equals(&inputs[0].datum_type, &zero.datum_type)?;
        }
        rules_of_rows(s, [&inputs[0], &outputs[0]], self.sizes)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let rows = model.outlet_fact(inputs[0])?;
        let sign = match rows.datum_type {
            DatumType::I8 => Sign::Signed,
            DatumType::U8 => Sign::Unsigned,
            other => bail!("expected rows of bytes, got {other:?}"),
        };
        let [_, outputs] = self.sizes;
        let weights = turned(&self.weights.signed(model, inputs[1])?, outputs);
        let (cpu, zeros) = (Cpu::chosen(), self.weights.zeros());
        let product = SumProduct::new(cpu, self.sizes, &weights, &zeros, sign);
        let product = product.map_err(TractError::msg)?;
        let bytes = product.bytes();
        let shape = rows.shape.to_tvec();
        let facts = tvec!(i32::fact(with_last(&shape, outputs.to_dim())?));
        let kernel = Kernel::new("SumByteRows", facts, move |inputs| {
            let zero = inputs.get(1).map(|zero| zero_point(zero)).transpose()?;
            let shape = with_last(inputs[0].shape(), outputs)?;
            let sums = |from: &[&[u8]], to: &mut [i32], split| {
                product.run(zero.unwrap_or(0), from[0], to, split)
            };
            Ok(tvec!(computed_from_bytes(&shape, &inputs[..1], sums)?))
        });
        let mut wires = tvec!(inputs[0]);
        wires.extend(inputs.get(2).copied());
        model.wire_node(prefix, kernel.with_weight_bytes(bytes), &wires)
    }
}

/// Returns the zero point of all rows.
fn zero_point(tensor: &Tensor) -> TractResult<i32> {
    ensure!(
        tensor.len() == 1,
        "expected one zero point for all rows, got {}",
        tensor.len()
    );
    tensor.cast_to_scalar::<i32>()
}
