//! Reductions of unsigned 32-bit and 64-bit integers, which the library does not treat as numbers.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};

use crate::graph::kernel::Kernel;

/// Replaces reductions of dtypes that the library does not support.
pub(crate) fn prepare(model: &mut TypedModel) -> TractResult<()> {
    let mut replaced = Vec::new();
    for node in model.nodes() {
        let Some(reduce) = node.op_as::<Reduce>() else {
            continue;
        };
        let dtype = model.outlet_fact(node.inputs[0])?.datum_type;
        let is_wide = matches!(dtype, DatumType::U32 | DatumType::U64);
        if is_wide && !matches!(reduce.reducer, Reducer::All | Reducer::Any) {
            let (reduce, fact) = (reduce.clone(), node.outputs[0].fact.without_value());
            let to = fact.datum_type;
            let kernel = Kernel::new("Reduce", tvec!(fact), move |inputs| {
                Ok(tvec!(
                    reduced(&reduce, &inputs[0])?.cast_to_dt(to)?.into_owned()
                ))
            });
            replaced.push((node.id, kernel));
        }
    }
    for (node, kernel) in replaced {
        model.nodes[node].op = Box::new(kernel);
    }
    Ok(())
}

fn reduced(reduce: &Reduce, input: &Tensor) -> TractResult<Tensor> {
    let values = input.cast_to::<u64>()?;
    let view = values.to_plain_array_view::<u64>()?;
    let shape: TVec<usize> = (0..view.ndim())
        .map(|axis| {
            if reduce.axes.contains(&axis) {
                1
            } else {
                view.shape()[axis]
            }
        })
        .collect();
    // The results so far. For the position of an extreme, each has its value and its position.
    let mut found = tract_ndarray::ArrayD::from_elem(&*shape, None::<(u64, u64)>);
    for (mut at, value) in view.indexed_iter().map(|(at, value)| (at, *value)) {
        let mut place = 0;
        for axis in &reduce.axes {
            place = at[*axis] as u64;
            at[*axis] = 0;
        }
        let cell = &mut found[&at];
        let Some((known, first)) = *cell else {
            let start = match reduce.reducer {
                Reducer::MeanOfSquares => value.wrapping_mul(value),
                _ => value,
            };
            *cell = Some((start, place));
            continue;
        };
        let next = match reduce.reducer {
            Reducer::Sum => (known.wrapping_add(value), first),
            Reducer::Prod => (known.wrapping_mul(value), first),
            Reducer::Max | Reducer::ArgMax(false) if value > known => (value, place),
            Reducer::Min | Reducer::ArgMin(false) if value < known => (value, place),
            Reducer::ArgMax(true) if value >= known => (value, place),
            Reducer::ArgMin(true) if value <= known => (value, place),
            Reducer::MeanOfSquares => bail!(
                "a mean of squares of {:?} is not supported",
                input.datum_type()
            ),
            _ => (known, first),
        };
        *cell = Some(next);
    }
    let nothing = match reduce.reducer {
        Reducer::Prod => 1,
        Reducer::Min if input.datum_type() == DatumType::U32 => u64::from(u32::MAX),
        Reducer::Min => u64::MAX,
        _ => 0,
    };
    let is_place = matches!(reduce.reducer, Reducer::ArgMax(_) | Reducer::ArgMin(_));
    let results: Vec<u64> = found
        .iter()
        .map(|cell| match cell {
            Some((_, place)) if is_place => *place,
            Some((value, _)) => *value,
            None => nothing,
        })
        .collect();
    // 32-bit sums wrap around at 32 bits.
    if input.datum_type() == DatumType::U32 && !is_place {
        #[expect(clippy::cast_possible_truncation, reason = "sums wrap around")]
        let results: Vec<u32> = results.into_iter().map(|value| value as u32).collect();
        return Tensor::from_shape(&shape, &results);
    }
    Tensor::from_shape(&shape, &results)
}
