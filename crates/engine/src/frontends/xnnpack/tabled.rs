//! Elementwise functions of quantised values, as tables of their 256 results.
//!
//! Exporters write such a function in floating point: a conversion to real numbers, operators, and
//! a conversion back to bytes. The table is computed by the same operators.

use tract_onnx::tract_core::internal::*;

use super::bytes::{clamp_range, elementwise_kernel};
use super::{Held, XnnpackLowering, constant, effective_clamp, grid};
use crate::graph::kernel::Kernel;
use crate::graph::pool::computed;
use pkgtool_kernels::bytes::elementwise::{AffineChannels, Grid};
use pkgtool_kernels::bytes::table::ByteTable;
use pkgtool_kernels::{Cpu, Split};
use pkgtool_model::executorch::xnnpack::{BinaryKind, Conv, ConvKind, Datatype, UnaryKind};

/// Real numbers that are a function of bytes.
#[derive(Debug, Clone)]
pub(super) struct ByteFunction {
    /// The bytes.
    bytes: OutletId,
    /// Their grid.
    grid: Grid,
    result: FunctionResult,
}

/// The result of a function of bytes.
#[derive(Debug, Clone)]
enum FunctionResult {
    /// The number for each byte.
    Numbers(Vec<f32>),
    /// The number on the grid, multiplied by the slope of its channel if it is negative.
    Sloped(Vec<f32>),
    /// The number on the grid, multiplied by the factor of its channel and shifted.
    Affine(AffineChannels),
}

impl ByteFunction {
    /// Returns the numbers of bytes on a grid.
    fn of_grid(bytes: OutletId, grid: Grid) -> TractResult<Self> {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let mut numbers = vec![0.0; all.len()];
        grid.dequantize(Cpu::PLAIN, &all, &mut numbers, Split::ONE)
            .map_err(TractError::msg)?;
        let result = FunctionResult::Numbers(numbers);
        Ok(Self {
            bytes,
            grid,
            result,
        })
    }

    /// Applies a function. `None` if it is not elementwise.
    fn then(mut self, kind: UnaryKind) -> TractResult<Option<Self>> {
        let is_same = matches!(
            kind,
            UnaryKind::Clamp | UnaryKind::Convert | UnaryKind::Copy
        );
        let FunctionResult::Numbers(numbers) = &mut self.result else {
            return Ok(is_same.then_some(self));
        };
        match kind {
            _ if is_same => {}
            UnaryKind::Square => {
                for x in numbers {
                    *x *= *x;
                }
            }
            other => {
                let Some(function) = super::node::function(other) else {
                    return Ok(None);
                };
                let mut tensor = tensor1(numbers);
                function.0.eval_in_place(&mut tensor, None)?;
                *numbers = floats(&tensor)?;
            }
        }
        Ok(Some(self))
    }

    /// Combines the numbers of two functions of the same bytes.
    fn with(mut self, kind: BinaryKind, other: &[f32]) -> Option<Self> {
        let operation: fn(f32, f32) -> f32 = match kind {
            BinaryKind::Add => |a, b| a + b,
            BinaryKind::Subtract => |a, b| a - b,
            BinaryKind::Multiply => |a, b| a * b,
            BinaryKind::Divide => |a, b| a / b,
            BinaryKind::Minimum => f32::min,
            BinaryKind::Maximum => f32::max,
            BinaryKind::PRelu => |a, b| if a < 0.0 { a * b } else { a },
        };
        let FunctionResult::Numbers(numbers) = &mut self.result else {
            return None;
        };
        for (x, other) in numbers.iter_mut().zip(other.iter().cycle()) {
            *x = operation(*x, *other);
        }
        Some(self)
    }

    /// Returns whether the numbers are those on the grid.
    fn is_plain(&self) -> TractResult<bool> {
        let plain = Self::of_grid(self.bytes, self.grid)?.result;
        Ok(match (&self.result, plain) {
            (FunctionResult::Numbers(numbers), FunctionResult::Numbers(plain)) => *numbers == plain,
            _ => false,
        })
    }

    /// Applies a function of each channel. `None` if other functions came before.
    fn by_channel(mut self, result: FunctionResult) -> TractResult<Option<Self>> {
        if !self.is_plain()? {
            return Ok(None);
        }
        self.result = result;
        Ok(Some(self))
    }

    /// Clamps the numbers. `None` if it cannot.
    fn clamped(mut self, clamp: Option<(f32, f32)>) -> Option<Self> {
        let Some((least, most)) = effective_clamp(clamp).filter(|(least, most)| least <= most)
        else {
            return Some(self);
        };
        let numbers = match &mut self.result {
            FunctionResult::Numbers(numbers) => numbers.as_mut_slice(),
            FunctionResult::Affine(channels) => &mut channels.range,
            FunctionResult::Sloped(_) => return None,
        };
        for x in numbers {
            *x = x.clamp(least, most);
        }
        Some(self)
    }
}

impl XnnpackLowering<'_> {
    /// Lowers a function of bytes. Returns whether the output is written.
    pub(super) fn tabled(
        &mut self,
        kind: UnaryKind,
        [input, output]: [u32; 2],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let found = match self.byte_function(input)? {
            Some(known) => known.then(kind)?,
            None => None,
        };
        self.write_function(found, output, clamp)
    }

    /// Lowers an operation on functions of the same bytes, or on one and a constant. Returns whether the output is
    /// written.
    pub(super) fn tabled_pair(
        &mut self,
        kind: BinaryKind,
        [a, b, output]: [u32; 3],
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let Some(left) = self.byte_function(a)? else {
            return Ok(false);
        };
        let found = match self.byte_function(b)? {
            Some(right) if right.bytes == left.bytes => match right.result {
                FunctionResult::Numbers(numbers) => left.with(kind, &numbers),
                FunctionResult::Sloped(_) | FunctionResult::Affine(_) => None,
            },
            Some(_) => None,
            None => match self.row_of_numbers(b)? {
                Some(row) if row.len() == 1 => left.with(kind, &row),
                Some(row)
                    if kind == BinaryKind::PRelu && self.has_channels(left.bytes, row.len())? =>
                {
                    left.by_channel(FunctionResult::Sloped(row))?
                }
                _ => None,
            },
        };
        self.write_function(found, output, clamp)
    }

    /// Remembers the result of a convolution that scales and shifts the channels of bytes, as a normalisation does.
    pub(super) fn scaled_channels(
        &mut self,
        conv: &Conv,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let is_pixelwise = conv.kernel == [1, 1] && conv.stride == [1, 1] && conv.padding == [0; 4];
        let is_scale = is_pixelwise
            && conv.kind != ConvKind::Transposed
            && [conv.group_input_channels, conv.group_output_channels] == [1, 1];
        let count = usize::try_from(conv.groups)?;
        let input = match self.byte_function(conv.input)? {
            Some(input) if is_scale && self.has_channels(input.bytes, count)? => input,
            _ => return Ok(false),
        };
        let numbers = |id: u32| {
            let value = self.value(id);
            if value.data.is_none() || value.datatype != Datatype::Fp32 {
                return Ok(None);
            }
            let numbers = floats(&*constant::read(self.weights, value)?)?;
            TractResult::Ok(Some(numbers).filter(|numbers| numbers.len() == count))
        };
        let shifts = match conv.bias {
            Some(bias) => numbers(bias)?,
            None => Some(vec![0.0; count]),
        };
        let (Some(factors), Some(shifts)) = (numbers(conv.filter)?, shifts) else {
            return Ok(false);
        };
        let channels = AffineChannels {
            factors,
            shifts,
            range: [f32::NEG_INFINITY, f32::INFINITY],
        };
        let found = input.by_channel(FunctionResult::Affine(channels))?;
        self.write_function(found, conv.output, clamp)
    }

    /// Returns a value as a function of bytes, if it is one.
    fn byte_function(&self, id: u32) -> TractResult<Option<ByteFunction>> {
        if let Some(known) = self.functions.get(&id) {
            return Ok(Some(known.clone()));
        }
        let bytes = self.bytes(id)?;
        bytes
            .map(|(bytes, grid)| ByteFunction::of_grid(bytes, grid))
            .transpose()
    }

    /// Returns the numbers of a constant that is one number or a row of them.
    fn row_of_numbers(&self, id: u32) -> TractResult<Option<Vec<f32>>> {
        let value = self.value(id);
        let (_, lead) = value.dims.split_last().unwrap_or((&1, &[]));
        if value.data.is_none()
            || value.datatype != Datatype::Fp32
            || lead.iter().any(|size| *size != 1)
        {
            return Ok(None);
        }
        Ok(Some(floats(&*constant::read(self.weights, value)?)?))
    }

    /// Writes a function of bytes as bytes. A real output is only remembered, because a later node may read it as
    /// bytes. Returns whether the output is written.
    fn write_function(
        &mut self,
        found: Option<ByteFunction>,
        output: u32,
        clamp: Option<(f32, f32)>,
    ) -> TractResult<bool> {
        let Some(found) = found else { return Ok(false) };
        let Some(to) = grid(self.value(output))? else {
            if self.value(output).datatype == Datatype::Fp32
                && let Some(found) = found.clamped(clamp)
            {
                self.functions.insert(output, found);
            }
            return Ok(false);
        };
        let (cpu, range, from) = (Cpu::chosen(), clamp_range(to, clamp), found.grid);
        let outlet = match found.result {
            FunctionResult::Numbers(numbers) => {
                let mut results = [0; 256];
                let rounded = to.quantize(Cpu::PLAIN, range, &numbers, &mut results, Split::ONE);
                let table = rounded.and_then(|()| ByteTable::new(&results));
                let table = table.map_err(TractError::msg)?;
                let work = move |from: &[&[u8]], to: &mut [u8], split| {
                    table.look_up(cpu, from[0], to, split)
                };
                elementwise_kernel(self.builder, "TableOfBytes", &[found.bytes], work)?
            }
            FunctionResult::Sloped(slopes) => {
                let work = move |bytes: &[&[u8]], output: &mut [u8], split| {
                    from.sloped(cpu, (to, range), &slopes, bytes[0], output, split)
                };
                self.by_channel("SlopesOfBytes", found.bytes, work)?
            }
            FunctionResult::Affine(channels) => {
                let work = move |bytes: &[&[u8]], output: &mut [u8], split| {
                    from.affine(cpu, (to, range), &channels, bytes[0], output, split)
                };
                self.by_channel("ScaledBytes", found.bytes, work)?
            }
        };
        self.held.insert(output, Held::Bytes(outlet));
        Ok(true)
    }

    /// Returns whether the last dimension has this size.
    fn has_channels(&self, bytes: OutletId, count: usize) -> TractResult<bool> {
        let shape = self.builder.shape(bytes)?;
        Ok(shape.last().is_some_and(|last| *last == count.to_dim()))
    }

    /// Adds an operator on bytes whose channels are last.
    fn by_channel(
        &mut self,
        name: &'static str,
        bytes: OutletId,
        work: impl Fn(&[&[u8]], &mut [u8], Split) -> Result<(), String> + Send + Sync + 'static,
    ) -> TractResult<OutletId> {
        let shape = self.builder.shape(bytes)?;
        let kernel = Kernel::new(name, tvec!(u8::fact(&*shape)), move |inputs| {
            Ok(tvec!(computed(inputs[0].shape(), inputs, &work)?))
        });
        self.builder.wire(kernel, &[bytes])
    }
}

/// Returns the numbers of a tensor.
fn floats(tensor: &Tensor) -> TractResult<Vec<f32>> {
    Ok(tensor.try_as_plain_ram()?.as_slice::<f32>()?.to_vec())
}
