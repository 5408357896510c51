//! `Slice` as the standard defines it. Bounds are clamped to their axis, an end before its start
//! gives an empty result, steps may be negative, and a run may compute the bounds. The library
//! rejects or misreads most of that.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice as Range;
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::graph::attribute;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, counted_from_start, operator,
};
use crate::graph::kernel::Kernel;

/// An end at or beyond this is the end of any axis.
const END_OF_AXIS: i64 = i32::MAX as i64;
/// A large size, for determining the sign of an expression for large sizes.
const LARGE: i64 = 100_000_000;

/// Builds `Slice`.
pub(crate) fn build(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let stored = |name: &str| {
        let values = attribute(node, name).map(|found| tensor1(&found.ints).into_arc_tensor());
        values.map_or(Bound::Absent, Bound::Stored)
    };
    let bounds = if attribute(node, "starts").is_some() {
        [
            stored("starts"),
            stored("ends"),
            stored("axes"),
            Bound::Absent,
        ]
    } else {
        let mut inputs = optional_inputs(node).skip(1);
        [(); 4].map(|()| inputs.next().flatten().map_or(Bound::Absent, Bound::Input))
    };
    let has_bounds = !bounds[..2].iter().any(|it| matches!(it, Bound::Absent));
    ensure!(has_bounds, "the starts or the ends of a slice are missing");
    let slice = SliceNode { bounds };
    operator("Slice", 1 + slice.inputs().count(), slice)
}

/// The source of starts, ends, axes or steps.
#[derive(Debug, Clone)]
enum Bound {
    Absent,
    Stored(Arc<Tensor>),
    Input(usize),
}

/// A `Slice` node of the model.
#[derive(Debug, Clone)]
struct SliceNode {
    /// Starts, ends, axes and steps.
    bounds: [Bound; 4],
}

/// The facts about a slice that are known before a run: for each of its axes the start, the end and
/// the step.
struct KnownBounds {
    axes: Vec<usize>,
    /// `None` if a run computes them.
    parts: Option<Vec<(TDim, TDim, i64)>>,
}

/// The result of slicing an axis.
enum SliceResult {
    /// A range.
    Range(TDim, TDim),
    /// This many positions that are not a contiguous range.
    Places(usize),
    /// Known only during a run.
    Unknown,
}

impl SliceNode {
    /// Returns the known facts of the slice; `value` returns the known value of an input.
    fn known(
        &self,
        rank: usize,
        value: impl Fn(usize) -> Option<Arc<Tensor>>,
    ) -> TractResult<KnownBounds> {
        let [starts, ends, axes, steps] = self.bounds.each_ref().map(|bound| match bound {
            Bound::Absent => Ok(None),
            Bound::Stored(values) => Ok(Some(values.clone())),
            Bound::Input(at) => value(*at).map(Some).ok_or(()),
        });
        let unknown = || format_err!("computed axes of a slice are not supported");
        let axes = match axes.map_err(|()| unknown())? {
            Some(axes) => axes_of(&axes, rank)?,
            None => match starts.as_ref().or(ends.as_ref()) {
                Ok(Some(bounds)) => (0..bounds.len().min(rank)).collect(),
                _ => (0..rank).collect(),
            },
        };
        let (Ok(Some(starts)), Ok(Some(ends)), Ok(steps)) = (starts, ends, steps) else {
            return Ok(KnownBounds { axes, parts: None });
        };
        let (starts, ends) = (dims(&starts)?, dims(&ends)?);
        let steps = steps.map_or(Ok(vec![1; axes.len()]), |steps| integers(&steps))?;
        check(&axes, [starts.len(), ends.len(), steps.len()], &steps)?;
        let parts = starts.into_iter().zip(ends).zip(steps);
        let parts = parts.map(|((start, end), step)| (start, end, step));
        Ok(KnownBounds {
            axes,
            parts: Some(parts.collect()),
        })
    }

    /// Returns the positions of the inputs that hold bounds.
    fn inputs(&self) -> impl Iterator<Item = usize> {
        self.bounds.iter().filter_map(|bound| match bound {
            Bound::Input(at) => Some(*at),
            _ => None,
        })
    }
}

/// Returns the axes that a tensor lists, for this rank.
fn axes_of(axes: &Tensor, rank: usize) -> TractResult<Vec<usize>> {
    let axes = integers(axes)?.into_iter().map(|axis| {
        let at = counted_from_start(axis, rank)?;
        at.with_context(|| format!("cannot slice axis {axis}: the rank is {rank}"))
    });
    axes.collect()
}

/// Returns the integers of a small tensor, possibly as symbolic sizes. The library converts
/// integers to sizes through 32 bits.
pub(crate) fn dims(tensor: &Tensor) -> TractResult<Vec<TDim>> {
    if tensor.datum_type() == DatumType::TDim {
        return Ok(tensor.try_as_plain_ram()?.as_slice::<TDim>()?.to_vec());
    }
    let values = tensor.cast_to::<i64>()?;
    let values = values.try_as_plain_ram()?;
    Ok(values
        .as_slice::<i64>()?
        .iter()
        .map(ToDim::to_dim)
        .collect())
}

/// Returns the integers of a small tensor.
fn integers(tensor: &Tensor) -> TractResult<Vec<i64>> {
    let values = dims(tensor)?;
    values.iter().map(|it| Ok(it.to_i64()?)).collect()
}

/// Rejects inconsistent bounds.
fn check(axes: &[usize], counts: [usize; 3], steps: &[i64]) -> TractResult<()> {
    ensure!(
        counts.iter().all(|count| *count == axes.len()),
        "a slice of {} axes has {} starts, {} ends and {} steps",
        axes.len(),
        counts[0],
        counts[1],
        counts[2]
    );
    ensure!(!steps.contains(&0), "the step of a slice is 0");
    Ok(())
}

/// Returns the first position along an axis of this size, and the number of positions.
fn places(size: i64, start: i64, end: i64, step: i64) -> (i64, i64) {
    if size == 0 {
        return (0, 0);
    }
    let from_start = |place: i64| {
        if place < 0 {
            place.saturating_add(size)
        } else {
            place
        }
    };
    let (start, end) = (from_start(start), from_start(end));
    let (start, distance) = if step > 0 {
        let start = start.clamp(0, size);
        (start, end.clamp(0, size) - start)
    } else {
        let start = start.clamp(0, size - 1);
        (start, start - end.clamp(-1, size - 1))
    };
    let step = step.saturating_abs();
    let count = distance.max(0) / step + i64::from(distance.max(0) % step > 0);
    (start, count)
}

/// Returns the result of slicing an axis, as far as it is known before a run.
fn rest(size: &TDim, start: &TDim, end: &TDim, step: i64) -> TractResult<SliceResult> {
    if let (Ok(size), Ok(start), Ok(end)) = (size.to_i64(), start.to_i64(), end.to_i64()) {
        let (first, count) = places(size, start, end, step);
        return Ok(match step {
            1 => SliceResult::Range(first.to_dim(), (first + count).to_dim()),
            _ => SliceResult::Places(usize::try_from(count)?),
        });
    }
    if step != 1 {
        return Ok(SliceResult::Unknown);
    }
    // A plan for all sizes assumes bounds within their axis. A run with other bounds fails and gets
    // a plan for its own sizes.
    let counted = |place: &TDim| {
        if is_from_end(place) {
            (place.clone() + size).reduce()
        } else {
            place.clone()
        }
    };
    let last = match end.to_i64() {
        Ok(end) if end >= END_OF_AXIS => size.clone(),
        Ok(end) if end <= -END_OF_AXIS => 0.to_dim(),
        _ => counted(end),
    };
    let first = match start.to_i64() {
        Ok(start) if start <= -END_OF_AXIS => 0.to_dim(),
        _ => counted(start),
    };
    let count = (last.clone() - &first).reduce();
    if count.to_i64().is_ok_and(|count| count <= 0) {
        return Ok(SliceResult::Range(0.to_dim(), 0.to_dim()));
    }
    Ok(SliceResult::Range(first, last))
}

/// Returns `true` if a position counts from the end: a negative number, or an expression that is
/// negative for large sizes.
fn is_from_end(place: &TDim) -> bool {
    if place.prove_positive_or_zero() {
        return false;
    }
    if place.prove_negative_or_zero() {
        return true;
    }
    let symbols: Vec<Symbol> = place.symbols().into_iter().collect();
    let [symbol] = symbols.as_slice() else {
        return false;
    };
    let values = SymbolValues::default().with(symbol, LARGE);
    place.eval(&values).to_i64().is_ok_and(|place| place < 0)
}

impl NodeOperator for SliceNode {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[0].rank, &outputs[0].rank)?;
        if let Bound::Input(axes) = self.bounds[2] {
            let axes = &inputs[axes].value;
            s.given_2(&inputs[0].rank, axes, move |s, rank, axes| {
                let rank = usize::try_from(rank)?;
                let axes = axes_of(&axes, rank)?;
                let mut others = (0..rank).filter(|axis| !axes.contains(axis));
                others
                    .try_for_each(|axis| s.equals(&inputs[0].shape[axis], &outputs[0].shape[axis]))
            })?;
        }
        s.given(&inputs[0].shape, move |s, shape| {
            let values: Vec<_> = self.inputs().map(|at| (&inputs[at].value).bex()).collect();
            s.given_all(values, move |s, values: Vec<Arc<Tensor>>| {
                let values: Vec<(usize, Arc<Tensor>)> = self.inputs().zip(values).collect();
                let value = |at: usize| {
                    let found = values.iter().find(|(input, _)| *input == at);
                    found.map(|(_, value)| value.clone())
                };
                let known = self.known(shape.len(), value)?;
                for (axis, size) in shape.iter().enumerate() {
                    let at = known.axes.iter().rposition(|it| *it == axis);
                    let part = at.zip(known.parts.as_ref()).map(|(at, parts)| &parts[at]);
                    let size = match part {
                        None => size.clone(),
                        Some((start, end, step)) => match rest(size, start, end, *step)? {
                            SliceResult::Range(first, last) => (last - first).reduce(),
                            SliceResult::Places(count) => count.to_dim(),
                            SliceResult::Unknown => continue,
                        },
                    };
                    s.equals(&outputs[0].shape[axis], size)?;
                }
                Ok(())
            })
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let shape = fact.shape.to_tvec();
        let known = self.known(shape.len(), |at| {
            let fact = model.outlet_fact(*inputs.get(at)?).ok()?;
            fact.konst.clone()
        })?;
        let mut cut = shape.clone();
        let mut ranges = Vec::new();
        let mut are_ranges = known.parts.is_some();
        for (at, &axis) in known.axes.iter().enumerate() {
            let part = known.parts.as_ref().map(|parts| &parts[at]);
            let rest = part.map_or(Ok(SliceResult::Unknown), |(start, end, step)| {
                rest(&shape[axis], start, end, *step)
            });
            cut[axis] = match rest? {
                SliceResult::Range(first, last) => {
                    let size = (last.clone() - &first).reduce();
                    ranges.push((axis, first, last));
                    size
                }
                SliceResult::Places(count) => {
                    are_ranges = false;
                    count.to_dim()
                }
                SliceResult::Unknown => {
                    are_ranges = false;
                    model.symbols.new_with_prefix("part").to_dim()
                }
            };
        }
        if are_ranges {
            return wire_ranges(prefix, model, inputs[0], ranges);
        }
        let mut given = tvec!(inputs[0]);
        for (at, bound) in [0, 1, 3].into_iter().map(|at| (at, &self.bounds[at])) {
            match bound {
                Bound::Absent => {}
                Bound::Input(input) => given.push(inputs[*input]),
                Bound::Stored(values) => {
                    let name = format!("{prefix}.bound.{at}");
                    given.push(model.add_const(name, values.clone())?);
                }
            }
        }
        let axes = known.axes;
        let kernel = Kernel::with_context(
            "Slice",
            tvec!(fact.datum_type.fact(cut)),
            move |context, inputs| sliced(&axes, context, inputs),
        );
        model.wire_node(prefix, kernel.binding(), &given)
    }
}

/// Slices one axis after the other; the last operator gets the node's own name.
fn wire_ranges(
    prefix: &str,
    model: &mut TypedModel,
    from: OutletId,
    ranges: Vec<(usize, TDim, TDim)>,
) -> TractResult<TVec<OutletId>> {
    let mut outlet = from;
    let last = ranges.len().saturating_sub(1);
    for (at, (axis, first, end)) in ranges.into_iter().enumerate() {
        let name = if at == last {
            prefix.to_owned()
        } else {
            format!("{prefix}.axis-{axis}.{at}")
        };
        outlet = model.wire_node(name, Range::new(axis, first, end), &[outlet])?[0];
    }
    Ok(tvec!(outlet))
}

/// Computes a slice that is not a contiguous range, or whose bounds are inputs.
fn sliced(axes: &[usize], context: &EvalContext, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
    let values = |at: usize| -> TractResult<Vec<i64>> {
        let values = dims(&inputs[at])?;
        let values = values.iter().map(|it| it.eval(context.symbols));
        values.map(|it| Ok(it.to_i64()?)).collect()
    };
    let (starts, ends) = (values(1)?, values(2)?);
    let steps = if inputs.len() > 3 {
        values(3)?
    } else {
        vec![1; axes.len()]
    };
    check(axes, [starts.len(), ends.len(), steps.len()], &steps)?;
    let whole = tract_ndarray::Slice::from(..);
    let mut slices = vec![whole; inputs[0].rank()];
    for (at, &axis) in axes.iter().enumerate() {
        let size = i64::try_from(inputs[0].shape()[axis])?;
        let (first, count) = places(size, starts[at], ends[at], steps[at]);
        slices[axis] = slice_of(first, count, steps[at])?;
    }
    let picked = dispatch_datum!(pick(inputs[0].datum_type())(&inputs[0], &slices))?;
    Ok(tvec!(picked))
}

/// Returns a slice of this many positions from the first one.
fn slice_of(first: i64, count: i64, step: i64) -> TractResult<tract_ndarray::Slice> {
    let step = if count > 1 { step } else { 1 };
    let last = first + (count - 1).max(0) * step;
    let (low, high) = (first.min(last), first.max(last) + i64::from(count > 0));
    Ok(tract_ndarray::Slice::new(
        isize::try_from(low)?,
        Some(isize::try_from(high)?),
        isize::try_from(step)?,
    ))
}

fn pick<T: Datum>(from: &Tensor, slices: &[tract_ndarray::Slice]) -> TractResult<Tensor> {
    let view = from.to_plain_array_view::<T>()?;
    let view = view.slice_each_axis(|axis| slices[axis.axis.index()]);
    let values: Vec<T> = view.iter().cloned().collect();
    let picked = tract_ndarray::ArrayD::from_shape_vec(view.shape(), values)?;
    Ok(picked.into_tensor())
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn bounds_are_clamped_as_the_standard_says() {
        for (size, start, end, step, expected) in [
            (4, 3, 1, 1, (3, 0)),
            (4, 7, 9, 1, (4, 0)),
            (4, -1, -3, 1, (3, 0)),
            (4, -100, 2, 1, (0, 2)),
            (4, 1, i64::MAX, 1, (1, 3)),
            (4, 1, i64::MIN, 1, (1, 0)),
            (4, 3, 0, -1, (3, 3)),
            (4, 0, 3, -1, (0, 0)),
            (4, -1, i64::MIN, -2, (3, 2)),
            (4, 100, -100, -1, (3, 4)),
            (4, -100, -200, -1, (0, 1)),
            (4, 0, i64::MAX, i64::MAX, (0, 1)),
            (4, 3, i64::MIN, i64::MIN, (3, 1)),
            (0, 1, 5, 1, (0, 0)),
            (0, -1, -5, -1, (0, 0)),
        ] {
            let found = places(size, start, end, step);
            assert_eq!(found, expected, "{start}:{end}:{step} of {size}");
        }
    }
}
