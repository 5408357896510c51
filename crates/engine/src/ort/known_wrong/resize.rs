//! `Resize` nodes that ONNX Runtime computes wrongly: aligned corners with fractional scales, and
//! crops that keep a size.
//!
//! Invariant: a crop is rejected unless the file proves that it is computed correctly.

use super::StoredValues;
use crate::tensor::Signature;
use pkgtool_model::Dim;
use pkgtool_model::onnx::OnnxNode;

const FRACTIONAL_SCALES: &str = "corners are aligned wrongly for fractional scales";
const UNCROPPED_AXIS: &str =
    "`tf_crop_and_resize` does not crop along an axis whose size stays the same";

/// A `Resize` node that may be computed wrongly.
pub(super) struct Resize {
    /// Names of its inputs: the tensor, the region, the scales, the sizes.
    inputs: Vec<String>,
    crops: bool,
}

impl Resize {
    /// Returns the resize in a node, if it may be computed wrongly.
    pub(super) fn of(node: &OnnxNode) -> Option<Self> {
        let mode = |name| node.is("coordinate_transformation_mode", name);
        let crops = mode("tf_crop_and_resize");
        // With sizes, corners are aligned as ONNX specifies.
        let aligns = mode("align_corners") && !node.has_input(3);
        (node.operator == "Resize" && (crops || aligns)).then(|| Self {
            inputs: node.inputs.clone(),
            crops,
        })
    }

    /// Returns the reason why it is computed wrongly, unless the file proves the opposite.
    pub(super) fn cause(
        &self,
        values: &StoredValues,
        signature: &Signature,
    ) -> Option<&'static str> {
        if self.crops {
            return (!self.changes_what_it_crops(values, signature)).then_some(UNCROPPED_AXIS);
        }
        // The library scales coordinates by the output's integer size; ONNX uses the exact product
        // of size and scale.
        let scales = self.floats(2, values);
        let is_whole = |scales: &[f32]| scales.iter().all(|scale| scale.fract() == 0.0);
        let fits = scales.is_some_and(|scales| !scales.is_empty() && is_whole(scales));
        (!fits).then_some(FRACTIONAL_SCALES)
    }

    fn floats<'a>(&self, place: usize, values: &'a StoredValues) -> Option<&'a [f32]> {
        let stored = values.get(self.inputs.get(place)?)?;
        stored.floats.as_deref()
    }

    /// Returns `true` if every axis either changes its size or is not cropped.
    fn changes_what_it_crops(&self, values: &StoredValues, signature: &Signature) -> bool {
        let sizes = self.inputs.get(3).and_then(|name| values.get(name));
        let sizes = sizes.and_then(|stored| stored.ints.as_deref());
        let input = self.inputs.first();
        let input = signature
            .inputs
            .iter()
            .find(|spec| Some(&spec.name) == input);
        let dims = input.and_then(|spec| spec.dims.as_deref());
        let (Some(sizes), Some(dims), Some(region)) = (sizes, dims, self.floats(1, values)) else {
            return false;
        };
        if sizes.len() != dims.len() || region.len() != 2 * dims.len() {
            return false;
        }
        let mut axes = dims.iter().zip(sizes).enumerate();
        axes.all(|(axis, (dim, size))| {
            let is_other = matches!(dim, Dim::Fixed(dim) if i64::try_from(*dim) != Ok(*size));
            let is = |at: usize, value: f32| region[at].to_bits() == value.to_bits();
            let is_whole = is(axis, 0.0) && is(dims.len() + axis, 1.0);
            is_other || is_whole
        })
    }
}
