//! Replaces the transpositions of one axis that remain after the library has chosen its kernels and
//! that must rewrite memory. The library copies their elements one by one.

use tract_onnx::tract_core::internal::*;

use crate::graph::kernel::Kernel;
use crate::graph::pool::{computed, computed_bytes};
use pkgtool_kernels::turn::transposed;

/// Replaces all of them by operators of this module.
pub(super) fn settle(model: &mut TypedModel) {
    for node in &mut model.nodes {
        let Some(AxisOp::Move(from, to)) = node.op_as::<AxisOp>() else {
            continue;
        };
        let (from, to) = (*from, *to);
        let fact = node.outputs[0].fact.without_value();
        let operator = match fact.datum_type {
            DatumType::F32 => Kernel::new("Move", tvec!(fact), move |inputs| {
                let (shape, sizes) = moved(inputs[0].shape(), [from, to])?;
                let output = computed::<f32, f32>(&shape, inputs, |from, to, split| {
                    transposed(sizes, from[0], to, split)
                })?;
                Ok(tvec!(output))
            }),
            DatumType::U8 | DatumType::I8 => {
                let dtype = fact.datum_type;
                Kernel::new("MoveBytes", tvec!(fact), move |inputs| {
                    let (shape, sizes) = moved(inputs[0].shape(), [from, to])?;
                    let output = computed_bytes(dtype, &shape, inputs, |from, to, split| {
                        transposed(sizes, from[0], to, split)
                    })?;
                    Ok(tvec!(output))
                })
            }
            _ => continue,
        };
        node.op = Box::new(operator);
    }
}

/// Returns the shape after moving an axis, and the blocks that change places: `[lead, a, b, run]`.
fn moved(shape: &[usize], [from, to]: [usize; 2]) -> TractResult<(TVec<usize>, [usize; 4])> {
    let (first, last) = (from.min(to), from.max(to));
    ensure!(
        last < shape.len(),
        "axis {last} is out of range for the shape {shape:?}"
    );
    let mut moved: TVec<usize> = shape.into();
    let size = moved.remove(from);
    moved.insert(to, size);
    let middle = if from < to { first + 1 } else { last };
    let parts = [
        &shape[..first],
        &shape[first..middle],
        &shape[middle..=last],
        &shape[last + 1..],
    ];
    Ok((moved, parts.map(|part| part.iter().product())))
}

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::internal::*;

    use super::settle;

    #[test]
    fn all_moves_of_an_axis_are_those_of_the_library() -> TractResult<()> {
        let shape = [2, 3, 4, 5];
        for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
            for dtype in [DatumType::F32, DatumType::U8, DatumType::I8, DatumType::I32] {
                let mut model = TypedModel::default();
                let input = model.add_source("x", dtype.fact(shape))?;
                let output = model.wire_node("moved", AxisOp::Move(from, to), &[input])?;
                model.select_output_outlets(&output)?;
                let values: Vec<f32> = (0..120_u8).map(f32::from).collect();
                let value = Tensor::from_shape(&shape, &values)?
                    .cast_to_dt(dtype)?
                    .into_owned();
                let wanted = model
                    .clone()
                    .into_runnable()?
                    .run(tvec![value.clone().into_tvalue()])?;
                settle(&mut model);
                let is_ours = !model.nodes[1].op_is::<AxisOp>();
                assert_eq!(is_ours, dtype != DatumType::I32);
                let found = model.into_runnable()?.run(tvec![value.into_tvalue()])?;
                assert_eq!(found, wanted, "{from} to {to}");
            }
        }
        Ok(())
    }
}
