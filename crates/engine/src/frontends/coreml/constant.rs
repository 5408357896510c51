//! Reads Core ML constants from the program and its weight file.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, dtype_of};
use crate::graph::builder::Wire;
use crate::graph::weights::widen;
use crate::tensor::DType;
use pkgtool_model::executorch::ConstantData;
use pkgtool_model::executorch::coreml::{MilType, TypedValue, ValueContent};

/// Maximum number of elements of a constant.
const MAX_ELEMENTS: u64 = 1 << 32;

impl CoremlLowering<'_, '_> {
    /// Adds a constant as a tensor.
    pub(super) fn constant(&mut self, value: &TypedValue) -> TractResult<Wire> {
        let stored = dtype_of(value.ty.kind)?;
        let dtype = self.rounding.computed_dtype(stored);
        let dims: Option<Vec<u64>> = value.ty.dims.iter().copied().collect();
        let dims = dims.context("sizes of a constant are not fixed")?;
        if let (ValueContent::Blob(offset), None) = (&value.content, bits_of(value.ty.kind)) {
            let blob = self.package.blob(self.frame.weights.program(), *offset)?;
            ensure!(
                blob.kind == value.ty.kind,
                "stored type differs: got {:?}, expected {:?}",
                blob.kind,
                value.ty.kind
            );
            let read =
                self.frame
                    .weights
                    .constant(&ConstantData::Payload(blob.bytes), stored, &dims);
            let read = read?;
            return self.frame.builder.constant(read, dtype);
        }
        let shape: Vec<usize> = dims
            .iter()
            .map(|dim| Ok(usize::try_from(*dim)?))
            .collect::<TractResult<_>>()?;
        let elements = self.elements(value)?;
        let count = shape
            .iter()
            .try_fold(1_usize, |count, dim| count.checked_mul(*dim));
        ensure!(
            count == Some(elements.len()),
            "wrong number of elements: got {} for the shape {shape:?}",
            elements.len()
        );
        let tensor = match &value.content {
            ValueContent::Floats(floats) if !floats.is_empty() => {
                Tensor::from_shape(&shape, floats)?
            }
            ValueContent::Bytes(bytes) if dtype.is_float() => {
                Tensor::from_shape(&shape, &decode_halves(stored, bytes)?)?
            }
            _ => Tensor::from_shape(&shape, &elements)?,
        };
        let to = crate::graph::datum_type(dtype);
        let tensor = if to == DatumType::Bool {
            let bools: Vec<bool> = elements.iter().map(|x| *x != 0).collect();
            Tensor::from_shape(&shape, &bools)?
        } else {
            tensor.cast_to_dt(to)?.into_owned()
        };
        self.frame.builder.constant(Arc::new(tensor), dtype)
    }

    /// Returns the elements of a constant as integers. Floats are returned as zeros.
    pub(super) fn elements(&self, value: &TypedValue) -> TractResult<Vec<i64>> {
        let count = value.ty.count().filter(|count| *count <= MAX_ELEMENTS);
        let count =
            usize::try_from(count.context("sizes of a constant are missing or too large")?)?;
        let elements: Vec<i64> = match &value.content {
            ValueContent::Ints(ints) => ints.clone(),
            ValueContent::Bools(bools) => bools.iter().map(|&bool| bool.into()).collect(),
            ValueContent::Floats(floats) => vec![0; floats.len()],
            ValueContent::Texts(_) => bail!("expected a tensor, got a text"),
            ValueContent::Bytes(bytes) => unpack_integers(value.ty.kind, bytes, count)?,
            ValueContent::Blob(offset) => {
                let (kind, bytes) = self.stored(*offset, count)?;
                unpack_integers(kind, &bytes, count)?
            }
        };
        // An all-zero constant has no stored elements.
        if elements.is_empty() && count < 1 << 16 {
            return Ok(vec![0; count]);
        }
        Ok(elements)
    }

    /// Returns the bytes of `count` elements in a record of the weight file, and their type.
    fn stored(&self, offset: u64, count: usize) -> TractResult<(MilType, Vec<u8>)> {
        let blob = self.package.blob(self.frame.weights.program(), offset)?;
        let bits = bits_of(blob.kind).unwrap_or(dtype_of(blob.kind)?.size() * 8);
        let size = (count as u64)
            .checked_mul(bits)
            .context("too many elements")?
            .div_ceil(8);
        let bytes = self
            .frame
            .weights
            .bytes(&ConstantData::Payload(blob.bytes), size);
        let bytes = bytes?;
        Ok((blob.kind, bytes))
    }

    /// Returns the elements of a constant of at most 8 bits each, or `None` for wider types.
    #[expect(clippy::cast_precision_loss, reason = "at most 8 bits")]
    pub(super) fn codes(&self, value: &TypedValue) -> TractResult<Option<Vec<f32>>> {
        let kind = value.ty.kind;
        let is_signed = matches!(kind, MilType::Int4 | MilType::Int8);
        let bits = match kind {
            MilType::Int8 | MilType::Uint8 => 8,
            _ => match bits_of(kind) {
                Some(bits) => u32::try_from(bits)?,
                None => return Ok(None),
            },
        };
        let ValueContent::Blob(offset) = value.content else {
            let elements = self.elements(value)?;
            return Ok(Some(elements.into_iter().map(|code| code as f32).collect()));
        };
        let count = value.ty.count().filter(|count| *count <= MAX_ELEMENTS);
        let count =
            usize::try_from(count.context("sizes of a constant are missing or too large")?)?;
        let (stored, bytes) = self.stored(offset, count)?;
        ensure!(
            stored == kind,
            "stored type differs: got {stored:?}, expected {kind:?}"
        );
        let unused = 16 - bits;
        let code = |at: usize| {
            let start = at * bits as usize;
            let high = bytes.get(start / 8 + 1).copied().unwrap_or(0);
            let both = u16::from_le_bytes([bytes[start / 8], high]) >> (start % 8);
            if is_signed {
                f32::from((both << unused).cast_signed() >> unused)
            } else {
                f32::from(both << unused >> unused)
            }
        };
        Ok(Some((0..count).map(code).collect()))
    }
}

/// Returns the first of the floats stored as bytes.
pub(super) fn first_float(value: &TypedValue, bytes: &[u8]) -> TractResult<f64> {
    let floats = decode_halves(dtype_of(value.ty.kind)?, bytes)?;
    Ok(floats.first().copied().unwrap_or(0.0).into())
}

/// Decodes float16 or bfloat16 from bytes.
fn decode_halves(dtype: DType, bytes: &[u8]) -> TractResult<Vec<f32>> {
    ensure!(
        matches!(dtype, DType::Float16 | DType::Bfloat16),
        "invalid type of a constant stored as bytes: {dtype}"
    );
    let (halves, _) = bytes.as_chunks::<2>();
    Ok(halves.iter().map(|half| widen(dtype, *half)).collect())
}

/// Returns the number of bits of an element narrower than a byte.
fn bits_of(kind: MilType) -> Option<u64> {
    match kind {
        MilType::Uint1 => Some(1),
        MilType::Uint2 => Some(2),
        MilType::Uint3 => Some(3),
        MilType::Int4 | MilType::Uint4 => Some(4),
        MilType::Uint6 => Some(6),
        _ => None,
    }
}

/// Unpacks integers from bytes. Elements narrower than a byte are packed, lowest bits first.
fn unpack_integers(kind: MilType, bytes: &[u8], count: usize) -> TractResult<Vec<i64>> {
    let bits = bits_of(kind).unwrap_or(dtype_of(kind)?.size() * 8);
    let needed = (count as u64).saturating_mul(bits).div_ceil(8);
    ensure!(
        needed <= bytes.len() as u64,
        "constant too short: {count} elements of {bits} bits in {} bytes",
        bytes.len()
    );
    let signed = matches!(
        kind,
        MilType::Int4 | MilType::Int8 | MilType::Int16 | MilType::Int32 | MilType::Int64
    );
    let element = |at: usize| {
        let mut value = 0_u64;
        for bit in 0..bits {
            let place = at as u64 * bits + bit;
            let byte = bytes[usize::try_from(place / 8).unwrap_or(usize::MAX)];
            value |= u64::from(byte >> (place % 8) & 1) << bit;
        }
        let unused = 64 - bits;
        if signed {
            (value << unused).cast_signed() >> unused
        } else {
            value.cast_signed()
        }
    };
    Ok((0..count).map(element).collect())
}
