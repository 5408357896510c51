//! Layers: products, convolutions of what has its channels last, normalizations, attention.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::super::attention::Attention;
use super::super::builder::Wire;
use super::super::calling::{Arg, Out};
use super::super::product::matrices;
use super::{Instruction, Lowering, Slot, Table, float_of};
use crate::tensor::DType;

/// The instructions of this theme.
pub(super) const TABLE: Table = &[
    (&["Addmm"], addmm),
    (&["Conv1D"], |lowering, node| {
        convolution(lowering, node, &[""], false)
    }),
    (&["Conv2D"], |lowering, node| {
        convolution(lowering, node, &["_h", "_w"], false)
    }),
    (&["ConvTranspose1D"], |lowering, node| {
        convolution(lowering, node, &[""], true)
    }),
    (&["ConvTranspose2D"], |lowering, node| {
        convolution(lowering, node, &["_h", "_w"], true)
    }),
    (&["LayerNorm"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let shape = lowering.shape(x)?;
        let last = shape.last().cloned().context("a number")?;
        let weight = lowering.optional(node, "weight")?;
        let bias = lowering.optional(node, "bias")?;
        let epsilon = lowering.float(node, "eps")?;
        let args = vec![
            x.into(),
            Arg::Ints(vec![last]),
            weight.into(),
            bias.into(),
            epsilon.into(),
        ];
        let outs = [float_of(x.dtype); 3].map(Out::Tensor);
        let given = lowering
            .caller()
            .call("aten::native_layer_norm.out", args, &outs)?;
        match given.first() {
            Some(Slot::Tensor(wire)) => lowering.give(node, *wire),
            _ => bail!("nothing normalized"),
        }
    }),
    (&["RMSNorm"], |lowering, node| {
        let x = lowering.tensor(node, "x")?;
        let weight = lowering.optional(node, "weight")?;
        let epsilon = lowering.float(node, "eps")?;
        let wire = lowering.caller().root_mean_square(x, weight, epsilon)?;
        let wire = lowering.frame.builder.cast(wire, float_of(x.dtype))?;
        lowering.give(node, wire)
    }),
    (&["Sdpa"], attention),
];

/// `alpha · (mat1 · mat2) + beta · bias`
fn addmm(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
    let (a, b) = (
        lowering.tensor(node, "mat1")?,
        lowering.tensor(node, "mat2")?,
    );
    let bias = lowering.optional(node, "bias")?;
    let (alpha, beta) = (
        lowering.float(node, "alpha")?,
        lowering.float(node, "beta")?,
    );
    let builder = &mut lowering.frame.builder;
    let float = DType::Float32;
    let [left, right] = [a, b].map(|wire| builder.cast(wire, float));
    let mut outlet = matrices(builder, (left?.outlet, false), (right?.outlet, false))?;
    let rank = builder.rank(outlet)?;
    if alpha.to_bits() != 1_f64.to_bits() {
        let alpha = builder.scalar(alpha, float, rank)?.outlet;
        outlet = builder.binary(Box::new(math::Mul), outlet, alpha)?;
    }
    if let Some(bias) = bias {
        let mut bias = builder.cast(bias, float)?.outlet;
        if beta.to_bits() != 1_f64.to_bits() {
            let beta = builder.scalar(beta, float, 0)?.outlet;
            bias = builder.binary(Box::new(math::Mul), bias, beta)?;
        }
        outlet = builder.binary(Box::new(math::Add), outlet, bias)?;
    }
    let wire = builder.rounded(outlet, a.dtype)?;
    lowering.give(node, wire)
}

/// A convolution of `[batch, .., channels]` by `[out, .., in / groups]`.
fn convolution(
    lowering: &mut Lowering<'_, '_, '_>,
    node: &Instruction,
    axes: &[&str],
    transposed: bool,
) -> TractResult<()> {
    let (x, weight) = (lowering.tensor(node, "x")?, lowering.tensor(node, "w")?);
    let rank = axes.len() + 2;
    ensure!(
        lowering.shape(x)?.len() == rank && lowering.shape(weight)?.len() == rank,
        "a convolution over {} dimensions",
        axes.len()
    );
    let each = |name: &str| -> TractResult<Arg> {
        let numbers = axes
            .iter()
            .map(|axis| lowering.int(node, &format!("{name}{axis}")));
        let numbers: Vec<i64> = numbers.collect::<TractResult<_>>()?;
        Ok(Arg::from(numbers.as_slice()))
    };
    let (stride, padding, dilation) = (each("stride")?, each("padding")?, each("dilation")?);
    let more = if transposed {
        each("output_padding")?
    } else {
        Arg::from(vec![0; axes.len()].as_slice())
    };
    let groups = lowering.int(node, "groups")?;
    ensure!(
        !transposed || groups == 1,
        "transposed convolutions in groups are not supported"
    );
    let channels_first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let channels_last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let of_weight: Vec<usize> = if transposed {
        [rank - 1, 0].into_iter().chain(1..rank - 1).collect()
    } else {
        channels_first.clone()
    };
    let builder = &mut lowering.frame.builder;
    let input = Wire {
        outlet: builder.transpose(x.outlet, &channels_first)?,
        ..x
    };
    let weight = Wire {
        outlet: builder.transpose(weight.outlet, &of_weight)?,
        ..weight
    };
    let args = vec![
        input.into(),
        weight.into(),
        Arg::None,
        stride,
        padding,
        dilation,
        transposed.into(),
        more,
        groups.into(),
    ];
    let mut wire = lowering.aten("aten::convolution.out", args, x.dtype)?;
    wire.outlet = lowering
        .frame
        .builder
        .transpose(wire.outlet, &channels_last)?;
    lowering.give(node, wire)
}

fn attention(lowering: &mut Lowering<'_, '_, '_>, node: &Instruction) -> TractResult<()> {
    let queries = lowering.tensor(node, "q")?;
    let (keys, values) = (lowering.tensor(node, "k")?, lowering.tensor(node, "v")?);
    ensure!(
        !lowering.flag(node, "causal")?,
        "a causal mask that is not given is not supported"
    );
    let attention = Attention {
        queries,
        keys,
        values,
        mask: lowering.optional(node, "mask")?,
        scale: Some(lowering.float(node, "scale")?),
    };
    let builder = &mut lowering.frame.builder;
    let outlet = attention.wire(builder)?;
    let wire = builder.rounded(outlet, queries.dtype)?;
    lowering.give(node, wire)
}
