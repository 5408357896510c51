//! Products of dynamically quantised rows with 4-bit or 8-bit weights, which stay packed in memory.

use tract_onnx::tract_core::internal::*;

use super::{Held, XnnpackLowering, constant};
use crate::graph::rows::product_of_rows;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::rows::{MatrixSizes, QuantizedRowProduct};

impl XnnpackLowering<'_> {
    /// Lowers a product with constant weights. Returns whether a kernel supports it.
    pub(super) fn packed(
        &mut self,
        [input, filter, output]: [u32; 3],
        bias: Option<u32>,
        transposed: bool,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let Some(Held::Rows {
            real: Some(real), ..
        }) = self.held.get(&input).copied()
        else {
            return Ok(false);
        };
        let Some(product) = self.dynamic_product(filter, bias, transposed)? else {
            return Ok(false);
        };
        let MatrixSizes {
            inputs, outputs, ..
        } = product.sizes();
        let shape = self.builder.shape(real)?;
        let last = shape.last().and_then(|last| last.to_usize().ok());
        ensure!(
            last == Some(inputs),
            "rows of size {:?} do not match weights for {inputs} inputs",
            shape.last()
        );
        let bytes = product.bytes();
        let run = move |rows, from: &[&[f32]], to: &mut [f32], split| {
            product.run(rows, from[0], to, split)
        };
        let kernel = product_of_rows("PackedProduct", &shape, outputs, bytes, run)?;
        let outlet = self.builder.wire(kernel, &[real])?;
        self.output(output, outlet, clamp)?;
        Ok(true)
    }

    /// Returns the product with these constants.
    ///
    /// Returns `None` unless the weights are low-bit integers with a scale for each output, or for
    /// groups of its inputs.
    fn dynamic_product(
        &mut self,
        filter: u32,
        bias: Option<u32>,
        transposed: bool,
    ) -> TractResult<Option<QuantizedRowProduct>> {
        let bias = match bias {
            None => None,
            Some(id) if self.value(id).data.is_none() => return Ok(None),
            Some(id) => Some(constant::read(self.weights, self.value(id))?),
        };
        let Some(weights) = constant::read_packed(self.weights, self.value(filter))? else {
            return Ok(None);
        };
        let [rows, columns] = weights.sizes;
        let (outputs, inputs) = if transposed {
            (columns, rows)
        } else {
            (rows, columns)
        };
        let scales = match (weights.group, weights.scales.as_slice()) {
            (Some(_), _) if transposed => return Ok(None),
            (None, [scale]) => vec![*scale; outputs],
            (_, scales) => scales.to_vec(),
        };
        let sizes = MatrixSizes {
            inputs,
            outputs,
            group: weights.group.unwrap_or(inputs),
        };
        let weight = |output: usize, input: usize| {
            weights.element(if transposed {
                input * outputs + output
            } else {
                output * inputs + input
            })
        };
        let view = bias.as_ref().map(|bias| bias.try_as_plain_ram());
        let view = view.transpose()?;
        let bias = view.as_ref().map(PlainView::as_slice::<f32>);
        let bias = bias.transpose()?;
        let product =
            QuantizedRowProduct::new(Cpu::chosen(), weights.bits, sizes, weight, &scales, bias);
        Ok(Some(product.map_err(|told| format_err!("{told}"))?))
    }
}
