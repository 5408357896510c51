//! Convolutions and pooling windows, shared by portable operators and XNNPACK nodes.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cnn::deconv::Deconv;
use tract_onnx::tract_core::ops::cnn::{
    Conv, KernelFormat, MaxPool, PaddingSpec, PoolSpec, SumPool,
};
use tract_onnx::tract_core::ops::nn::DataFormat;

use super::builder::Builder;

/// A sliding window over an image, with one number for each spatial dimension.
#[derive(Debug, Clone)]
pub(crate) struct SlidingWindow {
    /// Whether channels are the last dimension.
    pub(crate) channels_last: bool,
    /// Window sizes.
    pub(crate) kernel: Vec<usize>,
    /// Strides.
    pub(crate) stride: Vec<usize>,
    /// Dilations: distances between elements within a window.
    pub(crate) dilation: Vec<usize>,
    /// Padding before the image.
    pub(crate) before: Vec<usize>,
    /// Padding after the image.
    pub(crate) after: Vec<usize>,
}

/// A convolution.
#[derive(Debug, Clone)]
pub(crate) struct ImageConvolution {
    /// The sliding window.
    pub(crate) window: SlidingWindow,
    /// Layout of the kernel.
    pub(crate) format: KernelFormat,
    /// Number of channel groups.
    pub(crate) groups: usize,
    /// Number of input channels.
    pub(crate) input_channels: usize,
    /// Number of output channels.
    pub(crate) output_channels: usize,
}

impl SlidingWindow {
    fn check(&self) -> TractResult<()> {
        let n = self.kernel.len();
        let same = [&self.stride, &self.dilation, &self.before, &self.after];
        ensure!(
            same.iter().all(|list| list.len() == n),
            "ranks of kernel, stride, dilation and padding differ"
        );
        let positive = [&self.kernel, &self.stride, &self.dilation];
        ensure!(
            positive
                .iter()
                .all(|list| list.iter().all(|size| *size > 0)),
            "window size, stride and dilation must be positive"
        );
        Ok(())
    }

    fn spec(&self, input_channels: usize, output_channels: usize) -> PoolSpec {
        PoolSpec {
            data_format: if self.channels_last {
                DataFormat::NHWC
            } else {
                DataFormat::NCHW
            },
            kernel_shape: self.kernel.as_slice().into(),
            padding: PaddingSpec::Explicit(
                self.before.as_slice().into(),
                self.after.as_slice().into(),
            ),
            dilations: Some(self.dilation.as_slice().into()),
            strides: Some(self.stride.as_slice().into()),
            input_channels,
            output_channels,
        }
    }

    /// Returns tract's description of the windows, one for each channel, after checking that they
    /// fit into the image.
    pub(crate) fn over(&self, builder: &Builder, input: OutletId) -> TractResult<PoolSpec> {
        self.check()?;
        self.fits(builder, input)?;
        let channels = self.channels(builder, input)?;
        Ok(self.spec(channels, channels))
    }

    /// Returns the axis of channels and the first spatial axis.
    fn axes(&self) -> (usize, usize) {
        if self.channels_last {
            (self.kernel.len() + 1, 1)
        } else {
            (1, 2)
        }
    }

    fn channels(&self, builder: &Builder, input: OutletId) -> TractResult<usize> {
        let shape = builder.shape(input)?;
        ensure!(
            shape.len() == self.kernel.len() + 2,
            "invalid rank of an image: {}",
            shape.len()
        );
        Ok(shape[self.axes().0].to_usize()?)
    }

    /// Checks that windows fit into the padded input.
    fn fits(&self, builder: &Builder, input: OutletId) -> TractResult<()> {
        let shape = builder.shape(input)?;
        let first = self.axes().1;
        for (at, kernel) in self.kernel.iter().enumerate() {
            let Ok(size) = shape[first + at].to_usize() else {
                continue;
            };
            let span = (kernel - 1)
                .checked_mul(self.dilation[at])
                .and_then(|span| span.checked_add(1));
            let room = size
                .checked_add(self.before[at])
                .and_then(|room| room.checked_add(self.after[at]));
            ensure!(
                span.is_some() && span <= room,
                "window of size {kernel} does not fit into a dimension of size {size}"
            );
        }
        Ok(())
    }
}

impl ImageConvolution {
    /// Adds a convolution. A missing bias is 0.
    pub(crate) fn wire(
        &self,
        builder: &mut Builder,
        input: OutletId,
        kernel: OutletId,
        bias: Option<OutletId>,
    ) -> TractResult<OutletId> {
        let sizes = known_sizes(builder, kernel)?;
        let pool_spec = self.over(builder, input, &sizes)?;
        let bias = self.bias(builder, bias)?;
        let op = Conv {
            pool_spec,
            kernel_fmt: self.format,
            group: self.groups,
            q_params: None,
        };
        builder.wire(op, &[input, kernel, bias])
    }

    /// Returns tract's description of the windows, after checking the kernel's sizes and that the
    /// windows fit into the image.
    pub(crate) fn over(
        &self,
        builder: &Builder,
        input: OutletId,
        kernel: &[usize],
    ) -> TractResult<PoolSpec> {
        let spec = self.over_transposed(builder, input, kernel)?;
        self.window.fits(builder, input)?;
        Ok(spec)
    }

    /// Returns tract's description of the windows of a transposed convolution, after checking the kernel's sizes.
    pub(crate) fn over_transposed(
        &self,
        builder: &Builder,
        input: OutletId,
        kernel: &[usize],
    ) -> TractResult<PoolSpec> {
        self.check(builder, input, kernel)?;
        Ok(self.window.spec(self.input_channels, self.output_channels))
    }

    /// Adds a transposed convolution; `adjustment` is added to the size of the output.
    pub(crate) fn wire_transposed(
        &self,
        builder: &mut Builder,
        input: OutletId,
        kernel: OutletId,
        bias: Option<OutletId>,
        adjustment: &[usize],
    ) -> TractResult<OutletId> {
        let sizes = known_sizes(builder, kernel)?;
        let pool_spec = self.over_transposed(builder, input, &sizes)?;
        let bias = self.bias(builder, bias)?;
        let op = Deconv {
            pool_spec,
            kernel_format: self.format,
            adjustments: adjustment.into(),
            group: self.groups,
        };
        builder.wire(op, &[input, kernel, bias])
    }

    fn bias(&self, builder: &mut Builder, bias: Option<OutletId>) -> TractResult<OutletId> {
        let Some(bias) = bias else {
            return builder.float(0.0, 0);
        };
        let shape = builder.shape(bias)?;
        ensure!(
            shape.len() == 1 && shape[0] == self.output_channels.to_dim(),
            "invalid bias of shape {shape:?}: expected one number for each of {} channels",
            self.output_channels
        );
        Ok(bias)
    }

    fn check(&self, builder: &Builder, input: OutletId, sizes: &[usize]) -> TractResult<()> {
        self.window.check()?;
        let channels = self.window.channels(builder, input)?;
        ensure!(
            channels == self.input_channels && self.groups > 0,
            "wrong number of channels: got {channels}, the kernel expects {}",
            self.input_channels
        );
        ensure!(
            self.input_channels.is_multiple_of(self.groups)
                && self.output_channels.is_multiple_of(self.groups),
            "channels are not divisible by the groups: {} input and {} output channels, {} groups",
            self.input_channels,
            self.output_channels,
            self.groups
        );
        ensure!(
            sizes.len() == self.window.kernel.len() + 2,
            "invalid rank of a kernel: {}",
            sizes.len()
        );
        let per_group = self.input_channels / self.groups;
        let same = self.format.hw(sizes) == self.window.kernel
            && *self.format.i(sizes) == per_group
            && *self.format.o(sizes) == self.output_channels;
        ensure!(same, "kernel of shape {sizes:?} does not match {self:?}");
        Ok(())
    }
}

fn known_sizes(builder: &Builder, outlet: OutletId) -> TractResult<Vec<usize>> {
    let shape = builder.shape(outlet)?;
    shape.iter().map(|dim| Ok(dim.to_usize()?)).collect()
}

/// Computes the maximum of each window.
pub(crate) fn max_pool(
    builder: &mut Builder,
    window: &SlidingWindow,
    input: OutletId,
) -> TractResult<OutletId> {
    let op = MaxPool {
        pool_spec: window.over(builder, input)?,
        with_index_outputs: None,
    };
    builder.wire(op, &[input])
}

/// Computes the mean of each window; padding counts as 0 or is left out.
pub(crate) fn average_pool(
    builder: &mut Builder,
    window: &SlidingWindow,
    input: OutletId,
    count_padding: bool,
) -> TractResult<OutletId> {
    let op = SumPool {
        pool_spec: window.over(builder, input)?,
        count_include_pad: count_padding,
        normalize: true,
    };
    builder.wire(op, &[input])
}

/// Returns padding before and after for an output of the input's size divided by the strides.
pub(crate) fn same_padding(
    size: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
) -> (usize, usize) {
    let span = (kernel - 1) * dilation + 1;
    let needed = (size.div_ceil(stride) - 1) * stride + span;
    let padding = needed.saturating_sub(size);
    (padding / 2, padding - padding / 2)
}
