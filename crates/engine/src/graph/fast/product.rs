//! Replaces float32 products of rows with a constant matrix by kernels of this crate.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::einsum::EinSum;

use super::chain::Chain;
use crate::graph::rows::{product_of_rows, turned};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::FloatProduct;

/// Returns the replacement of this node and of the chain after it, if it is a float32 product of
/// rows with a constant matrix.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let Some(product) = node.op_as::<EinSum>() else {
        return Ok(None);
    };
    let is_plain = product.q_params.is_none()
        && product.operating_dt == DatumType::F32
        && node.inputs.len() == 2;
    if !is_plain {
        return Ok(None);
    }
    for slot in [1, 0] {
        let known = model.outlet_fact(node.inputs[slot])?.konst.clone();
        let is_float = |it: &Arc<Tensor>| it.datum_type() == DatumType::F32 && it.is_plain_ram();
        let Some(matrix) = known.filter(is_float) else {
            continue;
        };
        if let Some(matrix) = Matrix::of(product, slot, &matrix)? {
            return matrix.patch(model, node, node.inputs[1 - slot], cpu);
        }
    }
    Ok(None)
}

/// A matrix `[outputs, inputs]`.
struct Matrix {
    outputs: usize,
    inputs: usize,
    numbers: Vec<f32>,
}

impl Matrix {
    /// Returns the constant in this slot, if it multiplies rows of the other operand: summed along
    /// their last axis, which the outputs replace.
    fn of(product: &EinSum, slot: usize, constant: &Tensor) -> TractResult<Option<Self>> {
        let (terms, outputs) = product.axes.to_strs();
        let (rows, of_matrix, output) = (&terms[1 - slot], &terms[slot], &outputs[0]);
        let (Some(inner), Some(outer)) = (rows.chars().last(), output.chars().last()) else {
            return Ok(None);
        };
        let lead = &rows[..rows.len() - inner.len_utf8()];
        let is_product = output.strip_suffix(outer) == Some(lead)
            && !lead.contains(inner)
            && !lead.contains(outer)
            && inner != outer;
        let places = |wanted: char| of_matrix.chars().position(|it| it == wanted);
        let (Some(to), Some(from), true) = (places(outer), places(inner), is_product) else {
            return Ok(None);
        };
        // All other axes must have size 1.
        let shape = constant.shape();
        let others = shape.iter().enumerate();
        let mut others = others.filter(|(at, _)| *at != to && *at != from);
        if !others.all(|(_, size)| *size == 1) {
            return Ok(None);
        }
        let (outputs, inputs) = (shape[to], shape[from]);
        let plain = constant.try_as_plain_ram()?;
        let stored = plain.as_slice::<f32>()?;
        let numbers = if to < from {
            stored.to_vec()
        } else {
            turned(stored, outputs)
        };
        let is_empty = outputs == 0 || inputs == 0;
        Ok((!is_empty).then_some(Self {
            outputs,
            inputs,
            numbers,
        }))
    }

    fn patch(
        mut self,
        model: &TypedModel,
        node: &TypedNode,
        rows: OutletId,
        cpu: Cpu,
    ) -> TractResult<Option<TypedModelPatch>> {
        let fact = model.outlet_fact(rows)?;
        let axis = fact.rank() - 1;
        if fact.datum_type != DatumType::F32 || fact.shape[axis] != self.inputs.to_dim() {
            return Ok(None);
        }
        let chain = Chain::after(
            model,
            node.id.into(),
            &self.numbers,
            (self.outputs, axis),
            true,
        )?;
        let each = self.numbers.chunks_exact_mut(self.inputs);
        for ((factor, _), row) in chain.scaled.iter().zip(each) {
            for number in row {
                *number *= factor;
            }
        }
        let bias: Vec<f32> = chain.scaled.iter().map(|(_, summand)| *summand).collect();
        let kernel = FloatProduct::new(
            cpu,
            self.inputs,
            self.outputs,
            &self.numbers,
            Some(&bias),
            chain.activation,
        );
        // The library handles products that the kernel rejects.
        let kernel = kernel.and_then(|kernel| kernel.with_slopes(chain.slopes.as_deref()));
        let Ok(kernel) = kernel else {
            return Ok(None);
        };
        let (shape, bytes) = (fact.shape.to_tvec(), kernel.bytes());
        let run = move |rows, from: &[&[f32]], to: &mut [f32], split| {
            kernel.run(rows, from[0], from.get(1).copied(), to, split)
        };
        let operator = product_of_rows("Multiply", &shape, self.outputs, bytes, run)?;
        let mut patch = TypedModelPatch::new("product on this crate's kernels");
        let mut inputs = tvec!(rows);
        inputs.extend(chain.added);
        let taps = patch.taps(model, &inputs)?;
        let output = patch.wire_node(&node.name, operator, &taps)?;
        patch.shunt_outside(model, chain.end, output[0])?;
        Ok(Some(patch))
    }
}
