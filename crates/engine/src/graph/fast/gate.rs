//! Replaces products of an image with a computed factor per channel, such as a
//! squeeze-and-excitation gate. The library broadcasts the factors element by element.

use std::ops::Range;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;

use crate::graph::kernel::Kernel;
use crate::graph::pool::computed_anew;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::scale_rows;

/// Returns the replacement of this node, if it is such a float32 product.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let is_product = node
        .op_as::<TypedBinOp>()
        .is_some_and(|op| op.0.name() == "Mul" && op.1.is_none());
    if !is_product {
        return Ok(None);
    }
    let [left, right] = [0, 1].map(|at| model.outlet_fact(node.inputs[at]));
    let (left, right) = (left?, right?);
    let is_ours = |image: &TypedFact, factors: &TypedFact| {
        let dtypes = [image, factors].map(|fact| fact.datum_type);
        dtypes == [DatumType::F32; 2]
            && factors.konst.is_none()
            && image.shape == node.outputs[0].fact.shape
            && factors.shape.iter().any(|size| !size.is_one())
            && repeated(&image.shape, &factors.shape, TDim::is_one).is_some()
    };
    let inputs = if is_ours(left, right) {
        [node.inputs[0], node.inputs[1]]
    } else if is_ours(right, left) {
        [node.inputs[1], node.inputs[0]]
    } else {
        return Ok(None);
    };
    let kernel = Kernel::repeating("ScaleRows", DatumType::F32, move |inputs| {
        let [image, factors] = [0, 1].map(|at| inputs[at].shape());
        let Some(along) = repeated(image, factors, |size| *size == 1) else {
            // The library has transposed the axes, or sizes that were 1 differ in this run.
            let [image, factors] = [0, 1].map(|at| inputs[at].to_plain_array_view::<f32>());
            return Ok(tvec!((&image? * &factors?).into_tensor()));
        };
        let sizes = [
            &image[..along.start],
            &image[along.clone()],
            &image[along.end..],
        ];
        let sizes = sizes.map(|part| part.iter().product());
        let work = |from: &[&[f32]], to: &mut [f32], split| {
            scale_rows(cpu, sizes, [from[0], from[1]], to, split)
        };
        Ok(tvec!(computed_anew(image, inputs, work)?))
    });
    let patch = TypedModelPatch::replace_single_op(model, node, &inputs, kernel)?;
    Ok(Some(patch))
}

/// Returns the dimensions along which factors are repeated, if these are adjacent and all others
/// equal those of the image.
fn repeated<D: PartialEq>(
    image: &[D],
    factors: &[D],
    is_one: impl Fn(&D) -> bool,
) -> Option<Range<usize>> {
    if image.len() != factors.len() {
        return None;
    }
    let same = |at: usize| image[at] == factors[at];
    let rank = image.len();
    let start = (0..rank).find(|at| !same(*at))?;
    let end = (start..rank)
        .find(|at| !is_one(&factors[*at]))
        .unwrap_or(rank);
    (end > start && (end..rank).all(same)).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn factors_are_repeated_along_neighbours() {
        let of = |image: &[usize], factors: &[usize]| repeated(image, factors, |size| *size == 1);
        assert_eq!(of(&[2, 3, 4, 5], &[2, 3, 1, 1]), Some(2..4));
        assert_eq!(of(&[2, 4, 5, 3], &[2, 1, 1, 3]), Some(1..3));
        assert_eq!(of(&[1, 4, 5, 3], &[1, 1, 1, 3]), Some(1..3));
        assert_eq!(of(&[2, 4, 1, 5, 3], &[2, 1, 1, 1, 3]), Some(1..4));
        assert_eq!(of(&[2, 4, 3, 5], &[2, 1, 3, 1]), None);
        assert_eq!(of(&[2, 3], &[2, 3]), None);
        assert_eq!(of(&[2, 3], &[3]), None);
        assert_eq!(of(&[1, 3], &[2, 3]), None);
    }
}
