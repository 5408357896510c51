//! Lowers reductions: sums, means, extremes, variance, cumulative sums.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::Reducer;

use super::super::builder::{Builder, Wire};
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{floats, ints, tensor_of_floats, tensor_of_ints};
use super::order::first_extreme;
use super::promotion::widened;
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::sum.IntList_out"], |call| sum(call, false)),
    (&["aten::mean.out"], |call| sum(call, true)),
    (&["aten::mean.dtype_out"], |call| {
        let input = call.tensor(0)?;
        let axes: Vec<usize> = (0..call.rank(input)?).collect();
        summed(call, 2, &axes, false, true)
    }),
    (&["aten::amax.out"], |call| {
        let along = chosen_axes(call)?;
        extreme(call, true, along)
    }),
    (&["aten::amin.out"], |call| {
        let along = chosen_axes(call)?;
        extreme(call, false, along)
    }),
    (&["aten::max.unary_out"], |call| {
        let along = all_axes(call)?;
        extreme(call, true, along)
    }),
    (&["aten::min.unary_out"], |call| {
        let along = all_axes(call)?;
        extreme(call, false, along)
    }),
    (&["aten::prod.out"], |call| product(call, None)),
    (&["aten::prod.int_out"], |call| product(call, Some(1))),
    (&["aten::any.out", "aten::any.dims_out"], |call| {
        let along = chosen_axes(call)?;
        any_or_all(call, true, along)
    }),
    (&["aten::all.out", "aten::all.dims_out"], |call| {
        let along = chosen_axes(call)?;
        any_or_all(call, false, along)
    }),
    (&["aten::any.all_out"], |call| {
        let along = all_axes(call)?;
        any_or_all(call, true, along)
    }),
    (&["aten::all.all_out"], |call| {
        let along = all_axes(call)?;
        any_or_all(call, false, along)
    }),
    (&["aten::var.out"], |call| {
        let correction = if call.bool(2)? { 1.0 } else { 0.0 };
        variance(call, correction, 3, false)
    }),
    (&["aten::var.correction_out"], |call| {
        let correction = call.optional_double(2)?.unwrap_or(1.0);
        variance(call, correction, 3, false)
    }),
    (&["aten::var_mean.correction_out"], |call| {
        let correction = call.optional_double(2)?.unwrap_or(1.0);
        variance(call, correction, 3, true)
    }),
    (&["aten::cumsum.out"], cumulative_sum),
];

/// Returns the dtype in which numbers are summed.
fn sum_dtype(dtype: DType) -> DType {
    if dtype.is_float() {
        widened(dtype)
    } else {
        DType::Int64
    }
}

/// Returns the dimensions to reduce, and whether they are kept: the second and third argument.
fn chosen_axes(call: &mut OperatorCall<'_, '_>) -> TractResult<(Vec<usize>, bool)> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    Ok((call.axes(1, rank)?, call.bool(2)?))
}

/// Returns all dimensions, none of which is kept.
fn all_axes(call: &mut OperatorCall<'_, '_>) -> TractResult<(Vec<usize>, bool)> {
    let input = call.tensor(0)?;
    Ok(((0..call.rank(input)?).collect(), false))
}

fn sum(call: &mut OperatorCall<'_, '_>, mean: bool) -> TractResult<()> {
    let (axes, keep) = chosen_axes(call)?;
    summed(call, 4, &axes, keep, mean)
}

fn summed(
    call: &mut OperatorCall<'_, '_>,
    out: usize,
    axes: &[usize],
    keep: bool,
    mean: bool,
) -> TractResult<()> {
    let dtype = sum_dtype(call.out_dtype(out)?);
    let input = call.tensor_as(0, dtype)?;
    let shape = call.frame.builder.shape(input)?;
    if axes.is_empty() || shape.is_empty() {
        return call.set_output(
            out,
            Wire {
                outlet: input,
                dtype,
            },
        );
    }
    let empty = shape.iter().any(|dim| *dim == TDim::Val(0));
    if !dtype.is_float() || empty {
        let wire = reduce_lines(
            call,
            input,
            DType::Int64,
            axes,
            keep,
            |line| line.iter().sum(),
            |line| line.iter().fold(0, |sum, x| sum.wrapping_add(*x)),
        )?;
        return call.set_output(out, wire);
    }
    let builder = &mut call.frame.builder;
    let mut outlet = builder.reduce(Reducer::Sum, input, axes, keep)?;
    if mean {
        let mut counted: Vec<usize> = axes.to_vec();
        counted.sort_unstable();
        counted.dedup();
        let count = counted
            .into_iter()
            .map(|axis| shape[axis].clone())
            .product::<TDim>();
        let count = builder.size(&count.reduce(), dtype)?;
        outlet = builder.binary(Box::new(math::Div), outlet, count)?;
    }
    call.set_output(out, Wire { outlet, dtype })
}

/// A tensor whose reduced dimensions are contiguous, as lines.
struct Lines {
    moved: OutletId,
    /// Sizes of the other dimensions; their product is the number of lines.
    lead: Vec<TDim>,
    /// The reduced dimensions, sorted and unique.
    axes: Vec<usize>,
}

impl Lines {
    fn along(builder: &mut Builder, input: OutletId, axes: &[usize]) -> TractResult<Self> {
        let shape = builder.shape(input)?;
        let mut axes: Vec<usize> = axes.to_vec();
        axes.sort_unstable();
        axes.dedup();
        let kept: Vec<usize> = (0..shape.len())
            .filter(|axis| !axes.contains(axis))
            .collect();
        let order: Vec<usize> = kept.iter().chain(&axes).copied().collect();
        Ok(Self {
            moved: builder.transpose(input, &order)?,
            lead: kept.iter().map(|&axis| shape[axis].clone()).collect(),
            axes,
        })
    }

    /// Reshapes one value per line to the shape of the reduced tensor.
    fn reduced(
        &self,
        builder: &mut Builder,
        outlet: OutletId,
        keep: bool,
    ) -> TractResult<OutletId> {
        let mut outlet = outlet;
        for &axis in self.axes.iter().filter(|_| keep) {
            outlet = builder.wire(AxisOp::Add(axis), &[outlet])?;
        }
        Ok(outlet)
    }
}

/// Applies a function to all elements along some dimensions.
fn reduce_lines(
    call: &mut OperatorCall<'_, '_>,
    input: OutletId,
    dtype: DType,
    axes: &[usize],
    keep: bool,
    float: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
    int: impl Fn(&[i64]) -> i64 + Send + Sync + 'static,
) -> TractResult<Wire> {
    let builder = &mut call.frame.builder;
    let lines = Lines::along(builder, input, axes)?;
    let depth = lines.lead.len();
    let to = datum_type(dtype);
    let wire = builder.kernel("Lines", dtype, &lines.lead, &[lines.moved], move |inputs| {
        let shape = inputs[0].shape();
        let size = shape[depth..].iter().product::<usize>();
        let count = shape[..depth].iter().product::<usize>();
        let line = |at: usize| at * size..(at + 1) * size;
        if to.is_float() {
            let values = floats(&inputs[0])?;
            let made: Vec<f64> = (0..count).map(|at| float(&values[line(at)])).collect();
            return tensor_of_floats(&shape[..depth], &made, to);
        }
        let values = ints(&inputs[0])?;
        let made: Vec<i64> = (0..count).map(|at| int(&values[line(at)])).collect();
        tensor_of_ints(&shape[..depth], &made, to)
    })?;
    let outlet = lines.reduced(builder, wire.outlet, keep)?;
    Ok(Wire { outlet, dtype })
}

fn extreme(
    call: &mut OperatorCall<'_, '_>,
    largest: bool,
    (axes, keep): (Vec<usize>, bool),
) -> TractResult<()> {
    let input = call.tensor(0)?;
    let dtype = match widened(input.dtype) {
        DType::Bool => DType::Int64,
        dtype => dtype,
    };
    let outlet = call.tensor_as(0, dtype)?;
    let out = call.out();
    if call.frame.builder.rank(outlet)? == 0 {
        return call.set_output(out, Wire { outlet, dtype });
    }
    // tract's extremes lose NaN.
    let wire = reduce_lines(
        call,
        outlet,
        dtype,
        &axes,
        keep,
        move |line| {
            first_extreme(largest)(line)
                .first()
                .map_or(f64::NAN, |at| line[*at])
        },
        move |line| {
            let mut line = line.iter().copied();
            let first = line.next().unwrap_or(0);
            line.fold(first, |a, b| if largest { a.max(b) } else { a.min(b) })
        },
    )?;
    call.set_output(out, wire)
}

/// Computes whether any or all elements are non-zero.
fn any_or_all(
    call: &mut OperatorCall<'_, '_>,
    any: bool,
    (axes, keep): (Vec<usize>, bool),
) -> TractResult<()> {
    let truth = call.tensor_as(0, DType::Bool)?;
    let builder = &mut call.frame.builder;
    let shape = builder.shape(truth)?;
    let out = call.out();
    if shape.is_empty() {
        return call.set_output(out, Wire::new(truth, DType::Bool));
    }
    let builder = &mut call.frame.builder;
    let lines = Lines::along(builder, truth, &axes)?;
    let depth = lines.lead.len();
    let wire = builder.kernel(
        if any { "Any" } else { "All" },
        DType::Bool,
        &lines.lead,
        &[lines.moved],
        move |inputs| {
            let shape = inputs[0].shape();
            let size: usize = shape[depth..].iter().product();
            let count: usize = shape[..depth].iter().product();
            let bytes = inputs[0].as_bytes();
            let lines = (0..count).map(|at| &bytes[at * size..(at + 1) * size]);
            let told: Vec<bool> = lines
                .map(|line| {
                    if any {
                        line.iter().any(|byte| *byte != 0)
                    } else {
                        line.iter().all(|byte| *byte != 0)
                    }
                })
                .collect();
            Tensor::from_shape(&shape[..depth], &told)
        },
    )?;
    let outlet = lines.reduced(builder, wire.outlet, keep)?;
    call.set_output(out, Wire { outlet, ..wire })
}

fn product(call: &mut OperatorCall<'_, '_>, dim: Option<usize>) -> TractResult<()> {
    let out = call.out();
    let dtype = sum_dtype(call.out_dtype(out)?);
    let input = call.tensor_as(0, dtype)?;
    let rank = call.frame.builder.rank(input)?;
    let (axes, keep) = match dim {
        Some(at) => (vec![call.axis(at, rank)?], call.bool(at + 1)?),
        None => ((0..rank).collect(), false),
    };
    let wire = reduce_lines(
        call,
        input,
        dtype,
        &axes,
        keep,
        |line| line.iter().product(),
        |line| {
            line.iter()
                .fold(1, |product: i64, x| product.wrapping_mul(*x))
        },
    )?;
    call.set_output(out, wire)
}

#[expect(clippy::cast_precision_loss, reason = "number of elements")]
fn variance(
    call: &mut OperatorCall<'_, '_>,
    correction: f64,
    keep: usize,
    with_mean: bool,
) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let rank = call.frame.builder.rank(input)?;
    let axes = call.axes(1, rank)?;
    let keep = call.bool(keep)?;
    let lines = Lines::along(&mut call.frame.builder, input, &axes)?;
    let depth = lines.lead.len();
    let facts = tvec!(f32::fact(&lines.lead), f32::fact(&lines.lead));
    let kernel = Kernel::new("Variance", facts, move |inputs| {
        let shape = inputs[0].shape();
        let count = shape[depth..].iter().product::<usize>();
        let (mut variances, mut means) = (Vec::new(), Vec::new());
        let values = floats(&inputs[0])?;
        for line in values.chunks(count.max(1)) {
            let mean = line.iter().sum::<f64>() / line.len() as f64;
            let squares = line.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
            variances.push(squares / (line.len() as f64 - correction).max(0.0));
            means.push(mean);
        }
        let of = |values: &[f64]| tensor_of_floats(&shape[..depth], values, DatumType::F32);
        Ok(tvec!(of(&variances)?, of(&means)?))
    });
    let outlets = call.frame.builder.wire_all(kernel, &[lines.moved])?;
    let mut wires = Vec::new();
    for outlet in outlets {
        let outlet = lines.reduced(&mut call.frame.builder, outlet, keep)?;
        wires.push(Wire::float(outlet));
    }
    if with_mean {
        call.set_output(4, wires[0])?;
        return call.set_output(5, wires[1]);
    }
    call.set_result(wires[0])
}

fn cumulative_sum(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let dtype = sum_dtype(call.out_dtype(3)?);
    let input = call.tensor_as(0, dtype)?;
    let shape = call.frame.builder.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let to = datum_type(dtype);
    let wire = call.kernel("CumSum", dtype, &shape, &[input], move |inputs| {
        let shape = inputs[0].shape();
        let inner: usize = shape.iter().skip(axis + 1).product();
        let size = shape.get(axis).copied().unwrap_or(1);
        let first = |place: usize| inner == 0 || (place / inner).is_multiple_of(size);
        if to.is_float() {
            let mut values = floats(&inputs[0])?;
            for place in 0..values.len() {
                if !first(place) {
                    values[place] += values[place - inner];
                }
            }
            return tensor_of_floats(shape, &values, to);
        }
        let mut values = ints(&inputs[0])?;
        for place in 0..values.len() {
            if !first(place) {
                values[place] = values[place].wrapping_add(values[place - inner]);
            }
        }
        tensor_of_ints(shape, &values, to)
    })?;
    call.set_output(3, wire)
}
