//! Elementwise functions of quantised values, as tables of their 256 results.
//!
//! Exporters write such a function in floating point: a conversion to real numbers, the function, and
//! a conversion back to bytes. The table is computed by the same operators.

use tract_onnx::tract_core::internal::*;

use super::bytes::{clamp_range, elementwise_kernel};
use super::{Held, XnnpackLowering, effective_clamp, grid};
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::bytes::table::ByteTable;
use pkgtool_kernels::{Cpu, Split};
use pkgtool_model::executorch::xnnpack::{Datatype, UnaryKind};

/// Real numbers that are a function of bytes.
#[derive(Debug, Clone)]
pub(super) struct ByteFunction {
    /// The bytes.
    bytes: OutletId,
    /// The result for each byte.
    numbers: Vec<f32>,
}

impl ByteFunction {
    /// Returns the numbers of bytes on a grid.
    fn of_grid(bytes: OutletId, grid: Grid) -> TractResult<Self> {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let mut numbers = vec![0.0; all.len()];
        grid.dequantize(Cpu::PLAIN, &all, &mut numbers, Split::ONE)
            .map_err(TractError::msg)?;
        Ok(Self { bytes, numbers })
    }

    /// Applies a function. `None` if it is not elementwise.
    fn then(mut self, kind: UnaryKind, clamp: Option<(f32, f32)>) -> TractResult<Option<Self>> {
        match kind {
            UnaryKind::Clamp | UnaryKind::Convert | UnaryKind::Copy => {}
            UnaryKind::Square => {
                for x in &mut self.numbers {
                    *x *= *x;
                }
            }
            other => {
                let Some(function) = super::node::function(other) else {
                    return Ok(None);
                };
                let mut tensor = tensor1(&self.numbers);
                function.0.eval_in_place(&mut tensor, None)?;
                self.numbers = tensor.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
            }
        }
        if let Some((least, most)) = effective_clamp(clamp)
            && least <= most
        {
            for x in &mut self.numbers {
                *x = x.clamp(least, most);
            }
        }
        Ok(Some(self))
    }
}

impl XnnpackLowering<'_> {
    /// Lowers a function of bytes. Returns whether the output is written: a real output is only
    /// remembered, because a later node may read it as bytes.
    pub(super) fn tabled(
        &mut self,
        kind: UnaryKind,
        [input, output]: [u32; 2],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let mut known = self.functions.get(&input).cloned();
        if known.is_none()
            && let Some((bytes, grid)) = self.bytes(input)?
        {
            known = Some(ByteFunction::of_grid(bytes, grid)?);
        }
        let Some(found) = known
            .map(|known| known.then(kind, clamp))
            .transpose()?
            .flatten()
        else {
            return Ok(false);
        };
        let Some(to) = grid(self.value(output))? else {
            if self.value(output).datatype == Datatype::Fp32 {
                self.functions.insert(output, found);
            }
            return Ok(false);
        };
        let table = ByteTable::new(&found.numbers, to, clamp_range(to, clamp));
        let (table, cpu) = (table.map_err(TractError::msg)?, Cpu::chosen());
        let work =
            move |from: &[&[u8]], to: &mut [u8], split| table.look_up(cpu, from[0], to, split);
        let outlet = elementwise_kernel(self.builder, "TableOfBytes", &[found.bytes], work)?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }
}
