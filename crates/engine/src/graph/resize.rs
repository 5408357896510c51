//! Image resizing for both channel layouts, with the weights of PyTorch and XNNPACK.

use tract_onnx::tract_core::internal::*;

use super::builder::Builder;
use super::kernel::Kernel;
use super::pool::computed;
use crate::tensor::DType;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::resize::{BetweenTwo, ImageSizes, linear, nearest};

/// For each output position: two input positions, and the weight of the second one.
type LinearWeights = Vec<BetweenTwo>;

/// For each output position: the first input position that counts, and the weights from there on.
type FilterWeights = Vec<(usize, Vec<f32>)>;

/// How an output position maps to input positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResizeSampling {
    /// The nearest input position at or below.
    Nearest {
        /// Input positions per output position; by default the ratio of the sizes.
        factor: Option<f32>,
    },
    /// Linear interpolation with aligned pixel centres.
    AlignedCentres {
        /// Input positions per output position; by default the ratio of the sizes.
        factor: Option<f32>,
    },
    /// Linear interpolation with aligned corners.
    AlignedCorners,
    /// Linear interpolation with the first positions aligned.
    AlignedStarts,
    /// The input position that contains the centre of the output pixel.
    NearestCentre,
    /// Linear interpolation with aligned corners; a single output position lies in the middle.
    CornersOrMiddle,
    /// Linear interpolation at the centres of equal parts of the range from the first to the last
    /// input position.
    EqualParts,
}

/// Resizes the dimensions `axis` and `axis + 1` to these sizes.
pub(crate) fn resize(
    builder: &mut Builder,
    input: OutletId,
    axis: usize,
    sizes: &[TDim; 2],
    sampling: [ResizeSampling; 2],
) -> TractResult<OutletId> {
    let mut shape = builder.shape(input)?;
    ensure!(
        axis + 1 < shape.len(),
        "invalid rank of an image: {}",
        shape.len()
    );
    shape[axis] = sizes[0].clone();
    shape[axis + 1] = sizes[1].clone();
    let sizes = [
        builder.size(&sizes[0], DType::Int64)?,
        builder.size(&sizes[1], DType::Int64)?,
    ];
    let is_nearest = sampling.iter().all(|sampling| sampling.is_nearest());
    let (cpu, facts) = (Cpu::chosen(), tvec!(f32::fact(&*shape)));
    let kernel = Kernel::new("Resize", facts, move |inputs| {
        let size =
            |at: usize| TractResult::Ok(usize::try_from(inputs[at].cast_to_scalar::<i64>()?)?);
        let from = inputs[0].shape();
        let sizes = ImageSizes {
            outer: from[..axis].iter().product(),
            size: [from[axis], from[axis + 1]],
            inner: from[axis + 2..].iter().product(),
        };
        let rows = line(from[axis], size(1)?, sampling[0])?;
        let columns = line(from[axis + 1], size(2)?, sampling[1])?;
        let mut shape = from.to_vec();
        (shape[axis], shape[axis + 1]) = (rows.len(), columns.len());
        let first =
            |line: &LinearWeights| -> Vec<usize> { line.iter().map(|place| place.0).collect() };
        let output = computed::<f32, f32>(&shape, &inputs[..1], |from, to, split| {
            if is_nearest {
                nearest(sizes, [&first(&rows), &first(&columns)], from[0], to, split)
            } else {
                linear(cpu, sizes, [&rows, &columns], from[0], to, split)
            }
        })?;
        Ok(tvec!(output))
    });
    builder.wire(kernel, &[input, sizes[0], sizes[1]])
}

impl ResizeSampling {
    /// Returns whether each output position is one input position.
    const fn is_nearest(self) -> bool {
        matches!(self, Self::Nearest { .. } | Self::NearestCentre)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in an image"
)]
fn line(from: usize, to: usize, sampling: ResizeSampling) -> TractResult<LinearWeights> {
    ensure!(from > 0, "the image is empty");
    let last = from - 1;
    let ratio = |factor: Option<f32>| factor.unwrap_or(from as f32 / to as f32);
    let between = |place: f32| {
        let place = place.max(0.0);
        let before = (place as usize).min(last);
        (
            before,
            (before + 1).min(last),
            (place - before as f32).min(1.0),
        )
    };
    let places = 0..to;
    Ok(match sampling {
        ResizeSampling::Nearest { factor } => {
            let ratio = ratio(factor);
            let nearest = |at| ((at as f32 * ratio) as usize).min(last);
            places.map(|at| (nearest(at), nearest(at), 0.0)).collect()
        }
        ResizeSampling::AlignedCentres { factor } => {
            let ratio = ratio(factor);
            places
                .map(|at| between((at as f32 + 0.5) * ratio - 0.5))
                .collect()
        }
        ResizeSampling::AlignedCorners => {
            let ratio = if to > 1 {
                last as f32 / (to - 1) as f32
            } else {
                0.0
            };
            places.map(|at| between(at as f32 * ratio)).collect()
        }
        ResizeSampling::AlignedStarts => {
            let ratio = ratio(None);
            places.map(|at| between(at as f32 * ratio)).collect()
        }
        ResizeSampling::NearestCentre => {
            let ratio = ratio(None);
            let nearest = |at| (((at as f32 + 0.5) * ratio) as usize).min(last);
            places.map(|at| (nearest(at), nearest(at), 0.0)).collect()
        }
        ResizeSampling::CornersOrMiddle => {
            let ratio = match to {
                1 => return Ok(vec![between(last as f32 / 2.0)]),
                _ => last as f32 / (to - 1) as f32,
            };
            places.map(|at| between(at as f32 * ratio)).collect()
        }
        ResizeSampling::EqualParts => {
            let part = last.max(1) as f32 / to as f32;
            places.map(|at| between((at as f32 + 0.5) * part)).collect()
        }
    })
}

/// Resizes the last two dimensions with an antialiasing filter.
///
/// Each output position is a weighted mean of all input positions that it covers. Factors are
/// ratios of input size to output size.
pub(crate) fn resize_antialiased(
    builder: &mut Builder,
    input: OutletId,
    sizes: [usize; 2],
    factors: [Option<f32>; 2],
    corners: bool,
) -> TractResult<OutletId> {
    let mut shape = builder.shape(input)?;
    let rank = shape.len();
    ensure!(
        rank == 4,
        "invalid rank of an image: expected 4, got {rank}"
    );
    shape[2] = sizes[0].to_dim();
    shape[3] = sizes[1].to_dim();
    let wire = builder.kernel(
        "ResizeSmoothly",
        DType::Float32,
        &shape,
        &[input],
        move |inputs| {
            let from = inputs[0].shape();
            let rows = filter_weights(from[2], sizes[0], factors[0], corners);
            let columns = filter_weights(from[3], sizes[1], factors[1], corners);
            let view = inputs[0].try_as_plain_ram()?;
            let mut output = Vec::with_capacity(from[0] * from[1] * sizes[0] * sizes[1]);
            for plane in view.as_slice::<f32>()?.chunks((from[2] * from[3]).max(1)) {
                for (top, down) in &rows {
                    for (left, across) in &columns {
                        let line = |at: usize| {
                            let start = (top + at) * from[3] + left;
                            let line = plane[start..].iter().zip(across);
                            line.map(|(x, share)| x * share).sum::<f32>()
                        };
                        let terms = down.iter().enumerate().map(|(at, share)| line(at) * share);
                        output.push(terms.sum::<f32>());
                    }
                }
            }
            Tensor::from_shape(&[from[0], from[1], sizes[0], sizes[1]], &output)
        },
    )?;
    Ok(wire.outlet)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in an image"
)]
fn filter_weights(from: usize, to: usize, factor: Option<f32>, corners: bool) -> FilterWeights {
    let scale = match factor {
        _ if corners && to > 1 => (from - 1) as f32 / (to - 1) as f32,
        _ if corners => 0.0,
        Some(factor) => factor,
        None => from as f32 / to as f32,
    };
    let support = scale.max(1.0);
    let places = (0..to).map(|at| {
        let centre = scale * (at as f32 + 0.5);
        let first = ((centre - support + 0.5).max(0.0)) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let share = |place: usize| {
            let distance = (place as f32 - centre + 0.5) / support;
            (1.0 - distance.abs()).max(0.0)
        };
        let shares: Vec<f32> = (first..end).map(share).collect();
        let sum: f32 = shares.iter().sum();
        let shares = shares
            .into_iter()
            .map(|share| if sum == 0.0 { share } else { share / sum });
        (first, shares.collect())
    });
    places.collect()
}
