//! Operators that only Vulkan's graphs have, and those the table has otherwise.

use tract_onnx::tract_core::internal::*;

use super::super::calling::Arg;
use super::Lowering;
use super::args::at;
use super::quantized;
use crate::model::executorch::vulkan::Value;
use crate::tensor::DType;

/// Lowers a call: its arguments, then its result.
type Lower = fn(&mut Lowering<'_>, &[usize], usize) -> TractResult<()>;

/// The operators by name.
const TABLE: &[(&[&str], Lower)] = &[
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
        |lowering, args, out| quantized::convolution(lowering, args, out, false),
    ),
    (&["et_vk.q8ta_conv2d_dw.default"], |lowering, args, out| {
        quantized::convolution(lowering, args, out, true)
    }),
    (&["et_vk.q8ta_add.default"], quantized::add),
];

/// How an operator of this name is lowered, if it is one of these.
pub(super) fn find(name: &str) -> Option<Lower> {
    let row = TABLE.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, lower)| *lower)
}

fn same(lowering: &mut Lowering<'_>, args: &[usize], out: usize) -> TractResult<()> {
    let wire = lowering.tensor(at(args, 0)?)?;
    lowering.set(out, wire)
}

fn conv_with_clamp(lowering: &mut Lowering<'_>, args: &[usize], out: usize) -> TractResult<()> {
    let dtype = lowering.dtype(out)?;
    ensure!(args.len() == 11, "{} arguments for 11", args.len());
    let given = args.iter().map(|&arg| lowering.arg(arg));
    let mut given: Vec<Arg> = given.collect::<TractResult<_>>()?;
    let limits = given.split_off(9);
    let mut caller = lowering.caller();
    let wire = caller.tensor("aten::convolution.out", given, DType::Float32)?;
    let args = std::iter::once(Arg::Tensor(wire)).chain(limits.into_iter().map(limit));
    let wire = caller.tensor("aten::clamp.out", args.collect(), dtype)?;
    lowering.set(out, wire)
}

/// A limit; what float32 cannot hold is none.
fn limit(arg: Arg) -> Arg {
    match arg {
        Arg::Double(limit) if limit.abs() > f64::from(f32::MAX) => Arg::None,
        other => other,
    }
}

fn rms_norm(lowering: &mut Lowering<'_>, args: &[usize], out: usize) -> TractResult<()> {
    let (input, weight) = (
        lowering.tensor(at(args, 0)?)?,
        lowering.tensor(at(args, 1)?)?,
    );
    let Value::Double(epsilon) = lowering.graph.values[at(args, 2)?] else {
        bail!("no epsilon");
    };
    let mut caller = lowering.caller();
    let wire = caller.root_mean_square(input, Some(weight), epsilon)?;
    lowering.set(out, wire)
}

/// All of them.
#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    let rows = TABLE.iter();
    rows.flat_map(|(names, _)| names.iter().copied()).collect()
}
