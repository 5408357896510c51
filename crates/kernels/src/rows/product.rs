//! Products of float32 rows with packed low-bit weights.

use std::fmt;

use super::super::{Cpu, Split};
use super::levels::panels;
use super::panels::{Bits, MatrixSizes, PANEL, PanelLanes, RowPanels};
use super::quantize::Quantized;
use super::work::{Inputs, Reals, RowWork};

/// Weights, with the instruction set that they are multiplied with.
struct PackedRows {
    cpu: Cpu,
    bits: Bits,
    sizes: MatrixSizes,
    panels: RowPanels,
}

impl PackedRows {
    fn new(
        cpu: Cpu,
        bits: Bits,
        sizes: MatrixSizes,
        weight: impl Fn(usize, usize) -> i8,
        scales: &[f32],
        biases: Option<&[f32]>,
    ) -> Result<Self, String> {
        sizes.check(scales.len())?;
        if let Some(biases) = biases.filter(|biases| biases.len() != sizes.outputs) {
            let (found, outputs) = (biases.len(), sizes.outputs);
            return Err(format!(
                "wrong number of biases: got {found} for {outputs} outputs"
            ));
        }
        Ok(Self {
            cpu,
            bits,
            sizes,
            panels: RowPanels::pack(bits, sizes, weight, scales, biases),
        })
    }

    /// Checks lengths against the sizes.
    fn check(&self, rows: usize, input: &[f32], output: &[f32]) -> Result<(), String> {
        let MatrixSizes {
            inputs, outputs, ..
        } = self.sizes;
        let expected = (rows.checked_mul(inputs), rows.checked_mul(outputs));
        if expected == (Some(input.len()), Some(output.len())) {
            return Ok(());
        }
        Err(format!(
            "{rows} rows of {inputs} inputs and {outputs} outputs do not match {} and {} elements",
            input.len(),
            output.len()
        ))
    }

    /// Computes panel by panel, so that threads do not share weights. Lengths must be checked
    /// before.
    fn run(&self, rows: usize, inputs: Inputs<'_>, output: &mut [f32], split: Split) {
        if rows == 0 {
            return;
        }
        let work = RowWork {
            bits: self.bits,
            sizes: self.sizes,
            panels: &self.panels,
            rows,
            inputs,
        };
        let mut sums: Vec<PanelLanes<f32>> = vec![[0.0; PANEL]; self.sizes.panels() * rows];
        let cost = rows * self.sizes.inputs * PANEL;
        split.rows(&mut sums, rows, cost, |first, sums| {
            panels(self.cpu, &work, first, sums);
        });
        let outputs = self.sizes.outputs;
        split.rows(output, outputs, outputs, |first, output| {
            for (row, output) in (first..).zip(output.chunks_exact_mut(outputs)) {
                let (panels, rest) = output.as_chunks_mut::<PANEL>();
                let mut sums = sums.iter().skip(row).step_by(rows);
                for (to, sums) in panels.iter_mut().zip(&mut sums) {
                    *to = *sums;
                }
                if let Some(sums) = sums.next() {
                    rest.copy_from_slice(&sums[..rest.len()]);
                }
            }
        });
    }
}

/// Products of float32 rows with packed weights; rows are quantised like in XNNPACK's dynamic
/// quantisation.
///
/// Shapes: `[rows, inputs] × [outputs, inputs] → [rows, outputs]`, in float32.
pub struct QuantizedRowProduct(PackedRows);

impl QuantizedRowProduct {
    /// Packs weights; `weight` returns the weight of an output and an input. `scales` are those of
    /// each output's groups, `biases` those of each output.
    pub fn new(
        cpu: Cpu,
        bits: Bits,
        sizes: MatrixSizes,
        weight: impl Fn(usize, usize) -> i8,
        scales: &[f32],
        biases: Option<&[f32]>,
    ) -> Result<Self, String> {
        PackedRows::new(cpu, bits, sizes, weight, scales, biases).map(Self)
    }

    /// Computes `rows` rows.
    pub fn run(
        &self,
        rows: usize,
        input: &[f32],
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        self.0.check(rows, input, output)?;
        let sizes = self.0.sizes;
        let quantized = Quantized::of(
            (self.0.cpu, self.0.bits),
            input,
            [sizes.inputs, sizes.group],
            split,
        );
        let inputs = Inputs::Rounded(&quantized);
        self.0.run(rows, inputs, output, split);
        Ok(())
    }

    /// Returns the sizes of the weights.
    pub fn sizes(&self) -> MatrixSizes {
        self.0.sizes
    }

    /// Returns the memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.panels.bytes()
    }
}

/// Products of unmodified float32 rows with packed weights.
///
/// Shapes: `[rows, inputs] × [outputs, inputs] → [rows, outputs]`, in float32.
pub struct FloatRowProduct {
    packed: PackedRows,
    zeros: Vec<PanelLanes<u8>>,
}

impl fmt::Debug for FloatRowProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FloatRowProduct({:?})", self.packed.sizes)
    }
}

impl FloatRowProduct {
    /// Packs weights; `weight` returns the weight of an output and an input.
    ///
    /// `scales` and zero points are those of each output's groups. Zero points are unsigned like
    /// the weights. Without zero points they are half of the range, 8 or 128. The group size must
    /// be a multiple of eight.
    pub fn new(
        cpu: Cpu,
        bits: Bits,
        sizes: MatrixSizes,
        weight: impl Fn(usize, usize) -> u8,
        scales: &[f32],
        zeros: Option<&[u8]>,
    ) -> Result<Self, String> {
        if !sizes.group.is_multiple_of(8) {
            return Err(format!(
                "invalid group size {}: expected a multiple of 8",
                sizes.group
            ));
        }
        let signed = |output, input| {
            let weight = weight(output, input);
            match bits {
                Bits::Four => (weight & 15).cast_signed() - 8,
                Bits::Eight => (weight ^ 0x80).cast_signed(),
            }
        };
        let packed = PackedRows::new(cpu, bits, sizes, signed, scales, None)?;
        let mut of_panels = Vec::new();
        if let Some(zeros) = zeros {
            if zeros.len() != scales.len() {
                let (found, expected) = (zeros.len(), scales.len());
                return Err(format!(
                    "wrong number of zero points: got {found} for {expected} scales"
                ));
            }
            let groups = sizes.groups();
            of_panels = vec![[0; PANEL]; sizes.panels() * groups];
            for (at, zero) in zeros.iter().enumerate() {
                let (output, group) = (at / groups, at % groups);
                of_panels[output / PANEL * groups + group][output % PANEL] = *zero;
            }
        }
        Ok(Self {
            packed,
            zeros: of_panels,
        })
    }

    /// Computes `rows` rows.
    pub fn run(
        &self,
        rows: usize,
        input: &[f32],
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        self.packed.check(rows, input, output)?;
        let groups = input.chunks_exact(self.packed.sizes.group);
        let reals = Reals {
            values: input,
            sums: groups.map(|group| group.iter().sum()).collect(),
            zeros: &self.zeros,
        };
        self.packed.run(rows, Inputs::Real(&reals), output, split);
        Ok(())
    }

    /// Returns the memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.packed.panels.bytes() + size_of_val(self.zeros.as_slice())
    }
}
