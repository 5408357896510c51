//! Quantised values as bytes, and the nodes that compute on bytes.
//!
//! A quantised value is a `u8` tensor in the graph, whether its integers are signed or not; its
//! [`Grid`] gives the meaning of a byte. All arithmetic matches XNNPACK's, bit for bit. Nodes that
//! only move elements use tract's own operators on bytes.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};

use super::{Held, XnnpackLowering, effective_clamp, grid};
use crate::graph::builder::{Builder, Wire, ranked};
use crate::graph::images::{ImageWindows, over_images};
use crate::graph::kernel::Kernel;
use crate::graph::pool::computed;
use crate::tensor::DType;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange, PairGrids, clamp};
use pkgtool_kernels::bytes::pool::{Mean, MeanRounding, max_pool};
use pkgtool_kernels::window::WindowPositions;
use pkgtool_kernels::{Cpu, Split};
use pkgtool_model::executorch::xnnpack::{BinaryKind, PoolWindow};

/// Returns the integers of a grid to which a node's result is clamped.
pub(super) fn clamp_range(grid: Grid, clamp: Option<(f32, f32)>) -> IntegerRange {
    let (least, most) = grid.sign.range();
    let Some(real) = effective_clamp(clamp) else {
        return IntegerRange::whole(grid.sign);
    };
    let place = |x: f32| {
        let place = (f64::from(x) / f64::from(grid.scale)).round_ties_even();
        #[expect(clippy::cast_possible_truncation, reason = "clamped to 30 bits")]
        let place = place.clamp(-1e9, 1e9) as i32;
        (place + grid.zero_point).clamp(least, most)
    };
    let most = place(real.1);
    IntegerRange {
        least: place(real.0).min(most),
        most,
    }
}

/// Returns the dtype of a grid's integers in the program.
const fn dtype(grid: Grid) -> DType {
    match grid.sign {
        Sign::Signed => DType::Int8,
        Sign::Unsigned => DType::Uint8,
    }
}

/// Adds an operator on the run's threads, whose inputs and output all have the same shape.
pub(super) fn elementwise_kernel<F: Datum + Copy, T: Datum + Copy>(
    builder: &mut Builder,
    name: &'static str,
    inputs: &[OutletId],
    work: impl Fn(&[&[F]], &mut [T], Split) -> Result<(), String> + Send + Sync + 'static,
) -> TractResult<OutletId> {
    let kernel = Kernel::of_elements(name, T::datum_type(), move |inputs| {
        Ok(tvec!(computed(inputs[0].shape(), inputs, &work)?))
    });
    builder.wire(kernel, inputs)
}

/// Converts the method's integers to bytes on a grid, in the order of the delegate's memory.
pub(super) fn to_grid_bytes(
    builder: &mut Builder,
    wire: Wire,
    order: &[usize],
    grid: Grid,
) -> TractResult<OutletId> {
    let integers = builder.cast(wire, dtype(grid))?;
    let outlet = builder.transpose(integers.outlet, order)?;
    match grid.sign {
        Sign::Unsigned => Ok(outlet),
        Sign::Signed => {
            elementwise_kernel::<i8, u8>(builder, "ToBytes", &[outlet], |from, to, _| {
                let each = to.iter_mut().zip(from[0]);
                each.for_each(|(to, from)| *to = from.cast_unsigned());
                Ok(())
            })
        }
    }
}

/// Converts bytes on a grid to the method's integers.
pub(super) fn given(builder: &mut Builder, outlet: OutletId, grid: Grid) -> TractResult<Wire> {
    let outlet = match grid.sign {
        Sign::Unsigned => outlet,
        Sign::Signed => {
            elementwise_kernel::<u8, i8>(builder, "OfBytes", &[outlet], |from, to, _| {
                let each = to.iter_mut().zip(from[0]);
                each.for_each(|(to, from)| *to = from.cast_signed());
                Ok(())
            })?
        }
    };
    Ok(Wire::new(outlet, dtype(grid)))
}

/// Dequantises bytes to real numbers.
pub(super) fn real(builder: &mut Builder, outlet: OutletId, grid: Grid) -> TractResult<OutletId> {
    let cpu = Cpu::chosen();
    let work =
        move |from: &[&[u8]], to: &mut [f32], split| grid.dequantize(cpu, from[0], to, split);
    elementwise_kernel(builder, "OfGrid", &[outlet], work)
}

/// Quantises real numbers to bytes.
pub(super) fn rounded(
    builder: &mut Builder,
    outlet: OutletId,
    (grid, range): (Grid, IntegerRange),
) -> TractResult<OutletId> {
    let cpu = Cpu::chosen();
    let work =
        move |from: &[&[f32]], to: &mut [u8], split| grid.quantize(cpu, range, from[0], to, split);
    elementwise_kernel(builder, "ToGrid", &[outlet], work)
}

impl XnnpackLowering<'_> {
    /// Returns a value as bytes with its grid, if it is quantised.
    pub(super) fn bytes(&self, id: u32) -> TractResult<Option<(OutletId, Grid)>> {
        let Some(Held::Bytes(outlet)) = self.held.get(&id).copied() else {
            return Ok(None);
        };
        Ok(grid(self.value(id))?.map(|grid| (outlet, grid)))
    }

    /// Returns a value with its own grid and the output's grid, if both are quantised.
    fn input_with_grids(
        &self,
        [input, output]: [u32; 2],
    ) -> TractResult<Option<(OutletId, Grid, Grid)>> {
        let found = (self.bytes(input)?, grid(self.value(output))?);
        let (Some((outlet, from)), Some(to)) = found else {
            return Ok(None);
        };
        Ok(Some((outlet, from, to)))
    }

    /// Requantises bytes from one grid to another, clamped to a range.
    fn regrid(
        &mut self,
        outlet: OutletId,
        (from, to): (Grid, Grid),
        range: IntegerRange,
    ) -> TractResult<OutletId> {
        let cpu = Cpu::chosen();
        if from != to {
            let work = move |bytes: &[&[u8]], output: &mut [u8], split| {
                from.requantize(cpu, (to, range), bytes[0], output, split)
            };
            return elementwise_kernel(self.builder, "Regrid", &[outlet], work);
        }
        if range == IntegerRange::whole(to.sign) {
            return Ok(outlet);
        }
        let work = move |bytes: &[&[u8]], output: &mut [u8], split| {
            clamp(cpu, (to.sign, range), bytes[0], output, split)
        };
        elementwise_kernel(self.builder, "ClampBytes", &[outlet], work)
    }

    /// Lowers a node that only moves elements, with `how`. Returns whether the value is quantised.
    pub(super) fn bytes_moved(
        &mut self,
        [input, output]: [u32; 2],
        clamp: Option<(f32, f32)>,
        how: impl FnOnce(&mut Self, OutletId) -> TractResult<OutletId>,
    ) -> TractResult<bool> {
        let Some((outlet, from, to)) = self.input_with_grids([input, output])? else {
            return Ok(false);
        };
        let moved = how(self, outlet)?;
        let outlet = self.regrid(moved, (from, to), clamp_range(to, clamp))?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Lowers a sum, difference or product of bytes. Returns whether all values are quantised.
    pub(super) fn bytes_binary(
        &mut self,
        kind: BinaryKind,
        [a, b, output]: [u32; 3],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let (Some((left, of_left)), Some((right, of_right)), Some(to)) =
            (self.bytes(a)?, self.bytes(b)?, grid(self.value(output))?)
        else {
            return Ok(false);
        };
        let pair = PairGrids {
            inputs: [of_left, of_right],
            output: to,
            range: clamp_range(to, clamp),
        };
        let sum = match kind {
            BinaryKind::Add | BinaryKind::Subtract => {
                let sum = pair.fixed_sum(kind == BinaryKind::Subtract);
                if sum.is_none() {
                    return Ok(false);
                }
                sum
            }
            BinaryKind::Multiply => None,
            _ => return Ok(false),
        };
        let shape = self.builder.broadcast_shape(&[left, right])?;
        let left = self.builder.expand(left, &shape)?;
        let right = self.builder.expand(right, &shape)?;
        let cpu = Cpu::chosen();
        let work = move |from: &[&[u8]], to: &mut [u8], split| match sum {
            Some(sum) => pair.add(cpu, sum, [from[0], from[1]], to, split),
            None => pair.multiply(cpu, [from[0], from[1]], to, split),
        };
        let name = if sum.is_some() {
            "AddBytes"
        } else {
            "MultiplyBytes"
        };
        let outlet = elementwise_kernel(self.builder, name, &[left, right], work)?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Lowers the mean over each image, by channel. Returns whether input and output are quantised.
    pub(super) fn bytes_average(
        &mut self,
        [input, output]: [u32; 2],
        keep: bool,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let Some((outlet, from, to)) = self.input_with_grids([input, output])? else {
            return Ok(false);
        };
        let shape = self.builder.shape(outlet)?;
        let [images, _, _, channels] = ranked(&shape, "an image")?;
        let one = TDim::Val(1);
        let shape = if keep {
            vec![images.clone(), one.clone(), one, channels.clone()]
        } else {
            vec![images.clone(), channels.clone()]
        };
        let range = clamp_range(to, clamp);
        let rounding = MeanRounding::Fused;
        let mean = Mean {
            from,
            to,
            range,
            rounding,
        };
        let cpu = Cpu::chosen();
        let kernel = Kernel::new("MeanBytes", tvec!(u8::fact(&shape)), move |inputs| {
            let &[images, height, width, channels] = inputs[0].shape() else {
                bail!(
                    "invalid rank of an image: expected 4, got {}",
                    inputs[0].rank()
                );
            };
            let shape: &[usize] = if keep {
                &[images, 1, 1, channels]
            } else {
                &[images, channels]
            };
            let sizes = [images, height * width, channels];
            let work = |from: &[&[u8]], to: &mut [u8], split| {
                mean.of_images(cpu, sizes, from[0], to, split)
            };
            Ok(tvec!(computed(shape, inputs, work)?))
        });
        let outlet = self.builder.wire(kernel, &[outlet])?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Lowers max pooling. Returns whether input and output are quantised.
    pub(super) fn bytes_max_pool(
        &mut self,
        pool: &PoolWindow,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        self.bytes_moved([pool.input, pool.output], clamp, |lowering, input| {
            let Some(grid) = grid(lowering.value(pool.input))? else {
                bail!("value {} is not quantised", pool.input);
            };
            let spec = lowering
                .pool_window(input, pool)?
                .over(lowering.builder, input)?;
            let fact = lowering.builder.model.outlet_fact(input)?;
            let windows = ImageWindows::over(&spec, &fact.shape[1..3]).map_err(TractError::msg)?;
            let (window, cpu) = (windows.window, Cpu::chosen());
            let channels = spec.input_channels;
            let run = move |placed: &WindowPositions, from: &[&[u8]], to: &mut [u8], split| {
                max_pool(
                    cpu,
                    grid.sign,
                    (&window, placed),
                    channels,
                    from[0],
                    to,
                    split,
                )
            };
            let kernel = over_images("LargestBytes", windows, fact, 0, run)?;
            lowering.builder.wire(kernel, &[input])
        })
    }

    /// Lowers a concatenation. Returns whether all values are quantised.
    pub(super) fn bytes_concatenate(
        &mut self,
        axis: i64,
        (inputs, output): (&[u32], u32),
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let mut pairs = Vec::new();
        for input in inputs {
            match self.input_with_grids([*input, output])? {
                Some(pair) => pairs.push(pair),
                None => return Ok(false),
            }
        }
        let mut outlets = Vec::new();
        for (outlet, from, to) in pairs {
            outlets.push(self.regrid(outlet, (from, to), clamp_range(to, clamp))?);
        }
        let outlet = self.concatenate(axis, &outlets)?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Lowers constant padding. Returns whether input and output are quantised.
    pub(super) fn bytes_pad(
        &mut self,
        [input, output]: [u32; 2],
        (before, after): (&[u64], &[u64]),
        value: f32,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let Some((outlet, from, to)) = self.input_with_grids([input, output])? else {
            return Ok(false);
        };
        let range = clamp_range(to, clamp);
        let outlet = self.regrid(outlet, (from, to), range)?;
        let mut byte = [0];
        to.quantize(Cpu::PLAIN, range, &[value], &mut byte, Split::ONE)
            .map_err(TractError::msg)?;
        let op = Pad {
            pads: self.pads(outlet, before, after)?,
            mode: PadMode::Constant(Arc::new(tensor0(byte[0]))),
        };
        let outlet = self.builder.wire(op, &[outlet])?;
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_an_order() {
        let grid = Grid {
            sign: Sign::Signed,
            scale: 0.5,
            zero_point: -3,
        };
        let of = |least, most| {
            let range = clamp_range(grid, Some((least, most)));
            (range.least, range.most)
        };
        assert_eq!(of(0.0, 6.0), (-3, 9));
        assert_eq!(of(f32::NEG_INFINITY, 1e30), (-128, 127));
        assert_eq!(of(0.25, f32::INFINITY), (-3, 127));
        assert_eq!(of(2.0, 1.0), (-1, -1));
        assert_eq!(of(f32::NAN, 1.0), (-3, -1));
    }
}
