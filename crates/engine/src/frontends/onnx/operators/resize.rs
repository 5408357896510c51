//! `Resize` and `Upsample`.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::nn::resize::{
    AxisPlan, CoordTransformer, Interpolator, cubic_weights, linear_weights, plan_axis, window_size,
};
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{attribute, integer, text};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, operator, stored,
};
use crate::graph::resize::{Places, ResizeOperator, ResizedAxis};

/// The first operator set whose `Resize` has attributes for coordinates and for nearest positions.
const WITH_COORDINATES: i64 = 11;

/// Builds the operator of a node.
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    let has_coordinates = context.onnx_operator_set_version >= WITH_COORDINATES;
    let given: Vec<Option<usize>> = optional_inputs(node).chain([None; 4]).take(4).collect();
    let [region, scales, sizes] = if has_coordinates {
        [given[1], given[2], given[3]]
    } else {
        [None, given[1], None]
    };
    let given = given.iter().flatten().count();
    let resizing = Resizing {
        sampling: OnnxSampling::of(node, has_coordinates)?,
        policy: match text(node, "keep_aspect_ratio_policy") {
            b"" | b"stretch" => None,
            b"not_larger" => Some(f32::min),
            b"not_smaller" => Some(f32::max),
            other => bail!("unknown policy `{}`", String::from_utf8_lossy(other)),
        },
        fill: attribute(node, "extrapolation_value").map_or(0.0, |value| value.f),
        axes: attribute(node, "axes").map(|axes| axes.ints.clone()),
        scales: attribute(node, "scales").map(|scales| scales.floats.clone()),
        inputs: [region, scales, sizes],
    };
    operator("Resize", given, resizing)
}

/// Chooses one of the scales of all dimensions.
type ChooseScale = fn(f32, f32) -> f32;

/// A `Resize` node of the model.
#[derive(Debug, Clone)]
struct Resizing {
    sampling: OnnxSampling,
    /// Chooses the scale of all dimensions; `None` if each has its own.
    policy: Option<ChooseScale>,
    fill: f32,
    axes: Option<Vec<i64>>,
    /// The scales, if they are an attribute.
    scales: Option<Vec<f32>>,
    /// Indices of the inputs with the region, the scales and the sizes.
    inputs: [Option<usize>; 3],
}

/// The scale and the new size of a dimension; without a scale, it is the ratio of the sizes.
type ScaleAndSize = (Option<f32>, TDim);

impl Resizing {
    /// Returns the resized dimensions, with the scale and the new size of each.
    fn axes(
        &self,
        shape: &[TDim],
        scales: Option<&Tensor>,
        sizes: Option<&Tensor>,
    ) -> TractResult<Vec<(usize, ScaleAndSize)>> {
        let rank = shape.len();
        let axes: Vec<usize> = match &self.axes {
            Some(axes) => axes
                .iter()
                .map(|axis| axis_of(*axis, rank))
                .collect::<TractResult<_>>()?,
            None => (0..rank).collect(),
        };
        let scales = scales.map(numbers_of).transpose()?;
        let scales = scales.or_else(|| self.scales.clone());
        let fits = |given: usize| {
            ensure!(
                given == axes.len(),
                "{given} scales or sizes are given for {} dimensions",
                axes.len()
            );
            TractResult::Ok(())
        };
        if let Some(scales) = scales.filter(|scales| !scales.is_empty()) {
            fits(scales.len())?;
            let scaled = axes.iter().zip(scales).map(|(axis, scale)| {
                let size = scaled(&shape[*axis], scale)?;
                Ok((*axis, (Some(scale), size)))
            });
            return scaled.collect();
        }
        let sizes = sizes.context("expected the input `scales` or `sizes`, found neither")?;
        let sizes = sizes.cast_to::<TDim>()?;
        let sizes = sizes.try_as_plain_ram()?.as_slice::<TDim>()?;
        fits(sizes.len())?;
        let sizes = axes.into_iter().zip(sizes);
        let Some(policy) = self.policy else {
            return Ok(sizes
                .map(|(axis, size)| (axis, (None, size.clone())))
                .collect());
        };
        let known = sizes.map(|(axis, size)| Ok((axis, shape[axis].to_usize()?, size.to_usize()?)));
        let known = known.collect::<TractResult<Vec<_>>>()?;
        let ratios = known.iter().map(|(_, from, to)| ratio(*to, *from));
        let scale = ratios.reduce(policy).context("no sizes are given")?;
        let scaled = known.into_iter().map(|(axis, from, _)| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "sizes of an image"
            )]
            let size = (scale * from as f32 + 0.5) as usize;
            (axis, (Some(scale), size.to_dim()))
        });
        Ok(scaled.collect())
    }

    /// Returns the start and the end of the region along each of `count` dimensions.
    fn region(&self, count: usize, region: Option<&Tensor>) -> TractResult<Vec<[f32; 2]>> {
        if self.sampling.coordinates != Coordinates::Cropped {
            return Ok(vec![[0.0, 1.0]; count]);
        }
        let region = region.context("the region to crop is missing")?;
        let region = numbers_of(region)?;
        ensure!(
            region.len() == 2 * count,
            "a region of {count} dimensions needs {} numbers, got {}",
            2 * count,
            region.len()
        );
        Ok((0..count)
            .map(|at| [region[at], region[at + count]])
            .collect())
    }
}

impl NodeOperator for Resizing {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[0].rank, &outputs[0].rank)?;
        let [_, scales, sizes] = self.inputs;
        let given = [scales, sizes];
        let values: Vec<_> = given
            .iter()
            .flatten()
            .map(|at| (&inputs[*at].value).bex())
            .collect();
        s.given_all(values, move |s, values: Vec<Arc<Tensor>>| {
            s.given(&inputs[0].shape, move |s, shape| {
                let mut values = values.iter();
                let [scales, sizes] =
                    given.map(|at| at.and_then(|_| values.next()).map(|value| &**value));
                let mut resized = shape.to_vec();
                for (axis, (_, size)) in self.axes(&shape, scales, sizes)? {
                    resized[axis] = size;
                }
                s.equals(&outputs[0].shape, ShapeFactoid::from(resized))
            })
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let [region, scales, sizes] = self.inputs;
        let values = [(scales, "scales"), (sizes, "sizes")];
        let [scales, sizes] =
            values.map(|(at, what)| at.map(|at| stored(model, inputs[at], what)).transpose());
        let needs_region = self.sampling.coordinates == Coordinates::Cropped;
        let region = region.filter(|_| needs_region);
        let region = region
            .map(|at| stored(model, inputs[at], "regions"))
            .transpose()?;
        let shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let axes = self.axes(&shape, scales?.as_deref(), sizes?.as_deref())?;
        let regions = self.region(axes.len(), region.as_deref())?;
        let axes = axes.into_iter().zip(regions);
        let axes = axes.map(|((axis, (scale, size)), region)| {
            let sampling = self.sampling.clone();
            ResizedAxis::new(axis, size, move |sizes| {
                sampling.places(scale, sizes, region)
            })
        });
        let operator = ResizeOperator {
            axes: axes.collect(),
            fill: self.fill,
        };
        model.wire_node(prefix, operator, &inputs[..1])
    }
}

/// How output positions map to input positions.
#[derive(Debug, Clone)]
struct OnnxSampling {
    coordinates: Coordinates,
    interpolator: Interpolator,
    nearest: Nearest,
    /// The coefficient of cubic weights.
    cubic: f32,
    is_smooth: bool,
    excludes_outside: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Coordinates {
    /// `tf_crop_and_resize`.
    Cropped,
    Plain(CoordTransformer),
}

/// The nearest position of a coordinate between two.
#[derive(Debug, Clone, Copy)]
enum Nearest {
    /// The second one from this distance on.
    From(f32),
    /// The second one beyond this distance.
    Beyond(f32),
    /// The second one if the output is smaller than the input, else the first one.
    LastOfFewer,
}

impl OnnxSampling {
    fn of(node: &NodeProto, has_coordinates: bool) -> TractResult<Self> {
        let coordinates = match text(node, "coordinate_transformation_mode") {
            _ if !has_coordinates => Coordinates::Plain(CoordTransformer::Asymmetric),
            b"" => Coordinates::Plain(CoordTransformer::HalfPixel),
            b"tf_crop_and_resize" => Coordinates::Cropped,
            other => Coordinates::Plain(CoordTransformer::parse(std::str::from_utf8(other)?)?),
        };
        let nearest = match text(node, "nearest_mode") {
            _ if !has_coordinates => Nearest::LastOfFewer,
            b"" | b"round_prefer_floor" => Nearest::Beyond(0.5),
            b"round_prefer_ceil" => Nearest::From(0.5),
            b"floor" => Nearest::From(1.0),
            b"ceil" => Nearest::Beyond(0.0),
            other => bail!(
                "unknown `nearest_mode` `{}`",
                String::from_utf8_lossy(other)
            ),
        };
        Ok(Self {
            coordinates,
            interpolator: match text(node, "mode") {
                b"" | b"nearest" => Interpolator::Nearest,
                b"linear" => Interpolator::Linear,
                b"cubic" => Interpolator::Cubic,
                other => bail!("unknown mode `{}`", String::from_utf8_lossy(other)),
            },
            nearest,
            cubic: attribute(node, "cubic_coeff_a").map_or(-0.75, |value| value.f),
            is_smooth: integer(node, "antialias", 0) != 0,
            excludes_outside: integer(node, "exclude_outside", 0) != 0,
        })
    }

    /// Returns the input coordinate of an output position; `None` if it is outside of the input.
    fn coordinate(
        &self,
        at: usize,
        scale: f32,
        [from, to]: [usize; 2],
        region: [f32; 2],
    ) -> Option<f32> {
        match &self.coordinates {
            Coordinates::Plain(CoordTransformer::PytorchHalfPixel) if to == 1 => Some(0.0),
            Coordinates::Plain(plain) => Some(plain.transform(at, scale, from, to)),
            #[expect(clippy::cast_precision_loss, reason = "positions in an image")]
            Coordinates::Cropped => {
                let (last, width) = (from as f32 - 1.0, scale * from as f32);
                let span = last * (region[1] - region[0]);
                let offset = if (width - 1.0).abs() < f32::EPSILON {
                    span / 2.0
                } else {
                    at as f32 * span / (width - 1.0)
                };
                let place = offset + region[0] * last;
                (0.0..=last).contains(&place).then_some(place)
            }
        }
    }

    fn places(&self, scale: Option<f32>, sizes: [usize; 2], region: [f32; 2]) -> Places {
        let [from, to] = sizes;
        let scale = scale.unwrap_or_else(|| ratio(to, from));
        let window = window_size(&self.interpolator, self.is_smooth, scale);
        let coordinate = |at| self.coordinate(at, scale, sizes, region);
        let is_second = |distance: f32| match self.nearest {
            Nearest::From(least) => distance >= least,
            Nearest::Beyond(most) => distance > most,
            Nearest::LastOfFewer => scale < 1.0,
        };
        // A coordinate at a position is at distance 1 of the one before.
        let weights = |distance: f32, weights: &mut [f32]| match self.interpolator {
            Interpolator::Linear => linear_weights(distance, scale, self.is_smooth, weights),
            Interpolator::Cubic => {
                cubic_weights(distance, scale, self.cubic, self.is_smooth, weights);
            }
            Interpolator::Nearest => {
                let is_second = distance.to_bits() == 1.0_f32.to_bits() || is_second(distance);
                weights.copy_from_slice(if is_second { &[0.0, 1.0] } else { &[1.0, 0.0] });
            }
        };
        let plan = plan_axis(from, to, window, self.excludes_outside, coordinate, weights);
        let is_weighted = window != 2 || plan.extrapolated.contains(&true);
        match self.interpolator {
            Interpolator::Nearest if !is_weighted => Places::Nearest(first_places(&plan)),
            Interpolator::Linear if !is_weighted => {
                let between = between(&plan);
                // Nothing lies between positions that stay where they are.
                let stay = between
                    .iter()
                    .enumerate()
                    .all(|(at, place)| (place.0, place.2.to_bits()) == (at, 0));
                if stay && from == to {
                    return Places::Nearest((0..to).collect());
                }
                Places::Between(between)
            }
            _ => Places::Weighted(weighted(&plan)),
        }
    }
}

/// Returns the positions and the weights of each output position.
fn taps(plan: &AxisPlan) -> impl Iterator<Item = (&[usize], &[f32])> {
    plan.indices
        .chunks_exact(plan.window)
        .zip(plan.weights.chunks_exact(plan.window))
}

fn first_places(plan: &AxisPlan) -> Vec<usize> {
    let first = taps(plan).map(|(places, weights)| places[usize::from(weights[0] == 0.0)]);
    first.collect()
}

fn between(plan: &AxisPlan) -> Vec<(usize, usize, f32)> {
    let pairs = taps(plan).map(|(places, weights)| {
        let (first, second) = (places[0], places[1]);
        if weights[0] == 0.0 {
            (second, second, 0.0)
        } else if first == second {
            (first, first, 0.0)
        } else {
            (first, second, weights[1])
        }
    });
    pairs.collect()
}

fn weighted(plan: &AxisPlan) -> Vec<Vec<(usize, f32)>> {
    let taps = taps(plan).zip(&plan.extrapolated);
    let taps = taps.map(|((places, weights), is_outside)| {
        let taps = places.iter().copied().zip(weights.iter().copied());
        taps.filter(|(_, weight)| *weight != 0.0 && !is_outside)
            .collect()
    });
    taps.collect()
}

/// Returns a size multiplied by a scale, rounded down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of an image"
)]
fn scaled(size: &TDim, scale: f32) -> TractResult<TDim> {
    ensure!(
        scale > 0.0 && scale.is_finite(),
        "a scale must be greater than 0, got {scale}"
    );
    if let Ok(size) = size.to_usize() {
        return Ok(((size as f32 * scale) as usize).to_dim());
    }
    // Scales like 2 and 0.5 keep sizes that are not known yet.
    let fraction = [1_u8, 2, 4, 8].into_iter().find(|parts| {
        let whole = scale * f32::from(*parts);
        whole.fract() == 0.0 && whole < 1024.0
    });
    let parts = fraction.context("a size that is not known before the run has no such scale")?;
    let whole = (scale * f32::from(parts)) as u64;
    Ok((size.clone() * i64::try_from(whole)? / u64::from(parts)).reduce())
}

#[expect(clippy::cast_precision_loss, reason = "sizes of an image")]
fn ratio(of: usize, to: usize) -> f32 {
    of as f32 / to as f32
}

fn numbers_of(tensor: &Tensor) -> TractResult<Vec<f32>> {
    let values = tensor.cast_to::<f32>()?;
    Ok(values.try_as_plain_ram()?.as_slice::<f32>()?.to_vec())
}
