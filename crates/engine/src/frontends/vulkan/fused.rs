//! Vulkan operators with their own lowering: fused ones, and those that differ from the operator
//! table.

use tract_onnx::tract_core::internal::*;

use super::args::at;
use super::quantized::{self, WeightLayout};
use super::{VulkanLowering, WrittenResult};
use super::{language, rotary, weights};
use crate::graph::builder::{Wire, map_float32};
use crate::graph::calling::{CallArg, CallResult};
use crate::graph::frame::FrameSlot;
use crate::graph::table::{NodeTable, find as find_row};
use crate::tensor::DType;
use pkgtool_model::executorch::vulkan::VulkanValue;

/// Lowers a call. Receives the arguments, then the result.
type LowerFusedCall = fn(&mut VulkanLowering<'_>, &[usize], usize) -> WrittenResult;

/// The operators by name.
const FUSED_OPERATORS: NodeTable<LowerFusedCall> = &[
    (
        &[
            "et_vk.prepack.default",
            "aten.clone.default",
            "dim_order_ops._to_dim_order_copy.default",
        ],
        same,
    ),
    (&["et_vk.conv_with_clamp.default"], conv_with_clamp),
    (&["et_vk.rms_norm.default"], rms_norm),
    (&["et_vk.linear_q4gsw.default"], |lowering, args, out| {
        quantized::linear4(lowering, args, out, [0, 1, 2, 3, 4], None)
    }),
    (
        &["et_vk.linear_dq8ca_q4gsw.default"],
        |lowering, args, out| {
            quantized::linear4(lowering, args, out, [0, 3, 5, 6, 7], Some([1, 2]))
        },
    ),
    (
        &["torchao.choose_qparams_affine.default"],
        quantized::choose,
    ),
    (
        &[
            "et_vk.q8ta_linear.default",
            "et_vk.q8ta_linear_gemv.default",
        ],
        quantized::linear8,
    ),
    (
        &["et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default"],
        |lowering, args, out| quantized::convolution(lowering, args, out, WeightLayout::General),
    ),
    (&["et_vk.q8ta_conv2d_dw.default"], |lowering, args, out| {
        quantized::convolution(lowering, args, out, WeightLayout::Depthwise)
    }),
    (
        &["et_vk.q8ta_conv2d_transposed.default"],
        |lowering, args, out| quantized::convolution(lowering, args, out, WeightLayout::Transposed),
    ),
    (&["et_vk.q8ta_add.default"], quantized::add),
    (&["et_vk.q8ta_relu.default"], quantized::relu),
    (
        &["et_vk.q8ta_pixel_shuffle.default"],
        quantized::pixel_shuffle,
    ),
    (&["aten._weight_int8pack_mm.default"], weights::linear_8_bit),
    (
        &["et_vk.linear_q8ta_q8csw.default"],
        weights::linear_8_bit_quantised_input,
    ),
    (&["et_vk.linear_qcs4w.default"], weights::linear_4_bit),
    (&["et_vk.embedding_q4gsw.default"], weights::embedding),
    (
        &["et_vk.conv1d_pw.default", "et_vk.conv1d_dw.default"],
        convolution_1d,
    ),
    (&["et_vk.grid_priors.default"], grid_priors),
    (&["aten.relu6.default"], |lowering, args, out| {
        let x = lowering.tensor(at(args, 0)?)?;
        let given = vec![x.into(), 0.0.into(), 6.0.into()];
        called(lowering, "aten::hardtanh.out", given, out)
    }),
    (&["aten.hardshrink.default"], hardshrink),
    (&["aten.ones_like.default"], |lowering, args, out| {
        let x = lowering.tensor(at(args, 0)?)?;
        called(
            lowering,
            "aten::full_like.out",
            vec![x.into(), 1.0.into()],
            out,
        )
    }),
    (&["aten.zeros_like.default"], |lowering, args, out| {
        let x = lowering.tensor(at(args, 0)?)?;
        called(
            lowering,
            "aten::full_like.out",
            vec![x.into(), 0.0.into()],
            out,
        )
    }),
    (&["aten.max_pool2d.default"], max_pool),
    (&["et_vk.select_as_symint.default"], language::number),
    (&["et_vk.sdpa.default"], language::attention),
    (&["update_cache.default"], |lowering, args, out| {
        let wire = language::update(lowering, [at(args, 0)?, at(args, 1)?, at(args, 2)?])?;
        lowering.set(out, wire)
    }),
    (&["llama.custom_sdpa.default"], |lowering, args, out| {
        language::cache_attention(lowering, args, out, [0, 1, 2, 3, 4, 6, 7])
    }),
    (&["sdpa_with_kv_cache.default"], |lowering, args, out| {
        language::update(lowering, [at(args, 1)?, at(args, 3)?, at(args, 5)?])?;
        language::update(lowering, [at(args, 2)?, at(args, 4)?, at(args, 5)?])?;
        language::cache_attention(lowering, args, out, [0, 3, 4, 5, 7, 9, 10])
    }),
    (
        &["et_vk.apply_rotary_emb.default"],
        rotary::rotate_neighbours,
    ),
    (
        &["et_vk.apply_rotary_emb_hf.default"],
        rotary::rotate_halves,
    ),
    (
        &["et_vk.apply_rotary_emb_interleaved.default"],
        rotary::rotate_interleaved,
    ),
];

/// Returns the lowering function of an operator in this table.
pub(super) fn find(name: &str) -> Option<LowerFusedCall> {
    find_row(&[FUSED_OPERATORS], name)
}

/// Returns the positions of the arguments that an operator overwrites.
pub(super) fn overwritten_args(name: &str) -> &'static [usize] {
    match name {
        "update_cache.default" => &[1],
        "sdpa_with_kv_cache.default" => &[3, 4],
        _ => &[],
    }
}

fn same(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let wire = lowering.tensor(at(args, 0)?)?;
    lowering.set(out, wire)
}

fn conv_with_clamp(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let dtype = lowering.dtype(out)?;
    ensure!(
        args.len() == 11,
        "wrong number of arguments: got {}, expected 11",
        args.len()
    );
    let given = args.iter().map(|&arg| lowering.arg(arg));
    let mut given: Vec<CallArg> = given.collect::<TractResult<_>>()?;
    let limits = given.split_off(9);
    let mut caller = lowering.caller();
    let wire = caller.tensor("aten::convolution.out", given, DType::Float32)?;
    let args = std::iter::once(CallArg::Tensor(wire)).chain(limits.into_iter().map(limit));
    let wire = caller.tensor("aten::clamp.out", args.collect(), dtype)?;
    lowering.set(out, wire)
}

/// Calls an operator that returns one tensor, and writes the result.
fn called(
    lowering: &mut VulkanLowering<'_>,
    name: &str,
    args: Vec<CallArg>,
    out: usize,
) -> TractResult<()> {
    let dtype = lowering.dtype(out)?;
    let wire = lowering.aten(name, args, dtype)?;
    lowering.set(out, wire)
}

/// Lowers a convolution of `[batch, channels, positions]` with optional limits.
fn convolution_1d(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    ensure!(
        args.len() == 9,
        "wrong number of arguments: got {}, expected 9",
        args.len()
    );
    let given = args.iter().map(|&arg| lowering.arg(arg));
    let mut given: Vec<CallArg> = given.collect::<TractResult<_>>()?;
    let limits: Vec<CallArg> = given.split_off(7).into_iter().map(limit).collect();
    given.splice(6..6, [CallArg::Bool(false), CallArg::from([0].as_slice())]);
    let mut caller = lowering.caller();
    let mut wire = caller.tensor("aten::convolution.out", given, DType::Float32)?;
    if limits.iter().any(|limit| !matches!(limit, CallArg::None)) {
        let args = std::iter::once(CallArg::Tensor(wire)).chain(limits);
        wire = caller.tensor("aten::clamp.out", args.collect(), DType::Float32)?;
    }
    lowering.set(out, wire)
}

/// Computes the column and row of each cell of an image, shifted and scaled.
fn grid_priors(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let x = lowering.tensor(at(args, 0)?)?;
    let shape = lowering.builder.shape(x.outlet)?;
    let [.., height, width] = shape.as_slice() else {
        bail!(
            "invalid rank of an image: expected 2 or more, got {}",
            shape.len()
        );
    };
    let (height, width) = (height.to_usize()?, width.to_usize()?);
    let stride = lowering.int(at(args, 1)?)?;
    let offset = lowering.double(at(args, 2)?)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "positions in an image"
    )]
    let place = |at: usize| ((at as f64 + offset) * stride as f64) as f32;
    let places = (0..height).flat_map(|row| (0..width).flat_map(move |column| [column, row]));
    let places: Vec<f32> = places.map(place).collect();
    let dtype = DType::Float32;
    let outlet = quantized::constant(lowering.builder, &[height * width, 2], &places)?;
    lowering.set(out, Wire { outlet, dtype })
}

/// Sets elements to zero whose absolute value is at most the limit.
fn hardshrink(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    #[expect(clippy::cast_possible_truncation, reason = "computed in float32")]
    let limit = lowering.double(at(args, 1)?)? as f32;
    let x = lowering.tensor(at(args, 0)?)?;
    let dtype = DType::Float32;
    let x = lowering.builder.cast(x, dtype)?.outlet;
    let shape = lowering.builder.shape(x)?;
    let wire = lowering
        .builder
        .kernel("Hardshrink", dtype, &shape, &[x], move |inputs| {
            map_float32(&inputs[0], |x| if x.abs() <= limit { 0.0 } else { x })
        })?;
    lowering.set(out, wire)
}

/// Computes the maximum of each window, without its position.
fn max_pool(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let dtype = lowering.dtype(out)?;
    let given = args.iter().map(|&arg| lowering.arg(arg));
    let given: Vec<CallArg> = given.collect::<TractResult<_>>()?;
    let outs = [dtype, DType::Int64].map(CallResult::Tensor);
    let name = "aten::max_pool2d_with_indices.out";
    let pooled = lowering.caller().call(name, given, &outs)?;
    match pooled.first() {
        Some(FrameSlot::Tensor(wire)) => lowering.set(out, *wire),
        _ => bail!("max pooling returned nothing"),
    }
}

/// Converts a clamp limit; a limit outside of float32 means no limit.
fn limit(arg: CallArg) -> CallArg {
    match arg {
        CallArg::Double(limit) if limit.abs() > f64::from(f32::MAX) => CallArg::None,
        other => other,
    }
}

fn rms_norm(lowering: &mut VulkanLowering<'_>, args: &[usize], out: usize) -> WrittenResult {
    let (input, weight) = (
        lowering.tensor(at(args, 0)?)?,
        lowering.tensor(at(args, 1)?)?,
    );
    let VulkanValue::Double(epsilon) = lowering.graph.values[at(args, 2)?] else {
        bail!("epsilon is not a number");
    };
    let mut caller = lowering.caller();
    let wire = caller.root_mean_square(input, Some(weight), epsilon)?;
    lowering.set(out, wire)
}

/// Returns the names of all operators in this table.
#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    crate::graph::table::kinds(&[FUSED_OPERATORS])
}
