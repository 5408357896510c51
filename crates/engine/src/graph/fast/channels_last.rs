//! Moves the channels of images to the last dimension around an operator.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::PoolSpec;

use crate::graph::kernel::Kernel;

/// The dimensions of images of one or two spatial dimensions.
pub(super) struct ImageAxes {
    /// The axis of channels.
    pub(super) channels: usize,
    last: usize,
    has_images: bool,
}

impl ImageAxes {
    /// Returns the axes of float32 images, or `None` for other tensors.
    pub(super) fn of(spec: &PoolSpec, images: &TypedFact) -> Option<Self> {
        let (rank, spatial, format) = (images.rank(), spec.rank(), spec.data_format);
        let has_images = format.has_n();
        let is_ours = images.datum_type == DatumType::F32
            && (1..=2).contains(&spatial)
            && rank == spatial + 1 + usize::from(has_images);
        let (last, first) = (rank.saturating_sub(1), usize::from(has_images));
        is_ours.then_some(Self {
            channels: if format.c_is_last() { last } else { first },
            last,
            has_images,
        })
    }

    /// Returns the height and width of images, or the width alone.
    pub(super) fn size<'a>(&self, images: &'a TypedFact) -> &'a [TDim] {
        let first = usize::from(self.has_images) + usize::from(self.channels != self.last);
        &images.shape[first..][..self.last - usize::from(self.has_images)]
    }

    /// Returns the patch that computes `end` by an operator on images `[n, h, w, c]`.
    pub(super) fn patch(
        &self,
        model: &TypedModel,
        name: &str,
        (inputs, end): (&[OutletId], OutletId),
        operator: impl FnOnce(&TypedFact) -> TractResult<Kernel>,
    ) -> TractResult<TypedModelPatch> {
        let Self {
            channels,
            last,
            has_images,
        } = *self;
        let mut patch = TypedModelPatch::new("images on this crate's kernels");
        let mut images = patch.taps(model, inputs)?;
        for image in &mut images {
            if channels != last {
                let inward = AxisOp::Move(channels, last);
                *image = patch.wire_node(format!("{name}.channels_last"), inward, &[*image])?[0];
            }
            if !has_images {
                *image = patch.wire_node(format!("{name}.one"), AxisOp::Add(0), &[*image])?[0];
            }
        }
        let operator = operator(patch.outlet_fact(images[0])?)?;
        let mut output = patch.wire_node(name, operator, &images)?[0];
        if !has_images {
            output = patch.wire_node(format!("{name}.alone"), AxisOp::Rm(0), &[output])?[0];
        }
        if channels != last {
            let outward = AxisOp::Move(last, channels);
            output = patch.wire_node(format!("{name}.channels"), outward, &[output])?[0];
        }
        patch.shunt_outside(model, end, output)?;
        Ok(patch)
    }
}
