//! Reads constants of an XNNPACK graph, as float32 or in their quantised form.

use tract_onnx::tract_core::internal::*;

use crate::graph::elements::sizes;
use crate::graph::weights::ProgramWeights;
use crate::tensor::{DType, byte_size};
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::rows::Bits;
use pkgtool_model::executorch::xnnpack::{Datatype, Quantization, Scales, XnnpackValue};

/// Reads a constant.
pub(super) fn read(weights: &ProgramWeights, value: &XnnpackValue) -> TractResult<Arc<Tensor>> {
    let Some(data) = &value.data else {
        bail!("a constant has no data")
    };
    let plain = match value.datatype {
        Datatype::Fp32 | Datatype::Pfp32 => Some(DType::Float32),
        Datatype::Fp16 => Some(DType::Float16),
        Datatype::Bf16 => Some(DType::Bfloat16),
        _ => None,
    };
    if let Some(dtype) = plain {
        return Ok(weights.constant(data, dtype, &value.dims)?);
    }
    let raw = stored(weights, value)?;
    let scale = ElementScales::of(weights, value)?;
    let shape = sizes(&value.dims)?;
    let mut tensor = Tensor::zero::<f32>(&shape)?;
    let mut view = tensor.try_as_plain_ram_mut()?;
    fill(view.as_slice_mut::<f32>()?, value.datatype, &raw, &scale)?;
    Ok(Arc::new(tensor))
}

/// Reads the bytes of an integer constant, as many as its sizes require.
fn stored(weights: &ProgramWeights, value: &XnnpackValue) -> TractResult<Vec<u8>> {
    let Some(data) = &value.data else {
        bail!("a constant has no data")
    };
    // Checks the size limit of tensors before reading anything.
    let bytes = byte_size(DType::Float32, &value.dims)?;
    let count = bytes / 4;
    let stored = match value.datatype {
        Datatype::Qint32 | Datatype::Qcint32 | Datatype::Int32 => bytes,
        Datatype::Qcint4 | Datatype::Qbint4 => count.div_ceil(2),
        _ => count,
    };
    Ok(weights.bytes(data, stored)?)
}

/// Quantised 8-bit weights.
pub(super) struct ByteWeights {
    /// Elements in row-major order. Unsigned elements are stored minus 128.
    pub(super) values: Vec<i8>,
    /// Zero point of the elements.
    pub(super) zero_point: i32,
    /// Scales: one, or one for each channel.
    pub(super) scales: Vec<f32>,
}

/// Reads an 8-bit constant with one scale, or one for each channel. Returns `None` for other
/// constants.
pub(super) fn read_bytes(
    weights: &ProgramWeights,
    value: &XnnpackValue,
) -> TractResult<Option<ByteWeights>> {
    let sign = match value.datatype {
        Datatype::Qint8 | Datatype::Qcint8 => Sign::Signed,
        Datatype::Quint8 => Sign::Unsigned,
        _ => return Ok(None),
    };
    let (zero_point, scales) = match &value.quantization {
        _ if value.data.is_none() => return Ok(None),
        Some(Quantization::PerTensor { scale, zero_point }) => (*zero_point, vec![*scale]),
        Some(Quantization::PerChannel { scales, .. }) => (0, read_scales(weights, scales)?),
        _ => return Ok(None),
    };
    Ok(Some(ByteWeights {
        values: sign.signed(&stored(weights, value)?),
        zero_point: zero_point.saturating_sub(sign.moved()),
        scales,
    }))
}

/// Reads a 32-bit constant with zero point 0. Returns `None` for other constants.
pub(super) fn read_int32(
    weights: &ProgramWeights,
    value: &XnnpackValue,
) -> TractResult<Option<Vec<i32>>> {
    let wide = matches!(value.datatype, Datatype::Qint32 | Datatype::Qcint32);
    if !wide || value.data.is_none() || channel_scales(weights, value)?.is_none() {
        return Ok(None);
    }
    let raw = stored(weights, value)?;
    let (words, _) = raw.as_chunks::<4>();
    Ok(Some(
        words.iter().map(|word| i32::from_le_bytes(*word)).collect(),
    ))
}

/// Returns the scales of a constant with zero point 0: one, or one for each channel.
fn channel_scales(weights: &ProgramWeights, value: &XnnpackValue) -> TractResult<Option<Vec<f32>>> {
    Ok(match &value.quantization {
        Some(Quantization::PerTensor {
            scale,
            zero_point: 0,
        }) => Some(vec![*scale]),
        Some(Quantization::PerChannel { scales, .. }) => Some(read_scales(weights, scales)?),
        _ => None,
    })
}

/// Reads a quantised constant as integers, with a scale for each channel.
///
/// Returns `None` unless the zero point is 0 and channels are the first dimension, or the last one
/// for a depthwise filter.
pub(super) fn read_integers(
    weights: &ProgramWeights,
    value: &XnnpackValue,
) -> TractResult<Option<(Arc<Tensor>, Vec<f32>)>> {
    let Some(scales) = channel_scales(weights, value)? else {
        return Ok(None);
    };
    let wide = matches!(
        value.datatype,
        Datatype::Qint32
            | Datatype::Qcint32
            | Datatype::Qint8
            | Datatype::Qcint8
            | Datatype::Qcint4
    );
    if !wide || value.data.is_none() {
        return Ok(None);
    }
    let plain = XnnpackValue {
        quantization: None,
        ..value.clone()
    };
    Ok(Some((read(weights, &plain)?, scales)))
}

/// A quantised matrix in its stored form, with zero point 0.
pub(super) struct PackedMatrix {
    /// Width of the elements.
    pub(super) bits: Bits,
    /// Rows and columns.
    pub(super) sizes: [usize; 2],
    /// Packed elements, row by row.
    raw: Vec<u8>,
    /// Scales: one, or one for each channel or group.
    pub(super) scales: Vec<f32>,
    /// Elements of a row that share a scale, unless the whole row does.
    pub(super) group: Option<usize>,
}

impl PackedMatrix {
    /// Returns element `at` in memory order.
    pub(super) fn element(&self, at: usize) -> i8 {
        match self.bits {
            Bits::Eight => self.raw[at].cast_signed(),
            Bits::Four => unpack_4_bits(&self.raw, at),
        }
    }
}

/// Reads a constant as a matrix of 4-bit or 8-bit integers. Returns `None` for other constants.
pub(super) fn read_packed(
    weights: &ProgramWeights,
    value: &XnnpackValue,
) -> TractResult<Option<PackedMatrix>> {
    let (Some(data), &[rows, columns]) = (&value.data, value.dims.as_slice()) else {
        return Ok(None);
    };
    let bits = match value.datatype {
        Datatype::Qint8 | Datatype::Qcint8 => Bits::Eight,
        Datatype::Qcint4 | Datatype::Qbint4 => Bits::Four,
        _ => return Ok(None),
    };
    let scale = match &value.quantization {
        Some(
            Quantization::PerTensor { zero_point: 0, .. }
            | Quantization::PerChannel { .. }
            | Quantization::PerGroup { .. },
        ) => ElementScales::of(weights, value)?,
        _ => return Ok(None),
    };
    let count = byte_size(DType::Float32, &value.dims)? / 4;
    let stored = match bits {
        Bits::Eight => count,
        Bits::Four => count.div_ceil(2),
    };
    let group = match value.quantization {
        Some(Quantization::PerGroup { .. }) => Some(scale.run),
        _ => None,
    };
    Ok(Some(PackedMatrix {
        bits,
        sizes: [usize::try_from(rows)?, usize::try_from(columns)?],
        raw: weights.bytes(data, stored)?,
        scales: scale.scales,
        group,
    }))
}

/// Returns element `at` of 4-bit elements, packed two in a byte with the first one in the low bits.
fn unpack_4_bits(raw: &[u8], at: usize) -> i8 {
    let byte = raw[at / 2];
    let part = if at.is_multiple_of(2) {
        byte & 15
    } else {
        byte >> 4
    };
    part.cast_signed() - 8
}

fn fill(
    values: &mut [f32],
    datatype: Datatype,
    raw: &[u8],
    scale: &ElementScales,
) -> TractResult<()> {
    let each = values.iter_mut().enumerate();
    match datatype {
        Datatype::Qint8 | Datatype::Qcint8 | Datatype::Qpint8 => {
            for ((at, to), byte) in each.zip(raw) {
                *to = scale.real(i32::from(i8::from_le_bytes([*byte])), at);
            }
        }
        Datatype::Quint8 => {
            for ((at, to), byte) in each.zip(raw) {
                *to = scale.real(i32::from(*byte), at);
            }
        }
        Datatype::Qint32 | Datatype::Qcint32 | Datatype::Int32 => {
            let (words, _) = raw.as_chunks::<4>();
            for ((at, to), word) in each.zip(words) {
                *to = scale.real(i32::from_le_bytes(*word), at);
            }
        }
        Datatype::Qcint4 | Datatype::Qbint4 => {
            for (at, to) in each {
                *to = scale.real(i32::from(unpack_4_bits(raw, at)), at);
            }
        }
        other => bail!("unsupported datatype of a constant: {other:?}"),
    }
    Ok(())
}

/// Scales of the elements.
struct ElementScales {
    scales: Vec<f32>,
    zero_point: i32,
    /// Number of consecutive elements in memory that share a scale.
    run: usize,
}

impl ElementScales {
    #[expect(clippy::cast_precision_loss, reason = "XNNPACK computes in float32")]
    fn real(&self, q: i32, at: usize) -> f32 {
        let scale = self.scales[at / self.run % self.scales.len()];
        (q - self.zero_point) as f32 * scale
    }

    fn of(weights: &ProgramWeights, value: &XnnpackValue) -> TractResult<Self> {
        let inner = |dim: usize| {
            let mut sizes = value.dims.iter().skip(dim + 1);
            sizes
                .try_fold(1_u64, |product, size| product.checked_mul(*size))
                .unwrap_or(u64::MAX)
        };
        let of_channels = |dim: usize, scales: &[f32]| {
            let channels = value.dims.get(dim).copied().unwrap_or(0);
            ensure!(
                scales.len() as u64 == channels,
                "wrong number of scales: got {} for {channels} channels",
                scales.len()
            );
            Ok(())
        };
        let found = match &value.quantization {
            None => Self {
                scales: vec![1.0],
                zero_point: 0,
                run: 1,
            },
            Some(Quantization::PerTensor { scale, zero_point }) => Self {
                scales: vec![*scale],
                zero_point: *zero_point,
                run: 1,
            },
            Some(Quantization::PerChannel {
                channel_dim,
                scales,
            }) => {
                let scales = read_scales(weights, scales)?;
                of_channels(*channel_dim, &scales)?;
                Self {
                    scales,
                    zero_point: 0,
                    run: usize::try_from(inner(*channel_dim))?,
                }
            }
            Some(Quantization::PerGroup {
                channel_dim,
                group_size,
                scales,
            }) => {
                let scales = read_scales(weights, scales)?;
                let width = inner(*channel_dim);
                ensure!(
                    *channel_dim == 0 && width.is_multiple_of(*group_size),
                    "invalid quantisation groups: size {group_size}, rows of width {width}"
                );
                let groups = value.dims[0].saturating_mul(width / group_size);
                ensure!(
                    scales.len() as u64 == groups,
                    "wrong number of scales: got {} for {groups} groups",
                    scales.len()
                );
                Self {
                    scales,
                    zero_point: 0,
                    run: usize::try_from(*group_size)?,
                }
            }
            Some(Quantization::PerToken { .. }) => {
                bail!("a constant cannot have dynamic row quantisation")
            }
        };
        ensure!(
            !found.scales.is_empty() && found.run > 0,
            "a constant has no scales"
        );
        Ok(found)
    }
}

fn read_scales(weights: &ProgramWeights, scales: &Scales) -> TractResult<Vec<f32>> {
    let (data, count) = match scales {
        Scales::Inline(scales) => return Ok(scales.clone()),
        Scales::Stored { data, count } => (data, *count),
    };
    let available = weights.available(data)?;
    let wide = count.checked_mul(4).filter(|bytes| *bytes <= available);
    let raw = match wide {
        Some(bytes) => weights.bytes(data, bytes),
        None => weights.bytes(data, count.saturating_mul(2)),
    }?;
    Ok(if wide.is_some() {
        let (words, _) = raw.as_chunks::<4>();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    } else {
        let (halves, _) = raw.as_chunks::<2>();
        let halves = halves
            .iter()
            .map(|half| half::bf16::from_le_bytes(*half).to_f32());
        halves.collect()
    })
}
