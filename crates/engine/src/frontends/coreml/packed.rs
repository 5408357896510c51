//! Core ML packed weights: low-bit codes with scales or palettes, and sparse weights.
//!
//! All of them are unpacked while a program is lowered.

use half::{bf16, f16};
use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::axis_of;
use crate::graph::datum_type;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["constexpr_affine_dequantize"], affine_dequantise),
    (&["constexpr_blockwise_shift_scale"], blockwise),
    (&["constexpr_cast"], |lowering, operation| {
        lowering.tensor(operation, "source_val").map(one)
    }),
    (&["constexpr_lut_to_dense"], palette),
    (&["constexpr_lut_to_sparse"], sparse_palette),
    (
        &["constexpr_sparse_blockwise_shift_scale"],
        sparse_blockwise,
    ),
    (&["constexpr_sparse_to_dense"], sparse_to_dense),
];

/// The elements of a constant; all types of packed weights fit into float32.
struct PackedArray {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl PackedArray {
    fn read(
        lowering: &mut CoremlLowering<'_, '_>,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Self> {
        let held = lowering.held_arg(operation, name)?;
        if let CoremlOperand::Constant(value) = &held
            && let Some(values) = lowering.codes(value)?
        {
            let dims = value.ty.dims.iter();
            let shape = dims.map(|dim| {
                Ok(usize::try_from(
                    dim.context("sizes of a constant are not fixed")?,
                )?)
            });
            let shape = shape.collect::<TractResult<_>>()?;
            return Self::new(shape, values);
        }
        let wire = lowering.wire(&held)?;
        let known = lowering.frame.builder.constant_value(wire.outlet)?;
        let known = known.with_context(|| format!("`{name}` is not a constant"))?;
        let cast = known.cast_to::<f32>()?;
        let view = cast.try_as_plain_ram()?;
        Self::new(known.shape().to_vec(), view.as_slice::<f32>()?.to_vec())
    }

    fn optional(
        lowering: &mut CoremlLowering<'_, '_>,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Option<Self>> {
        match lowering.optional(operation, name)? {
            Some(_) => Self::read(lowering, operation, name).map(Some),
            None => Ok(None),
        }
    }

    fn new(shape: Vec<usize>, values: Vec<f32>) -> TractResult<Self> {
        let mut sizes = shape.iter();
        let count = sizes.try_fold(1_usize, |count, size| count.checked_mul(*size));
        ensure!(
            count == Some(values.len()),
            "wrong number of elements: got {} for the shape {shape:?}",
            values.len()
        );
        Ok(Self { shape, values })
    }

    /// Changes the elements that a mask selects, by a function of an element and its block.
    fn change_selected(
        &mut self,
        mask: &Self,
        mut blocks: BlockIndices,
        change: impl Fn(f32, usize) -> TractResult<f32>,
    ) -> TractResult<()> {
        let mut values = self.values.iter_mut();
        for there in &mask.values {
            let block = blocks.next_block();
            if *there != 0.0 {
                let value = values
                    .next()
                    .context("fewer elements than set bits in the mask")?;
                *value = change(*value, block)?;
            }
        }
        ensure!(
            values.next().is_none(),
            "more elements than set bits in the mask"
        );
        Ok(())
    }

    /// Adds the array as an operation's result.
    fn write_result(
        self,
        lowering: &mut CoremlLowering<'_, '_>,
        operation: &Operation,
        at: usize,
    ) -> TractResult<CoremlOperand> {
        let (_, ty) = operation
            .outputs
            .get(at)
            .context("the result is not declared")?;
        let dtype = lowering.stored_dtype(ty)?;
        let mut values = self.values;
        match dtype {
            DType::Float16 => {
                for value in &mut values {
                    *value = f16::from_f32(*value).to_f32();
                }
            }
            DType::Bfloat16 => {
                for value in &mut values {
                    *value = bf16::from_f32(*value).to_f32();
                }
            }
            _ => {}
        }
        let tensor = Tensor::from_shape(&self.shape, &values)?;
        let tensor = tensor.cast_to_dt(datum_type(dtype))?.into_owned();
        let wire = lowering.frame.builder.constant(Arc::new(tensor), dtype)?;
        Ok(CoremlOperand::Tensor(wire))
    }
}

/// Iterates over an array in row-major order and returns each element's block. `counts` has the
/// blocks of each dimension.
struct BlockIndices {
    shape: Vec<usize>,
    counts: Vec<usize>,
    place: Vec<usize>,
}

impl BlockIndices {
    fn new(shape: &[usize], counts: &[usize]) -> TractResult<Self> {
        let fits = |(size, count): (&usize, &usize)| *count > 0 && size.is_multiple_of(*count);
        ensure!(
            shape.len() == counts.len() && shape.iter().zip(counts).all(fits),
            "shape {shape:?} is not divisible into {counts:?} blocks"
        );
        Ok(Self {
            shape: shape.to_vec(),
            counts: counts.to_vec(),
            place: vec![0; shape.len()],
        })
    }

    /// Returns the block of the next element.
    fn next_block(&mut self) -> usize {
        let mut block = 0;
        for ((at, size), count) in self.place.iter().zip(&self.shape).zip(&self.counts) {
            block = block * count + at / (size / count);
        }
        for (at, size) in self.place.iter_mut().zip(&self.shape).rev() {
            *at += 1;
            if *at < *size {
                break;
            }
            *at = 0;
        }
        block
    }
}

/// Scales of blocks, and offsets subtracted before scaling.
struct BlockScales {
    scale: PackedArray,
    offset: Option<PackedArray>,
}

impl BlockScales {
    fn read(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Self> {
        let scale = PackedArray::read(lowering, operation, "scale")?;
        let offset = PackedArray::optional(lowering, operation, "offset")?;
        ensure!(
            offset
                .as_ref()
                .is_none_or(|offset| offset.values.len() == scale.values.len()),
            "numbers of offsets and scales differ"
        );
        Ok(Self { scale, offset })
    }

    fn apply(&self, code: f32, block: usize) -> f32 {
        let offset = self.offset.as_ref();
        (code - offset.map_or(0.0, |offset| offset.values[block])) * self.scale.values[block]
    }
}

/// Computes `scale · (data − zero point)`, with one scale or one for each position of a dimension.
fn affine_dequantise(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mut data = PackedArray::read(lowering, operation, "quantized_data")?;
    let [scale, zero] =
        ["scale", "zero_point"].map(|name| PackedArray::read(lowering, operation, name));
    let (scale, zero) = (scale?, zero?);
    let rank = data.shape.len();
    let axis = lowering.axis(operation, "axis", rank)?;
    let size = data.shape[axis];
    for part in [&scale, &zero] {
        ensure!(
            part.shape.is_empty() || part.shape == [size],
            "invalid shape of scales or zero points: got {:?} for {size} positions",
            part.shape
        );
    }
    let inner: usize = data.shape[axis + 1..].iter().product();
    for (at, value) in data.values.iter_mut().enumerate() {
        let place = at / inner % size;
        let of = |part: &PackedArray| part.values[if part.shape.is_empty() { 0 } else { place }];
        *value = (*value - of(&zero)) * of(&scale);
    }
    Ok(vec![data.write_result(lowering, operation, 0)?])
}

/// Computes `scale · (data − offset)`, with a scale and offset for each block of the data, along
/// any dimension.
fn blockwise(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mut data = PackedArray::read(lowering, operation, "data")?;
    let scales = BlockScales::read(lowering, operation)?;
    let mut blocks = BlockIndices::new(&data.shape, &scales.scale.shape)?;
    for value in &mut data.values {
        *value = scales.apply(*value, blocks.next_block());
    }
    Ok(vec![data.write_result(lowering, operation, 0)?])
}

/// Computes the same for the elements selected by a mask.
fn sparse_blockwise(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mask = PackedArray::read(lowering, operation, "data_mask")?;
    let mut data = PackedArray::read(lowering, operation, "nonzero_data")?;
    let scales = BlockScales::read(lowering, operation)?;
    let blocks = BlockIndices::new(&mask.shape, &scales.scale.shape)?;
    data.change_selected(&mask, blocks, |value, block| Ok(scales.apply(value, block)))?;
    sparse_results(lowering, operation, mask, data)
}

/// Returns the results of an operation on sparse elements: their mask, and the elements.
fn sparse_results(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    mask: PackedArray,
    elements: PackedArray,
) -> Results {
    Ok(vec![
        mask.write_result(lowering, operation, 0)?,
        elements.write_result(lowering, operation, 1)?,
    ])
}

/// Returns the sizes in the argument `shape`.
fn shape(lowering: &CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Vec<usize>> {
    let shape = lowering.required_ints(operation, "shape")?;
    let shape = shape.into_iter().map(|size| Ok(usize::try_from(size)?));
    shape.collect()
}

/// Looks up elements in a palette. Codes are packed in bytes, or have a low-bit type themselves
/// (iOS18).
fn palette(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    if lowering.optional(operation, "shape")?.is_none() {
        return grouped_palette(lowering, operation);
    }
    let table = PackedArray::read(lowering, operation, "lut")?;
    let count = table.values.len();
    ensure!(
        table.shape.len() == 1 && count.is_power_of_two() && (2..=256).contains(&count),
        "invalid shape of a palette: {:?}",
        table.shape
    );
    let shape = shape(lowering, operation)?;
    let bits = count.trailing_zeros() as usize;
    let codes = unpack_bits(lowering, operation, "indices", bits, &shape)?;
    let values = codes.map(|code| table.values[code]).collect();
    let dense = PackedArray::new(shape, values)?;
    Ok(vec![dense.write_result(lowering, operation, 0)?])
}

/// Unpacks `bits`-bit numbers from the bytes of an argument, lowest bits first.
fn unpack_bits(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    name: &str,
    bits: usize,
    shape: &[usize],
) -> TractResult<impl Iterator<Item = usize> + use<>> {
    let bytes = PackedArray::read(lowering, operation, name)?.values;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes"
    )]
    let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
    let mut sizes = shape.iter();
    let count = sizes.try_fold(1_usize, |count, size| count.checked_mul(*size));
    let needed = count.and_then(|count| count.checked_mul(bits));
    let needed = needed.context("too many elements")?.div_ceil(8);
    ensure!(
        needed <= bytes.len(),
        "packed data too short: shape {shape:?} of {bits} bits in {} bytes",
        bytes.len()
    );
    let count = count.unwrap_or(0);
    Ok((0..count).map(move |at| {
        let start = at * bits;
        let high = bytes.get(start / 8 + 1).copied().unwrap_or(0);
        let both = u16::from_le_bytes([bytes[start / 8], high]);
        usize::from(both >> (start % 8)) & ((1 << bits) - 1)
    }))
}

/// A palette for each block of the codes: `[blocks .., codes, numbers of each code]`.
struct Palettes {
    blocks: Vec<usize>,
    count: usize,
    width: usize,
    values: Vec<f32>,
}

impl Palettes {
    fn read(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Self> {
        let table = PackedArray::read(lowering, operation, "lut")?;
        let Some((blocks, &[count, width])) = table.shape.split_last_chunk::<2>() else {
            bail!("invalid shape of a palette: {:?}", table.shape);
        };
        Ok(Self {
            blocks: blocks.to_vec(),
            count,
            width,
            values: table.values,
        })
    }

    /// Returns the numbers for a code of a block.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "codes"
    )]
    fn of(&self, block: usize, code: f32) -> TractResult<&[f32]> {
        let code = code as usize;
        ensure!(
            code < self.count,
            "code {code} is out of range for a palette of {} entries",
            self.count
        );
        let start = (block * self.count + code) * self.width;
        Ok(&self.values[start..start + self.width])
    }
}

fn grouped_palette(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let codes = PackedArray::read(lowering, operation, "indices")?;
    let table = Palettes::read(lowering, operation)?;
    let mut blocks = BlockIndices::new(&codes.shape, &table.blocks)?;
    let rank = codes.shape.len();
    let axis = axis_of(lowering.int(operation, "vector_axis", -1)?, rank)?;
    let mut shape = codes.shape.clone();
    shape[axis] = shape[axis]
        .checked_mul(table.width)
        .context("too many elements")?;
    let count = codes.values.len().checked_mul(table.width);
    let mut values = vec![0.0; count.context("too many elements")?];
    let inner: usize = shape[axis + 1..].iter().product();
    for (at, code) in codes.values.iter().enumerate() {
        let (outer, rest) = (at / inner, at % inner);
        for (part, value) in table.of(blocks.next_block(), *code)?.iter().enumerate() {
            values[(outer * table.width + part) * inner + rest] = *value;
        }
    }
    let dense = PackedArray::new(shape, values)?;
    Ok(vec![dense.write_result(lowering, operation, 0)?])
}

fn sparse_palette(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mask = PackedArray::read(lowering, operation, "indices_mask")?;
    let mut codes = PackedArray::read(lowering, operation, "indices_nonzero_data")?;
    let table = Palettes::read(lowering, operation)?;
    ensure!(
        table.width == 1,
        "unsupported sparse palette with vector entries"
    );
    let blocks = BlockIndices::new(&mask.shape, &table.blocks)?;
    codes.change_selected(&mask, blocks, |code, block| Ok(table.of(block, code)?[0]))?;
    sparse_results(lowering, operation, mask, codes)
}

/// Expands sparse elements: zero except where the mask is set.
fn sparse_to_dense(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let (shape, mask): (_, Vec<bool>) = if lowering.optional(operation, "shape")?.is_some() {
        let shape = shape(lowering, operation)?;
        let bits = unpack_bits(lowering, operation, "mask", 1, &shape)?;
        (shape, bits.map(|bit| bit != 0).collect())
    } else {
        let mask = PackedArray::read(lowering, operation, "mask")?;
        (
            mask.shape,
            mask.values.iter().map(|bit| *bit != 0.0).collect(),
        )
    };
    let data = PackedArray::read(lowering, operation, "nonzero_data")?;
    let there = mask.iter().filter(|there| **there).count();
    ensure!(
        there == data.values.len(),
        "wrong number of elements: got {} for {there} set bits of the mask",
        data.values.len()
    );
    let mut values = data.values.iter();
    let values = mask.iter().map(|there| match there {
        true => values.next().copied().unwrap_or(0.0),
        false => 0.0,
    });
    let dense = PackedArray::new(shape, values.collect())?;
    Ok(vec![dense.write_result(lowering, operation, 0)?])
}
