//! Lowers pooling.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::convolution::{SlidingWindow, average_pool, max_pool};
use super::call::{LoweringTable, OperatorCall};
use crate::graph::kernel::Kernel;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::max_pool2d_with_indices.out"], lower_max_pool),
    (&["aten::avg_pool2d.out"], lower_average_pool),
    (&["aten::_adaptive_avg_pool2d.out"], lower_adaptive_pool),
];

/// Adds a batch dimension to a single image. Returns whether it was missing.
fn batched(call: &mut OperatorCall<'_, '_>, input: OutletId) -> TractResult<(OutletId, bool)> {
    match call.frame.builder.rank(input)? {
        4 => Ok((input, false)),
        3 => Ok((call.wire(AxisOp::Add(0), &[input])?, true)),
        rank => bail!("invalid rank of an image: expected 3 or 4, got {rank}"),
    }
}

fn give(
    call: &mut OperatorCall<'_, '_>,
    at: usize,
    outlet: OutletId,
    dtype: DType,
    single: bool,
) -> TractResult<()> {
    let outlet = if single {
        call.wire(AxisOp::Rm(0), &[outlet])?
    } else {
        outlet
    };
    call.set_output(at, Wire { outlet, dtype })
}

/// Returns the window and padding described by arguments 1 to 3.
fn window(
    call: &mut OperatorCall<'_, '_>,
    input: OutletId,
    dilation: Option<usize>,
    ceil: usize,
) -> TractResult<SlidingWindow> {
    let pair = |numbers: Vec<usize>, absent: &[usize]| match numbers.as_slice() {
        [] => absent.to_vec(),
        [one] => vec![*one, *one],
        _ => numbers,
    };
    let kernel = pair(call.sizes(1)?, &[1, 1]);
    let stride = pair(call.sizes(2)?, &kernel);
    let padding = pair(call.sizes(3)?, &[0, 0]);
    let dilation = match dilation {
        Some(at) => pair(call.sizes(at)?, &[1, 1]),
        None => vec![1, 1],
    };
    let mut after = padding.clone();
    if call.bool(ceil)? {
        let shape = call.frame.builder.shape(input)?;
        for at in 0..2 {
            let size = shape[2 + at].to_usize()? + 2 * padding[at];
            let span = (kernel[at] - 1) * dilation[at] + 1;
            ensure!(
                span <= size && stride[at] > 0,
                "invalid window: {span} elements do not fit into {size}, or the stride is 0"
            );
            let mut count = (size - span).div_ceil(stride[at]) + 1;
            // The last window starts inside the image or the padding before it.
            if (count - 1) * stride[at] >= size - padding[at] {
                count -= 1;
            }
            after[at] = (padding[at] + (count - 1) * stride[at] + span).saturating_sub(size);
        }
    }
    Ok(SlidingWindow {
        channels_last: false,
        kernel,
        stride,
        dilation,
        before: padding,
        after,
    })
}

fn lower_max_pool(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let (input, single) = batched(call, input)?;
    let window = window(call, input, Some(4), 5)?;
    let outlet = max_pool(&mut call.frame.builder, &window, input)?;
    let shape = call.frame.builder.shape(outlet)?;
    give(call, 6, outlet, DType::Float32, single)?;
    // Unread outputs are dropped, so this is computed only if it is used.
    let places = Kernel::new("MaxPlaces", tvec!(i64::fact(&shape)), move |inputs| {
        Ok(tvec!(places(&inputs[0], inputs[1].shape(), &window)?))
    });
    let places = call.wire(places, &[input, outlet])?;
    give(call, 7, places, DType::Int64, single)
}

/// Returns the position of each window's largest element within its plane.
fn places(input: &Tensor, shape: &[usize], window: &SlidingWindow) -> TractResult<Tensor> {
    let view = input.try_as_plain_ram()?;
    let image = view.as_slice::<f32>()?;
    let (height, width) = (input.shape()[2], input.shape()[3]);
    let mut places = Vec::with_capacity(shape.iter().product());
    for plane in image.chunks_exact((height * width).max(1)) {
        for row in 0..shape[2] {
            for column in 0..shape[3] {
                let mut best: Option<(f32, usize)> = None;
                for i in 0..window.kernel[0] {
                    for j in 0..window.kernel[1] {
                        let y = (row * window.stride[0] + i * window.dilation[0])
                            .checked_sub(window.before[0]);
                        let x = (column * window.stride[1] + j * window.dilation[1])
                            .checked_sub(window.before[1]);
                        let (Some(y), Some(x)) = (y, x) else { continue };
                        if y >= height || x >= width {
                            continue;
                        }
                        let value = plane[y * width + x];
                        if best.is_none_or(|(most, _)| value > most || value.is_nan()) {
                            best = Some((value, y * width + x));
                        }
                    }
                }
                places.push(i64::try_from(best.map_or(0, |(_, place)| place))?);
            }
        }
    }
    Tensor::from_shape(shape, &places)
}

fn lower_average_pool(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let (input, single) = batched(call, input)?;
    let window = window(call, input, None, 4)?;
    let count_padding = call.bool(5)?;
    let divisor = call.optional_int(6)?;
    let ceiled = window.after != window.before;
    let outlet = if divisor.is_none() && !(count_padding && ceiled) {
        average_pool(&mut call.frame.builder, &window, input, count_padding)?
    } else {
        counted_mean(call, input, &window, count_padding, divisor)?
    };
    give(call, 7, outlet, DType::Float32, single)
}

/// Computes means with an explicit divisor, or without the padding that only rounding up added.
#[expect(clippy::cast_precision_loss, reason = "number of elements")]
fn counted_mean(
    call: &mut OperatorCall<'_, '_>,
    input: OutletId,
    window: &SlidingWindow,
    count_padding: bool,
    divisor: Option<i64>,
) -> TractResult<OutletId> {
    let shape = call.frame.builder.shape(input)?;
    let mut out = shape.clone();
    for at in 0..2 {
        let size = shape[2 + at].to_usize()? + window.before[at] + window.after[at];
        ensure!(
            window.kernel[at] <= size,
            "window of {} elements does not fit into {size}",
            window.kernel[at]
        );
        out[2 + at] = ((size - window.kernel[at]) / window.stride[at] + 1).to_dim();
    }
    let sizes: Vec<usize> = out[2..]
        .iter()
        .map(|dim| Ok(dim.to_usize()?))
        .collect::<TractResult<_>>()?;
    let window = window.clone();
    let wire = call.kernel("Mean", DType::Float32, &out, &[input], move |inputs| {
        let from = inputs[0].shape();
        let (height, width) = (from[2], from[3]);
        let view = inputs[0].try_as_plain_ram()?;
        let mut means = Vec::new();
        for plane in view
            .as_slice::<f32>()?
            .chunks_exact((height * width).max(1))
        {
            for row in 0..sizes[0] {
                let (y, rows) = span(row, 0, height, &window);
                for column in 0..sizes[1] {
                    let (x, columns) = span(column, 1, width, &window);
                    let lines = y.clone().map(|y| &plane[y * width..(y + 1) * width]);
                    let total: f32 = lines.map(|line| line[x.clone()].iter().sum::<f32>()).sum();
                    let count = match divisor {
                        Some(divisor) => divisor as f32,
                        None if count_padding => (rows * columns) as f32,
                        None => (y.len() * x.len()) as f32,
                    };
                    means.push(total / count);
                }
            }
        }
        let shape = [from[0], from[1], sizes[0], sizes[1]];
        Tensor::from_shape(&shape, &means)
    })?;
    Ok(wire.outlet)
}

/// Returns the elements of a line inside a window, and the window's size including padding.
fn span(
    at: usize,
    axis: usize,
    size: usize,
    window: &SlidingWindow,
) -> (std::ops::Range<usize>, usize) {
    let start = at * window.stride[axis];
    let end = (start + window.kernel[axis]).min(size + 2 * window.before[axis]);
    let inside = |place: usize| place.saturating_sub(window.before[axis]).min(size);
    (inside(start)..inside(end), end - start)
}

fn lower_adaptive_pool(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let (input, single) = batched(call, input)?;
    let sizes = call.sizes(1)?;
    ensure!(
        sizes.len() == 2 && !sizes.contains(&0),
        "invalid output sizes {sizes:?}: expected 2 positive sizes"
    );
    let mut out = call.frame.builder.shape(input)?;
    out[2] = sizes[0].to_dim();
    out[3] = sizes[1].to_dim();
    #[expect(clippy::cast_precision_loss, reason = "number of elements")]
    let wire = call.kernel(
        "AdaptiveMean",
        DType::Float32,
        &out,
        &[input],
        move |inputs| {
            let from = inputs[0].shape();
            let (height, width) = (from[2], from[3]);
            let view = inputs[0].try_as_plain_ram()?;
            let range = |at: usize, size: usize, of: usize| {
                (at * size / of)..((at + 1) * size).div_ceil(of)
            };
            let mut means = Vec::new();
            for plane in view
                .as_slice::<f32>()?
                .chunks_exact((height * width).max(1))
            {
                for row in 0..sizes[0] {
                    let y = range(row, height, sizes[0]);
                    for column in 0..sizes[1] {
                        let x = range(column, width, sizes[1]);
                        let lines = y.clone().map(|y| &plane[y * width..(y + 1) * width]);
                        let total: f32 =
                            lines.map(|line| line[x.clone()].iter().sum::<f32>()).sum();
                        means.push(total / (y.len() * x.len()) as f32);
                    }
                }
            }
            Tensor::from_shape(&[from[0], from[1], sizes[0], sizes[1]], &means)
        },
    )?;
    give(call, 2, wire.outlet, DType::Float32, single)
}
