//! Resizing of any dimensions of a tensor, with the weights of PyTorch, XNNPACK and Core ML.

use std::fmt;
use std::sync::Arc;

use tract_onnx::tract_core::internal::*;

use super::builder::Builder;
use super::pool::computed;
use crate::tensor::MAX_TENSOR_BYTES;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::resize::{BetweenTwo, ImageSizes, Weighted, linear, nearest, weighted};

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
    /// A weighted mean of all input positions that the output position covers.
    Covered {
        /// Input positions per output position; by default the ratio of the sizes.
        factor: Option<f32>,
        /// Whether the corners are aligned, which takes precedence over the factor.
        corners: bool,
    },
}

/// Resizes the dimensions `axis` and `axis + 1` to these sizes.
pub(crate) fn resize(
    builder: &mut Builder,
    input: OutletId,
    axis: usize,
    sizes: &[TDim; 2],
    sampling: [ResizeSampling; 2],
) -> TractResult<OutletId> {
    let shape = builder.shape(input)?;
    ensure!(
        axis + 1 < shape.len(),
        "invalid rank of an image: {}",
        shape.len()
    );
    let axes = sizes.iter().zip(sampling).enumerate();
    let axes = axes.map(|(at, (size, sampling))| {
        ResizedAxis::new(axis + at, size.clone(), move |sizes| {
            places(sizes, sampling)
        })
    });
    let operator = ResizeOperator {
        axes: axes.collect(),
        fill: 0.0,
    };
    builder.wire(operator, &[input])
}

/// The input positions of each output position along a dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Places {
    /// One input position.
    Nearest(Vec<usize>),
    /// Two input positions, and the weight of the second one.
    Between(Vec<BetweenTwo>),
    /// Any number of input positions, with their weights.
    Weighted(Vec<Weighted>),
}

impl Places {
    fn count(&self) -> usize {
        match self {
            Self::Nearest(places) => places.len(),
            Self::Between(places) => places.len(),
            Self::Weighted(places) => places.len(),
        }
    }

    /// Returns `true` if each of `count` positions stays where it is.
    fn are_same(&self, count: usize) -> bool {
        matches!(self, Self::Nearest(places) if places.iter().copied().eq(0..count))
    }

    fn weighted(&self) -> Vec<Weighted> {
        let between = |(first, second, share): &BetweenTwo| {
            let both = [(*first, 1.0 - share), (*second, *share)];
            both.into_iter()
                .filter(|(_, weight)| *weight != 0.0)
                .collect()
        };
        match self {
            Self::Nearest(places) => places.iter().map(|place| vec![(*place, 1.0)]).collect(),
            Self::Between(places) => places.iter().map(between).collect(),
            Self::Weighted(places) => places.clone(),
        }
    }
}

/// Returns the input positions for the size of the input and that of the output.
type PlacesOfSizes = dyn Fn([usize; 2]) -> Places + Send + Sync;

/// A resized dimension.
#[derive(Clone)]
pub(crate) struct ResizedAxis {
    axis: usize,
    size: TDim,
    places: Arc<PlacesOfSizes>,
}

impl ResizedAxis {
    /// Resizes dimension `axis` to `size`. `places` returns the positions for the size of the input
    /// and that of the output.
    pub(crate) fn new(
        axis: usize,
        size: TDim,
        places: impl Fn([usize; 2]) -> Places + Send + Sync + 'static,
    ) -> Self {
        Self {
            axis,
            size,
            places: Arc::new(places),
        }
    }
}

impl PartialEq for ResizedAxis {
    fn eq(&self, other: &Self) -> bool {
        let is_same = (self.axis, &self.size) == (other.axis, &other.size);
        is_same && Arc::ptr_eq(&self.places, &other.places)
    }
}

impl fmt::Debug for ResizedAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.axis, self.size)
    }
}

/// Resizes dimensions of a tensor. The library may transpose it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResizeOperator {
    /// The resized dimensions.
    pub(crate) axes: Vec<ResizedAxis>,
    /// The value of output positions without input positions.
    pub(crate) fill: f32,
}

impl Eq for ResizeOperator {}

impl Op for ResizeOperator {
    fn name(&self) -> StaticName {
        "Resize".into()
    }

    op_as_typed_op!();
}

impl EvalOp for ResizeOperator {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let input = args_1!(inputs);
        let mut axes = Vec::new();
        for ResizedAxis { axis, size, places } in &self.axes {
            let (axis, from) = (*axis, input.shape()[*axis]);
            ensure!(from > 0, "the image is empty");
            let places = places([from, size.eval(context.symbols).to_usize()?]);
            if !places.are_same(from) {
                axes.push((axis, places));
            }
        }
        axes.sort_by_key(|(axis, _)| *axis);
        let dtype = input.datum_type();
        let mut value = input;
        let is_nearest = |(_, places): &(usize, Places)| matches!(places, Places::Nearest(_));
        if !axes.iter().all(is_nearest) && dtype != DatumType::F32 {
            value = value.cast_to::<f32>()?.into_owned().into_tvalue();
        }
        let mut rest = &*axes;
        while !rest.is_empty() {
            let (together, others) = rest.split_at(pass(rest));
            value = resized(&value, together, self.fill)?;
            rest = others;
        }
        if value.datum_type() != dtype {
            value = value.cast_to_dt(dtype)?.into_owned().into_tvalue();
        }
        Ok(tvec!(value))
    }
}

impl TypedOp for ResizeOperator {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let mut shape = inputs[0].shape.to_tvec();
        for resized in &self.axes {
            ensure!(
                resized.axis < shape.len(),
                "axis {} does not exist",
                resized.axis
            );
            shape[resized.axis] = resized.size.clone();
        }
        Ok(tvec!(inputs[0].datum_type.fact(shape)))
    }

    fn change_axes(
        &self,
        model: &TypedModel,
        node: &TypedNode,
        _: InOut,
        change: &AxisOp,
    ) -> TractResult<Option<AxisChangeConsequence>> {
        if matches!(change, AxisOp::Reshape(..)) {
            return Ok(None);
        }
        let mut changed = self.clone();
        for resized in &mut changed.axes {
            let Some(axis) = change.transform_axis(resized.axis) else {
                return Ok(None);
            };
            resized.axis = axis;
        }
        let changed: Box<dyn TypedOp> = Box::new(changed);
        Ok(Some(AxisChangeConsequence::new(
            model,
            node,
            Some(changed),
            change,
        )))
    }

    as_op!();
}

/// Returns the number of dimensions that one pass resizes.
fn pass(axes: &[(usize, Places)]) -> usize {
    match axes {
        [
            (first, Places::Nearest(_)),
            (second, Places::Nearest(_)),
            ..,
        ]
        | [
            (first, Places::Between(_)),
            (second, Places::Between(_)),
            ..,
        ] if first + 1 == *second => 2,
        _ => 1,
    }
}

/// Resizes one dimension, or two that follow each other.
fn resized(input: &TValue, axes: &[(usize, Places)], fill: f32) -> TractResult<TValue> {
    let from = input.shape();
    let mut shape = from.to_vec();
    for (axis, places) in axes {
        shape[*axis] = places.count();
    }
    let bytes = shape
        .iter()
        .try_fold(input.datum_type().size_of(), |all, size| {
            all.checked_mul(*size)
        });
    ensure!(
        bytes.is_some_and(|bytes| bytes as u64 <= MAX_TENSOR_BYTES),
        "a tensor of the shape {shape:?} is too large"
    );
    let (cpu, inputs) = (Cpu::chosen(), std::slice::from_ref(input));
    let first = axes[0].0;
    let mut sizes = ImageSizes {
        outer: from[..first].iter().product(),
        size: [from[first], 1],
        inner: from[first + axes.len()..].iter().product(),
    };
    if axes.len() == 2 {
        sizes.size[1] = from[first + 1];
    }
    let output = match axes {
        [(_, Places::Nearest(rows)), rest @ ..] => {
            let columns = match rest {
                [(_, Places::Nearest(columns))] => columns,
                _ => &vec![0],
            };
            dispatch_copy!(copied(input.datum_type())(
                sizes,
                [rows, columns],
                &shape,
                inputs
            ))?
        }
        [(_, Places::Between(rows)), (_, Places::Between(columns))] => {
            computed::<f32, f32>(&shape, inputs, |from, to, split| {
                linear(cpu, sizes, [rows, columns], from[0], to, split)
            })?
        }
        _ => {
            let positions = axes[0].1.weighted();
            let sizes = [sizes.outer, sizes.size[0], sizes.inner];
            computed::<f32, f32>(&shape, inputs, |from, to, split| {
                weighted(cpu, sizes, (&positions, fill), from[0], to, split)
            })?
        }
    };
    Ok(output.into_tvalue())
}

fn copied<T: Datum + Copy>(
    sizes: ImageSizes,
    places: [&[usize]; 2],
    shape: &[usize],
    inputs: &[TValue],
) -> TractResult<Arc<Tensor>> {
    computed::<T, T>(shape, inputs, |from, to, split| {
        nearest(sizes, places, from[0], to, split)
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in an image"
)]
fn places([from, to]: [usize; 2], sampling: ResizeSampling) -> Places {
    let last = from.saturating_sub(1);
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
    let corners = match to {
        0 | 1 => 0.0,
        _ => last as f32 / (to - 1) as f32,
    };
    let nearest = |place: &dyn Fn(f32) -> f32| {
        let places = (0..to).map(|at| (place(at as f32) as usize).min(last));
        Places::Nearest(places.collect())
    };
    let linear = |place: &dyn Fn(f32) -> f32| {
        let places = (0..to).map(|at| between(place(at as f32)));
        Places::Between(places.collect())
    };
    match sampling {
        ResizeSampling::Nearest { factor } => {
            let ratio = ratio(factor);
            nearest(&|at| at * ratio)
        }
        ResizeSampling::AlignedCentres { factor } => {
            let ratio = ratio(factor);
            linear(&|at| (at + 0.5) * ratio - 0.5)
        }
        ResizeSampling::AlignedCorners => linear(&|at| at * corners),
        ResizeSampling::AlignedStarts => {
            let ratio = ratio(None);
            linear(&|at| at * ratio)
        }
        ResizeSampling::NearestCentre => {
            let ratio = ratio(None);
            nearest(&|at| (at + 0.5) * ratio)
        }
        ResizeSampling::CornersOrMiddle if to == 1 => linear(&|_| last as f32 / 2.0),
        ResizeSampling::CornersOrMiddle => linear(&|at| at * corners),
        ResizeSampling::EqualParts => {
            let part = last.max(1) as f32 / to as f32;
            linear(&|at| (at + 0.5) * part)
        }
        ResizeSampling::Covered {
            corners: has_corners,
            factor,
        } => {
            let scale = if has_corners { corners } else { ratio(factor) };
            let places = (0..to).map(|at| covered(from, scale, at as f32));
            Places::Weighted(places.collect())
        }
    }
}

/// Returns the weights of the input positions that an output position covers.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in an image"
)]
fn covered(from: usize, scale: f32, at: f32) -> Weighted {
    let support = scale.max(1.0);
    let centre = scale * (at + 0.5);
    let first = ((centre - support + 0.5).max(0.0)) as usize;
    let end = ((centre + support + 0.5) as usize).min(from);
    let share = |place: usize| {
        let distance = (place as f32 - centre + 0.5) / support;
        (1.0 - distance.abs()).max(0.0)
    };
    let sum: f32 = (first..end).map(share).sum();
    let sum = if sum == 0.0 { 1.0 } else { sum };
    (first..end)
        .map(|place| (place, share(place) / sum))
        .collect()
}
