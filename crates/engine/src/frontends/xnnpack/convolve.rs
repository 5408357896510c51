//! Convolutions and pooling of an XNNPACK graph, on images `[n, h, w, c]`.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::KernelFormat;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::Reducer;

use super::XnnpackLowering;
use crate::graph::builder::check_rank;
use crate::graph::convolution::{
    ImageConvolution, SlidingWindow, average_pool, max_pool, same_padding,
};
use crate::graph::kernel::Kernel;
use crate::tensor::DType;
use pkgtool_model::executorch::xnnpack::{Conv, ConvKind, PoolWindow};

pub(super) fn pair(numbers: [u64; 2]) -> TractResult<Vec<usize>> {
    numbers
        .iter()
        .map(|number| Ok(usize::try_from(*number)?))
        .collect()
}

impl XnnpackLowering<'_> {
    /// Returns a window with padding `[top, right, bottom, left]`.
    fn window(
        &self,
        input: OutletId,
        padding: [u64; 4],
        [kernel, stride, dilation]: [[u64; 2]; 3],
        same: bool,
    ) -> TractResult<SlidingWindow> {
        let [top, right, bottom, left] = padding;
        let mut window = SlidingWindow {
            channels_last: true,
            kernel: pair(kernel)?,
            stride: pair(stride)?,
            dilation: pair(dilation)?,
            before: pair([top, left])?,
            after: pair([bottom, right])?,
        };
        if same {
            let shape = self.builder.shape(input)?;
            check_rank(&shape, 4, "an image")?;
            for at in 0..2 {
                let sizes = (window.kernel[at], window.stride[at], window.dilation[at]);
                ensure!(
                    sizes.0 > 0 && sizes.1 > 0,
                    "window size and stride must be positive"
                );
                let size = shape[1 + at].to_usize()?;
                (window.before[at], window.after[at]) =
                    same_padding(size, sizes.0, sizes.1, sizes.2);
            }
        }
        Ok(window)
    }

    /// Describes a convolution of this input.
    pub(super) fn convolution(
        &self,
        conv: &Conv,
        input: OutletId,
    ) -> TractResult<ImageConvolution> {
        let groups = usize::try_from(conv.groups)?;
        let sizes = [conv.kernel, conv.stride, conv.dilation];
        let window = self.window(input, conv.padding, sizes, conv.same_padding)?;
        let channels = |per_group: u64| {
            let all = conv.groups.checked_mul(per_group);
            let all = all.and_then(|all| usize::try_from(all).ok());
            all.context("too many channels")
        };
        Ok(ImageConvolution {
            window,
            format: KernelFormat::OIHW,
            groups,
            input_channels: channels(conv.group_input_channels)?,
            output_channels: channels(conv.group_output_channels)?,
        })
    }

    pub(super) fn conv(
        &mut self,
        conv: &Conv,
        input: OutletId,
        filter: OutletId,
        bias: Option<OutletId>,
    ) -> TractResult<OutletId> {
        let convolution = self.convolution(conv, input)?;
        // tract supports grouped convolutions only for kernels stored in this layout.
        let order = match conv.kind {
            ConvKind::Depthwise => [3, 0, 1, 2],
            ConvKind::Plain | ConvKind::Transposed => [0, 3, 1, 2],
        };
        let filter = self.builder.transpose(filter, &order)?;
        if conv.kind == ConvKind::Transposed {
            let adjustment = pair(conv.adjustment)?;
            return convolution.wire_transposed(self.builder, input, filter, bias, &adjustment);
        }
        convolution.wire(self.builder, input, filter, bias)
    }

    /// Returns the windows of pooling this input.
    pub(super) fn pool_window(
        &self,
        input: OutletId,
        pool: &PoolWindow,
    ) -> TractResult<SlidingWindow> {
        let sizes = [
            pool.size,
            pool.stride,
            pool.dilation.map(|step| step.max(1)),
        ];
        self.window(input, pool.padding, sizes, pool.same_padding)
    }

    pub(super) fn max_pool(&mut self, pool: &PoolWindow, input: OutletId) -> TractResult<OutletId> {
        let window = self.pool_window(input, pool)?;
        max_pool(self.builder, &window, input)
    }

    pub(super) fn average_pool(&mut self, pool: &PoolWindow) -> TractResult<OutletId> {
        let input = self.input(pool.input)?;
        let window = self.pool_window(input, pool)?;
        average_pool(self.builder, &window, input, false)
    }

    /// Computes the maximum of each window and its position `row · width + column` within the
    /// window.
    pub(super) fn arg_max_pool(&mut self, pool: &PoolWindow) -> TractResult<[OutletId; 2]> {
        let input = self.input(pool.input)?;
        let window = self.pool_window(input, pool)?;
        let most = max_pool(self.builder, &window, input)?;
        let shape = self.builder.shape(most)?;
        let kernel = Kernel::new("WindowPlaces", tvec!(f32::fact(&shape)), move |inputs| {
            Ok(tvec!(places(&inputs[0], inputs[1].shape(), &window)?))
        });
        let places = self.builder.wire(kernel, &[input, most])?;
        Ok([most, places])
    }

    pub(super) fn global_average(&mut self, input: u32, keep: bool) -> TractResult<OutletId> {
        let input = self.input(input)?;
        let shape = self.builder.shape(input)?;
        ensure!(shape.len() == 4, "an image of {} dimensions", shape.len());
        let count = (shape[1].clone() * &shape[2]).reduce();
        let count = self.builder.size(&count, DType::Float32)?;
        let sum = self.builder.reduce(Reducer::Sum, input, &[1, 2], keep)?;
        self.builder.binary(Box::new(math::Div), sum, count)
    }
}

#[expect(clippy::cast_precision_loss, reason = "places in a window")]
fn places(input: &Tensor, shape: &[usize], window: &SlidingWindow) -> TractResult<Tensor> {
    let image = input.to_plain_array_view::<f32>()?;
    let from = input.shape();
    let mut places = tract_onnx::prelude::tract_ndarray::ArrayD::<f32>::zeros(shape);
    for (at, place) in places.indexed_iter_mut() {
        let mut best = f32::NEG_INFINITY;
        for i in 0..window.kernel[0] {
            for j in 0..window.kernel[1] {
                let y = (at[1] * window.stride[0] + i).checked_sub(window.before[0]);
                let x = (at[2] * window.stride[1] + j).checked_sub(window.before[1]);
                let (Some(y), Some(x)) = (y, x) else { continue };
                if y < from[1] && x < from[2] && image[[at[0], y, x, at[3]]] > best {
                    best = image[[at[0], y, x, at[3]]];
                    *place = (i * window.kernel[1] + j) as f32;
                }
            }
        }
    }
    Ok(places.into_tensor())
}
