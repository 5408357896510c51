//! Replaces sums along axes before the last ones, such as an image's height and width before its
//! channels. The library reads their elements one by one, each from another row.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};

use crate::graph::kernel::Kernel;
use crate::graph::pool::computed_anew;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::sum_of_rows;

/// Returns the replacement of this node, if it is such a float32 sum.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let Some(sum) = node.op_as::<Reduce>() else {
        return Ok(None);
    };
    let fact = model.outlet_fact(node.inputs[0])?;
    let (Some(&first), Some(&last)) = (sum.axes.first(), sum.axes.last()) else {
        return Ok(None);
    };
    let is_ours = sum.reducer == Reducer::Sum
        && fact.datum_type == DatumType::F32
        && sum.axes.windows(2).all(|two| two[0] + 1 == two[1])
        && fact.shape[last + 1..].iter().any(|size| !size.is_one());
    if !is_ours {
        return Ok(None);
    }
    let facts = tvec!(node.outputs[0].fact.without_value());
    let kernel = Kernel::new("SumOfRows", facts, move |inputs| {
        let mut shape: TVec<usize> = inputs[0].shape().into();
        let sizes = [&shape[..first], &shape[first..=last], &shape[last + 1..]];
        let sizes = sizes.map(|part| part.iter().product());
        shape[first..=last].fill(1);
        let work =
            |from: &[&[f32]], to: &mut [f32], split| sum_of_rows(cpu, sizes, from[0], to, split);
        Ok(tvec!(computed_anew(&shape, inputs, work)?))
    });
    let patch = TypedModelPatch::replace_single_op(model, node, &node.inputs, kernel)?;
    Ok(Some(patch))
}
