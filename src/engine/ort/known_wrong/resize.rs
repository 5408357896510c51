//! Resizes that are computed wrongly: corners aligned by fractions, crops that keep a size.
//!
//! Invariant: a crop that the file does not show to be computed rightly is refused.

use super::Values;
use crate::model::Dim;
use crate::model::onnx::Node;
use crate::tensor::Signature;

const BY_FRACTIONS: &str = "corners are aligned wrongly by scales that are not whole numbers";
const CROPPED: &str =
    "nothing is cropped by `tf_crop_and_resize` along an axis whose size does not change";

/// A resize that may be computed wrongly.
pub(super) struct Resize {
    /// Names of its inputs: the tensor, the region, scales, sizes.
    inputs: Vec<String>,
    crops: bool,
}

impl Resize {
    /// The node, if it is one of them.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let mode = |name| node.is("coordinate_transformation_mode", name);
        let crops = mode("tf_crop_and_resize");
        // By sizes corners are aligned as ONNX says.
        let aligns = mode("align_corners") && !node.has_input(3);
        (node.operator == "Resize" && (crops || aligns)).then(|| Self {
            inputs: node.inputs.clone(),
            crops,
        })
    }

    /// Why it is computed wrongly, unless the file shows that it is not.
    pub(super) fn cause(&self, values: &Values, signature: &Signature) -> Option<&'static str> {
        if self.crops {
            return (!self.changes_what_it_crops(values, signature)).then_some(CROPPED);
        }
        // Coordinates are scaled by the output's whole size, ONNX's cases have the product of size and scale.
        let scales = self.floats(2, values);
        let is_whole = |scales: &[f32]| scales.iter().all(|scale| scale.fract() == 0.0);
        let fits = scales.is_some_and(|scales| !scales.is_empty() && is_whole(scales));
        (!fits).then_some(BY_FRACTIONS)
    }

    fn floats<'a>(&self, place: usize, values: &'a Values) -> Option<&'a [f32]> {
        let stored = values.get(self.inputs.get(place)?)?;
        stored.floats.as_deref()
    }

    /// Whether every axis gets another size than it has, or is kept whole.
    fn changes_what_it_crops(&self, values: &Values, signature: &Signature) -> bool {
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
