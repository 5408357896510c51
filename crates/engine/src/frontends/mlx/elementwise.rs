//! MLX elementwise instructions.

use tract_onnx::tract_core::internal::*;

use super::joined::JoinedArithmetic;
use super::{InstructionTable, MlxInstruction, MlxLowering, float_dtype, joint_dtype};
use crate::graph::builder::Wire;
use crate::graph::calling::CallArg;
use crate::graph::table::{look_up, names_of};
use crate::tensor::DType;

/// Instructions of one tensor, with the portable operator for each.
const UNARY: [(&str, &str); 24] = [
    ("Arccos", "aten::acos.out"),
    ("Arccosh", "aten::acosh.out"),
    ("Arcsin", "aten::asin.out"),
    ("Arcsinh", "aten::asinh.out"),
    ("Arctan", "aten::atan.out"),
    ("Arctanh", "aten::atanh.out"),
    ("Cos", "aten::cos.out"),
    ("Cosh", "aten::cosh.out"),
    ("Erf", "aten::erf.out"),
    ("Exp", "aten::exp.out"),
    ("Expm1", "aten::expm1.out"),
    ("Log", "aten::log.out"),
    ("Log10", "aten::log10.out"),
    ("Log1p", "aten::log1p.out"),
    ("Log2", "aten::log2.out"),
    ("Reciprocal", "aten::reciprocal.out"),
    ("Rsqrt", "aten::rsqrt.out"),
    ("Sigmoid", "aten::sigmoid.out"),
    ("Silu", "aten::silu.out"),
    ("Sin", "aten::sin.out"),
    ("Sinh", "aten::sinh.out"),
    ("Sqrt", "aten::sqrt.out"),
    ("Tan", "aten::tan.out"),
    ("Tanh", "aten::tanh.out"),
];
const UNARY_KINDS: &[&str] = &names_of(&UNARY);

/// Instructions that keep the argument's dtype.
const DTYPE_PRESERVING: [(&str, &str); 7] = [
    ("Abs", "aten::abs.out"),
    ("BitwiseInvert", "aten::bitwise_not.out"),
    ("Ceil", "aten::ceil.out"),
    ("Floor", "aten::floor.out"),
    ("Neg", "aten::neg.out"),
    ("Sign", "aten::sign.out"),
    ("Trunc", "aten::trunc.out"),
];
const DTYPE_PRESERVING_KINDS: &[&str] = &names_of(&DTYPE_PRESERVING);

/// Instructions of two tensors.
const BINARY: [(&str, &str); 6] = [
    ("Atan2", "aten::atan2.out"),
    ("Maximum", "aten::maximum.out"),
    ("Minimum", "aten::minimum.out"),
    ("Multiply", "aten::mul.out"),
    ("Power", "aten::pow.Tensor_Tensor_out"),
    ("Remainder", "aten::remainder.Tensor_out"),
];
const BINARY_KINDS: &[&str] = &names_of(&BINARY);

/// Bitwise instructions of two tensors.
const BITWISE: [(&str, &str); 3] = [
    ("BitwiseAnd", "aten::bitwise_and.Tensor_out"),
    ("BitwiseOr", "aten::bitwise_or.Tensor_out"),
    ("BitwiseXor", "aten::bitwise_xor.Tensor_out"),
];
const BITWISE_KINDS: &[&str] = &names_of(&BITWISE);

/// Comparisons of two tensors, with boolean results.
const COMPARISONS: [(&str, &str); 8] = [
    ("Equal", "aten::eq.Tensor_out"),
    ("Greater", "aten::gt.Tensor_out"),
    ("GreaterEqual", "aten::ge.Tensor_out"),
    ("Less", "aten::lt.Tensor_out"),
    ("LessEqual", "aten::le.Tensor_out"),
    ("LogicalAnd", "aten::logical_and.out"),
    ("LogicalOr", "aten::logical_or.out"),
    ("NotEqual", "aten::ne.Tensor_out"),
];
const COMPARISON_KINDS: &[&str] = &names_of(&COMPARISONS);

fn operator_of(table: &[(&str, &'static str)], node: &MlxInstruction) -> TractResult<&'static str> {
    look_up(table, node.kind).context("unsupported instruction")
}

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[
    (UNARY_KINDS, |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        lowering.call(
            node,
            operator_of(&UNARY, node)?,
            vec![x.into()],
            float_dtype(x.dtype),
        )
    }),
    (DTYPE_PRESERVING_KINDS, |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        lowering.call(
            node,
            operator_of(&DTYPE_PRESERVING, node)?,
            vec![x.into()],
            x.dtype,
        )
    }),
    (BINARY_KINDS, |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let simpler = match node.kind {
            "Multiply" => lowering.fuse_arithmetic(JoinedArithmetic::Multiply, a, b)?,
            kind => clamp_by_constant(lowering, kind, a, b)?,
        };
        if let Some(wire) = simpler {
            return lowering.write_output(node, wire);
        }
        let args = vec![a.into(), b.into()];
        lowering.call(node, operator_of(&BINARY, node)?, args, joint_dtype(a, b))
    }),
    (COMPARISON_KINDS, |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let args = vec![a.into(), b.into()];
        lowering.call(node, operator_of(&COMPARISONS, node)?, args, DType::Bool)
    }),
    (&["Add"], |lowering, node| {
        sum(lowering, node, JoinedArithmetic::Add, "aten::add.out")
    }),
    (&["Subtract"], |lowering, node| {
        sum(lowering, node, JoinedArithmetic::Subtract, "aten::sub.out")
    }),
    (&["Divide"], |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let dtype = float_dtype(joint_dtype(a, b));
        lowering.call(node, "aten::div.out", vec![a.into(), b.into()], dtype)
    }),
    (&["FloorDivide"], |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let args = vec![a.into(), b.into()];
        lowering.call(node, "aten::floor_divide.out", args, joint_dtype(a, b))
    }),
    (&["LogicalNot"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        lowering.call(node, "aten::logical_not.out", vec![x.into()], DType::Bool)
    }),
    (BITWISE_KINDS, |lowering, node| {
        let [a, b] = lowering.pair(node)?;
        let args = vec![a.into(), b.into()];
        lowering.call(node, operator_of(&BITWISE, node)?, args, joint_dtype(a, b))
    }),
    (&["LogAddExp"], log_add_exp),
    (&["Square"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        lowering.call(node, "aten::mul.out", vec![x.into(), x.into()], x.dtype)
    }),
    (&["Round"], round),
    (&["Gelu"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let mode = super::text(node, "approximate")?.to_owned();
        lowering.call(
            node,
            "aten::gelu.out",
            vec![x.into(), CallArg::Text(mode)],
            x.dtype,
        )
    }),
    (&["Clip"], |lowering, node| {
        let mut wire = lowering.tensor(node, "x")?;
        for (name, limit) in [("a_min", "Maximum"), ("a_max", "Minimum")] {
            if let Some(by) = lowering.optional(node, name)? {
                if let Some(simple) = clamp_by_constant(lowering, limit, wire, by)? {
                    wire = simple;
                    continue;
                }
                let operator = look_up(&BINARY, limit).context("unsupported instruction")?;
                wire = lowering.aten(operator, vec![wire.into(), by.into()], wire.dtype)?;
            }
        }
        lowering.write_output(node, wire)
    }),
    (&["Where"], |lowering, node| {
        let condition = lowering.tensor(node, "condition")?;
        let (x, y) = (lowering.tensor(node, "x")?, lowering.tensor(node, "y")?);
        let args = vec![condition.into(), x.into(), y.into()];
        lowering.call(node, "aten::where.self_out", args, joint_dtype(x, y))
    }),
    (&["AsType"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let dtype = lowering
            .dtype_field(node, "scalar_type")?
            .context("the dtype is missing")?;
        let wire = lowering.frame.builder.cast(x, dtype)?;
        lowering.write_output(node, wire)
    }),
    (&["IdCopy", "Contiguous"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        lowering.write_output(node, x)
    }),
    (&["Noop"], |_, _| Ok(())),
];

/// Computes the maximum or minimum of a value and a constant number without a tensor for the
/// number.
fn clamp_by_constant(
    lowering: &mut MlxLowering<'_, '_>,
    kind: &str,
    x: Wire,
    by: Wire,
) -> TractResult<Option<Wire>> {
    let is_float = x.dtype == DType::Float32 && by.dtype == DType::Float32;
    let wider = lowering.shape(by)?.len() > lowering.shape(x)?.len();
    if !is_float || wider || !["Maximum", "Minimum"].contains(&kind) {
        return Ok(None);
    }
    let Some(number) = lowering.one_number(by)?.filter(|number| !number.is_nan()) else {
        return Ok(None);
    };
    let (least, most) = if kind == "Maximum" {
        (CallArg::from(number), CallArg::None)
    } else {
        (CallArg::None, CallArg::from(number))
    };
    let wire = lowering.aten("aten::clamp.out", vec![x.into(), least, most], x.dtype)?;
    Ok(Some(wire))
}

fn sum(
    lowering: &mut MlxLowering<'_, '_>,
    node: &MlxInstruction,
    step: JoinedArithmetic,
    name: &str,
) -> TractResult<()> {
    let [a, b] = lowering.pair(node)?;
    if let Some(wire) = lowering.fuse_arithmetic(step, a, b)? {
        return lowering.write_output(node, wire);
    }
    let args = vec![a.into(), b.into(), CallArg::from(1)];
    lowering.call(node, name, args, joint_dtype(a, b))
}

/// Rounds to `decimals` decimals; negative numbers round to a power of ten. Ties go to even.
fn round(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let decimals = i32::try_from(lowering.int(node, "decimals")?)?;
    if decimals == 0 || (decimals > 0 && !x.dtype.is_float()) {
        let wire = lowering.aten("aten::round.out", vec![x.into()], x.dtype)?;
        return lowering.write_output(node, wire);
    }
    ensure!(
        decimals.abs() < 38,
        "invalid rounding to {decimals} decimals"
    );
    let float = DType::Float32;
    let factor = 10_f64.powi(decimals.abs());
    let (first, second) = if decimals > 0 {
        ("aten::mul.Scalar_out", "aten::div.Scalar_out")
    } else {
        ("aten::div.Scalar_out", "aten::mul.Scalar_out")
    };
    let wide = lowering.frame.builder.cast(x, float)?;
    let wire = lowering.aten(first, vec![wide.into(), factor.into()], float)?;
    let wire = lowering.aten("aten::round.out", vec![wire.into()], float)?;
    let wire = lowering.aten(second, vec![wire.into(), factor.into()], float)?;
    let wire = lowering.frame.builder.cast(wire, x.dtype)?;
    lowering.write_output(node, wire)
}

/// Computes `log(exp(a) + exp(b))`.
fn log_add_exp(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let [a, b] = lowering.pair(node)?;
    let dtype = float_dtype(joint_dtype(a, b));
    let builder = &mut lowering.frame.builder;
    let shape = builder.broadcast_shape(&[a.outlet, b.outlet])?;
    let mut wide = [a, b].map(|wire| wire.outlet);
    for (outlet, wire) in wide.iter_mut().zip([a, b]) {
        let float = builder.cast(wire, DType::Float32)?;
        *outlet = builder.expand(float.outlet, &shape)?;
    }
    let wire = builder.kernel("LogAddExp", DType::Float32, &shape, &wide, |inputs| {
        let other = inputs[1].try_as_plain_ram()?;
        let mut output = Tensor::clone(&inputs[0]);
        let mut view = output.try_as_plain_ram_mut()?;
        for (a, b) in view
            .as_slice_mut::<f32>()?
            .iter_mut()
            .zip(other.as_slice::<f32>()?)
        {
            *a = log_sum(*a, *b);
        }
        Ok(output)
    })?;
    let wire = builder.cast(wire, dtype)?;
    lowering.write_output(node, wire)
}

fn log_sum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        return f32::NAN;
    }
    let (less, more) = (a.min(b), a.max(b));
    if more.is_infinite() {
        return more;
    }
    more + (less - more).exp().ln_1p()
}
