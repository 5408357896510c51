//! Rows of float32, rounded row by row, times packed weights.

use super::super::{Cpu, Split};
use super::levels::{Work, panels};
use super::panels::{Bits, Lanes, PANEL, Panels, Sizes};
use super::quantize::Quantized;

/// Rows of float32, quantised row by row as XNNPACK's dynamic quantisation does, times packed weights:
/// `[rows, inputs] × [outputs, inputs] → [rows, outputs]` in float32.
pub(crate) struct DynamicProduct {
    cpu: Cpu,
    bits: Bits,
    sizes: Sizes,
    panels: Panels,
}

impl DynamicProduct {
    /// Packs weights: `weight` tells one by its output and its input, `scales` are of each output's groups,
    /// `bias` of each output.
    pub(crate) fn new(
        cpu: Cpu,
        bits: Bits,
        sizes: Sizes,
        weight: impl Fn(usize, usize) -> i8,
        scales: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self, String> {
        sizes.check(scales.len())?;
        if let Some(bias) = bias.filter(|bias| bias.len() != sizes.outputs) {
            return Err(format!(
                "{} biases for {} outputs",
                bias.len(),
                sizes.outputs
            ));
        }
        Ok(Self {
            cpu,
            bits,
            sizes,
            panels: Panels::pack(bits, sizes, weight, scales, bias),
        })
    }

    /// Computes `rows` rows.
    pub(crate) fn run(
        &self,
        rows: usize,
        input: &[f32],
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let Sizes {
            inputs, outputs, ..
        } = self.sizes;
        let expected = (rows.checked_mul(inputs), rows.checked_mul(outputs));
        if expected != (Some(input.len()), Some(output.len())) {
            return Err(format!(
                "{rows} rows of {inputs} inputs and {outputs} outputs, in {} and {} numbers",
                input.len(),
                output.len()
            ));
        }
        if rows == 0 {
            return Ok(());
        }
        let quantized = Quantized::of(input, inputs, self.sizes.group);
        let work = Work {
            bits: self.bits,
            sizes: self.sizes,
            panels: &self.panels,
            rows: &quantized,
        };
        // Panel by panel, so that threads share no weights; a row has what is left of the last panel, too.
        let mut sums: Vec<Lanes<f32>> = vec![[0.0; PANEL]; self.sizes.panels() * rows];
        let cost = rows * inputs * PANEL;
        split.rows(&mut sums, rows, cost, |first, sums| {
            panels(self.cpu, &work, first, sums);
        });
        for (panel, sums) in sums.chunks_exact(rows).enumerate() {
            for (row, sums) in output.chunks_exact_mut(outputs).zip(sums) {
                let to = row.iter_mut().skip(panel * PANEL);
                to.zip(sums).for_each(|(to, sum)| *to = *sum);
            }
        }
        Ok(())
    }

    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.panels.bytes()
    }
}
