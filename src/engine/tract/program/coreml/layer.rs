//! Layers: products, convolutions, windows, normalizations, attention, larger pictures.

use tract_onnx::tract_core::internal::*;

use super::super::attention::Attention;
use super::super::builder::Wire;
use super::super::calling::Arg;
use super::super::product::matrices;
use super::held::Held;
use super::shape::padded;
use super::{Lowering, Operation, Table, one};
use crate::tensor::DType;

/// The operations of this theme.
pub(super) const TABLE: Table = &[
    (&["linear"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let weight = lowering.tensor(operation, "weight")?;
        let bias = lowering.optional_tensor(operation, "bias")?;
        let dtype = lowering.dtype(operation)?;
        let args = vec![x.into(), weight.into(), bias.into()];
        lowering.aten("aten::linear.out", args, dtype).map(one)
    }),
    (&["matmul"], matmul),
    (&["conv"], convolution),
    (&["conv_transpose"], transposed),
    (&["max_pool"], max_pool),
    (&["avg_pool"], avg_pool),
    (&["layer_norm"], layer_norm),
    (&["batch_norm"], batch_norm),
    (&["instance_norm"], instance_norm),
    (&["scaled_dot_product_attention"], |lowering, operation| {
        let attention = Attention {
            queries: lowering.tensor(operation, "query")?,
            keys: lowering.tensor(operation, "key")?,
            values: lowering.tensor(operation, "value")?,
            mask: lowering.optional_tensor(operation, "attn_mask")?,
            scale: None,
        };
        let outlet = attention.wire(&mut lowering.frame.builder)?;
        let dtype = DType::Float32;
        Ok(one(Wire { outlet, dtype }))
    }),
    (&["upsample_nearest_neighbor"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let factors = Arg::Doubles(factors(lowering, operation)?);
        let args = vec![x.into(), Arg::None, factors];
        lowering
            .aten("aten::upsample_nearest2d.vec_out", args, x.dtype)
            .map(one)
    }),
    (&["upsample_bilinear"], |lowering, operation| {
        let x = lowering.tensor(operation, "x")?;
        let corners = lowering.bool(operation, "align_corners", true)?;
        let factors = Arg::Doubles(factors(lowering, operation)?);
        let args = vec![x.into(), Arg::None, corners.into(), factors];
        lowering
            .aten("aten::upsample_bilinear2d.vec_out", args, x.dtype)
            .map(one)
    }),
];

fn factors(lowering: &Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<f64>> {
    let names = ["scale_factor_height", "scale_factor_width"];
    names
        .into_iter()
        .map(|name| lowering.float(operation, name, 1.0))
        .collect()
}

/// A product of matrices, whose leading dimensions broadcast.
fn matmul(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let dtype = DType::Float32;
    let [x, y] = ["x", "y"].map(|name| lowering.tensor(operation, name));
    let swapped = ["transpose_x", "transpose_y"].map(|name| lowering.bool(operation, name, false));
    let [swap_x, swap_y] = swapped;
    let (x, y) = (x?, y?);
    let builder = &mut lowering.frame.builder;
    let (x, y) = (
        builder.cast(x, dtype)?.outlet,
        builder.cast(y, dtype)?.outlet,
    );
    let outlet = matrices(builder, (x, swap_x?), (y, swap_y?))?;
    Ok(one(Wire { outlet, dtype }))
}

/// How a window moves.
struct Window {
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Before and after, for each dimension.
    pads: Vec<i64>,
}

impl Window {
    fn read(
        lowering: &Lowering<'_, '_, '_>,
        operation: &Operation,
        kernel: &[i64],
        sizes: &[TDim],
    ) -> TractResult<Self> {
        let spatial = kernel.len();
        let each = |name: &str| -> TractResult<Vec<i64>> {
            let numbers = lowering.ints(operation, name)?;
            let numbers = numbers.unwrap_or_else(|| vec![1; spatial]);
            ensure!(
                numbers.len() == spatial && numbers.iter().all(|number| *number > 0),
                "`{name}` of {numbers:?}"
            );
            Ok(numbers)
        };
        let (strides, dilations) = (each("strides")?, each("dilations")?);
        let pads = match lowering.text(operation, "pad_type", "valid")?.as_str() {
            "valid" => vec![0; 2 * spatial],
            "custom" => {
                let pads = lowering.ints(operation, "pad")?;
                pads.unwrap_or_else(|| vec![0; 2 * spatial])
            }
            same @ ("same" | "same_lower") => {
                let mut pads = Vec::new();
                for at in 0..spatial {
                    let size = sizes[at].to_i64()?;
                    let reach = dilations[at] * (kernel[at] - 1) + 1;
                    let steps = (size + strides[at] - 1) / strides[at];
                    let all = ((steps - 1) * strides[at] + reach - size).max(0);
                    let less = all / 2;
                    pads.extend(if same == "same" {
                        [less, all - less]
                    } else {
                        [all - less, less]
                    });
                }
                pads
            }
            other => bail!("padding by {other} is not supported"),
        };
        ensure!(
            pads.len() == 2 * spatial,
            "{} paddings for {spatial} dimensions",
            pads.len()
        );
        Ok(Self {
            strides,
            dilations,
            pads,
        })
    }

    /// The same padding on both sides, where it is.
    fn even(&self) -> Option<Vec<i64>> {
        let (pairs, _) = self.pads.as_chunks::<2>();
        let even = pairs
            .iter()
            .map(|[before, after]| (before == after).then_some(*before));
        even.collect()
    }
}

fn spatial(lowering: &Lowering<'_, '_, '_>, weight: Wire) -> TractResult<Vec<i64>> {
    let shape = lowering.shape(weight)?;
    ensure!(shape.len() > 2, "a kernel of {} dimensions", shape.len());
    shape[2..].iter().map(|size| Ok(size.to_i64()?)).collect()
}

fn convolution(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let mut x = lowering.tensor(operation, "x")?;
    let weight = lowering.tensor(operation, "weight")?;
    let bias = lowering.optional_tensor(operation, "bias")?;
    let kernel = spatial(lowering, weight)?;
    let sizes = lowering.shape(x)?;
    ensure!(
        sizes.len() == kernel.len() + 2,
        "a tensor of {} dimensions",
        sizes.len()
    );
    let window = Window::read(lowering, operation, &kernel, &sizes[2..])?;
    let pads = if let Some(pads) = window.even() {
        pads
    } else {
        x = padded(lowering, x, &window.pads, 0.0)?;
        vec![0; kernel.len()]
    };
    let groups = lowering.int(operation, "groups", 1)?;
    let args = vec![
        x.into(),
        weight.into(),
        bias.into(),
        window.strides.as_slice().into(),
        pads.as_slice().into(),
        window.dilations.as_slice().into(),
        false.into(),
        Arg::from(vec![0; kernel.len()].as_slice()),
        groups.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    lowering.aten("aten::convolution.out", args, dtype).map(one)
}

/// What `output_shape` has more than strides and padding make it is added at the end.
fn transposed(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let weight = lowering.tensor(operation, "weight")?;
    let bias = lowering.optional_tensor(operation, "bias")?;
    let kernel = spatial(lowering, weight)?;
    let sizes = lowering.shape(x)?;
    ensure!(
        sizes.len() == kernel.len() + 2,
        "a tensor of {} dimensions",
        sizes.len()
    );
    let kind = lowering.text(operation, "pad_type", "valid")?;
    ensure!(
        kind == "valid" || kind == "custom",
        "padding by {kind} is not supported"
    );
    let window = Window::read(lowering, operation, &kernel, &sizes[2..])?;
    let pads = window
        .even()
        .context("padding that differs between sides is not supported")?;
    let mut more = vec![0; kernel.len()];
    if let Some(wanted) = lowering.ints(operation, "output_shape")? {
        let wanted = wanted.get(wanted.len().saturating_sub(kernel.len())..);
        let wanted = wanted.context("no sizes of the result")?;
        for at in 0..kernel.len() {
            let reach = window.dilations[at] * (kernel[at] - 1) + 1;
            let size = (sizes[at + 2].to_i64()? - 1) * window.strides[at] - 2 * pads[at] + reach;
            more[at] = wanted[at] - size;
        }
    }
    ensure!(
        more.iter().all(|more| *more >= 0),
        "a result that is smaller by {more:?}"
    );
    let groups = lowering.int(operation, "groups", 1)?;
    let args = vec![
        x.into(),
        weight.into(),
        bias.into(),
        window.strides.as_slice().into(),
        pads.as_slice().into(),
        window.dilations.as_slice().into(),
        true.into(),
        more.as_slice().into(),
        groups.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    lowering.aten("aten::convolution.out", args, dtype).map(one)
}

/// Arguments that both pools have: a picture, the window's size, its strides and paddings.
fn pool(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
    border: Option<f64>,
) -> TractResult<(Wire, Vec<Arg>)> {
    let mut x = lowering.tensor(operation, "x")?;
    let kernel = lowering
        .ints(operation, "kernel_sizes")?
        .context("no size of the window")?;
    let sizes = lowering.shape(x)?;
    ensure!(
        kernel.len() == 2 && sizes.len() == 4,
        "a window over {} dimensions is not supported",
        kernel.len()
    );
    let window = Window::read(lowering, operation, &kernel, &sizes[2..])?;
    let pads = match (window.even(), border) {
        (Some(pads), _) => pads,
        (None, Some(border)) => {
            x = padded(lowering, x, &window.pads, border)?;
            vec![0; 2]
        }
        (None, None) => bail!("padding that differs between sides is not supported"),
    };
    let args = vec![
        x.into(),
        kernel.as_slice().into(),
        window.strides.as_slice().into(),
        pads.as_slice().into(),
    ];
    Ok((x, args))
}

fn max_pool(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let (x, mut args) = pool(lowering, operation, Some(f64::NEG_INFINITY))?;
    let ceil = lowering.bool(operation, "ceil_mode", false)?;
    args.push([1, 1].as_slice().into());
    args.push(ceil.into());
    let outs = [x.dtype, DType::Int64];
    lowering
        .first("aten::max_pool2d_with_indices.out", args, &outs)
        .map(one)
}

fn avg_pool(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let (x, mut args) = pool(lowering, operation, None)?;
    let ceil = lowering.bool(operation, "ceil_mode", false)?;
    let without = lowering.bool(operation, "exclude_padding_from_average", false)?;
    args.extend([ceil.into(), (!without).into(), Arg::None]);
    lowering
        .aten("aten::avg_pool2d.out", args, x.dtype)
        .map(one)
}

fn layer_norm(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let mut axes = lowering
        .axes(operation, shape.len())?
        .unwrap_or_else(|| (0..shape.len()).collect());
    axes.sort_unstable();
    let first = shape.len() - axes.len();
    ensure!(
        axes.iter().copied().eq(first..shape.len()),
        "a normalization over {axes:?} of {} dimensions is not supported",
        shape.len()
    );
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let args = vec![
        x.into(),
        Arg::Ints(shape[first..].to_vec()),
        gamma.into(),
        beta.into(),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    lowering
        .first("aten::native_layer_norm.out", args, &[dtype; 3])
        .map(one)
}

fn batch_norm(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let mean = lowering.tensor(operation, "mean")?;
    let variance = lowering.tensor(operation, "variance")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let args = vec![
        x.into(),
        gamma.into(),
        beta.into(),
        mean.into(),
        variance.into(),
        Arg::Double(0.1),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    let name = "aten::_native_batch_norm_legit_no_training.out";
    lowering.first(name, args, &[dtype; 3]).map(one)
}

/// A normalization of each channel by itself: of as many groups as there are channels.
fn instance_norm(
    lowering: &mut Lowering<'_, '_, '_>,
    operation: &Operation,
) -> TractResult<Vec<Held>> {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    ensure!(
        shape.len() > 2,
        "a normalization of {} dimensions",
        shape.len()
    );
    let gamma = lowering.optional_tensor(operation, "gamma")?;
    let beta = lowering.optional_tensor(operation, "beta")?;
    let epsilon = lowering.float(operation, "epsilon", 1e-5)?;
    let area: TDim = shape[2..].iter().cloned().product();
    let args = vec![
        x.into(),
        gamma.into(),
        beta.into(),
        Arg::Int(shape[0].clone()),
        Arg::Int(shape[1].clone()),
        Arg::Int(area),
        Arg::Int(shape[1].clone()),
        epsilon.into(),
    ];
    let dtype = lowering.dtype(operation)?;
    lowering
        .first("aten::native_group_norm.out", args, &[dtype; 3])
        .map(one)
}
