//! Lowers matrix products, convolutions, embeddings and softmax.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Gather;
use tract_onnx::tract_core::ops::cnn::KernelFormat;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind, sigmoid};

use super::super::builder::{Builder, Wire};
use super::super::convolution::{ImageConvolution, SlidingWindow};
use super::super::datum_type;
use super::call::{LoweringTable, OperatorCall};
use super::elements::{floats, ints, tensor_of_floats, tensor_of_ints};
use super::promotion::widened;
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::mm.out"], |call| product(call, "mk,kn->mn")),
    (&["aten::bmm.out"], |call| product(call, "bmk,bkn->bmn")),
    (&["aten::addmm.out"], addmm),
    (&["aten::linear.out"], linear),
    (&["aten::convolution.out"], convolution),
    (&["aten::embedding.out"], embedding),
    (&["aten::_softmax.out"], |call| {
        softmax(call, SoftmaxKind::Softmax)
    }),
    (&["aten::_log_softmax.out"], |call| {
        softmax(call, SoftmaxKind::LogSoftmax)
    }),
    (&["aten::glu.out"], glu),
];

/// Computes a product from its einsum formula, in float32, or in the dtype if it is an integer or
/// float64.
pub(crate) fn einsum(
    builder: &mut Builder,
    formula: &str,
    inputs: &[OutletId],
    dtype: DType,
) -> TractResult<OutletId> {
    let op = EinSum::new(formula.parse()?, datum_type(dtype));
    builder.wire(op, inputs)
}

fn product(call: &mut OperatorCall<'_, '_>, formula: &str) -> TractResult<()> {
    let dtype = widened(call.out_dtype(2)?);
    let (a, b) = (call.tensor_as(0, dtype)?, call.tensor_as(1, dtype)?);
    let outlet = matrices(call, formula, a, b, dtype)?;
    call.set_output(2, Wire { outlet, dtype })
}

/// Multiplies matrices or batches of them. tract's own products support only float32.
fn matrices(
    call: &mut OperatorCall<'_, '_>,
    formula: &str,
    a: OutletId,
    b: OutletId,
    dtype: DType,
) -> TractResult<OutletId> {
    let builder = &mut call.frame.builder;
    if dtype == DType::Float32 {
        return einsum(builder, formula, &[a, b], dtype);
    }
    let (left, right) = (builder.shape(a)?, builder.shape(b)?);
    ensure!(
        left.len() == right.len() && left.len() >= 2,
        "invalid ranks of matrices: {} and {}",
        left.len(),
        right.len()
    );
    let mut shape = left.clone();
    shape[left.len() - 1] = right[left.len() - 1].clone();
    let to = datum_type(dtype);
    let wire = builder.kernel("MatMul", dtype, &shape, &[a, b], move |inputs| {
        let (a, b) = (inputs[0].shape(), inputs[1].shape());
        let rank = a.len();
        let (m, k, n) = (a[rank - 2], a[rank - 1], b[rank - 1]);
        ensure!(
            b[rank - 2] == k && a[..rank - 2] == b[..rank - 2],
            "shapes of matrices do not match: {a:?} and {b:?}"
        );
        let mut shape = a.to_vec();
        shape[rank - 1] = n;
        if to.is_float() {
            let product = multiply(
                &floats(&inputs[0])?,
                &floats(&inputs[1])?,
                [m, k, n],
                0.0,
                |sum, a, b| sum + a * b,
            );
            return tensor_of_floats(&shape, &product, to);
        }
        let add = |sum: i64, a: i64, b: i64| sum.wrapping_add(a.wrapping_mul(b));
        let product = multiply(&ints(&inputs[0])?, &ints(&inputs[1])?, [m, k, n], 0, add);
        tensor_of_ints(&shape, &product, to)
    })?;
    Ok(wire.outlet)
}

fn multiply<T: Copy>(
    a: &[T],
    b: &[T],
    [m, k, n]: [usize; 3],
    zero: T,
    add: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let batches = a.chunks((m * k).max(1)).zip(b.chunks((k * n).max(1)));
    let mut product = Vec::new();
    for (a, b) in batches {
        for row in a.chunks(k.max(1)) {
            for column in 0..n {
                let terms = row.iter().enumerate();
                product.push(terms.fold(zero, |sum, (at, x)| add(sum, *x, b[at * n + column])));
            }
        }
    }
    product
}

/// `beta · self + alpha · (mat1 · mat2)`
fn addmm(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let dtype = widened(call.out_dtype(5)?);
    let mut added = call.tensor_as(0, dtype)?;
    let (a, b) = (call.tensor_as(1, dtype)?, call.tensor_as(2, dtype)?);
    let mut outlet = matrices(call, "mk,kn->mn", a, b, dtype)?;
    if call.double(4)? != 1.0 {
        let alpha = call.scalar(4, dtype, 2)?;
        outlet = call.binary(Box::new(math::Mul), outlet, alpha)?;
    }
    if call.double(3)? != 1.0 {
        let beta = call.scalar(3, dtype, 2)?;
        added = call.binary(Box::new(math::Mul), added, beta)?;
    }
    let outlet = call.binary(Box::new(math::Add), outlet, added)?;
    call.set_output(5, Wire { outlet, dtype })
}

fn linear(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let dtype = widened(call.out_dtype(3)?);
    let (input, weight) = (call.tensor_as(0, dtype)?, call.tensor_as(1, dtype)?);
    let rank = call.frame.builder.rank(input)?;
    ensure!(
        (1..=6).contains(&rank),
        "invalid rank of a linear layer's input: expected 1 to 6, got {rank}"
    );
    let lead = &"abcdef"[..rank - 1];
    let formula = format!("{lead}k,nk->{lead}n");
    let mut outlet = einsum(&mut call.frame.builder, &formula, &[input, weight], dtype)?;
    if !call.is_none(2)? {
        let bias = call.tensor_as(2, dtype)?;
        outlet = call.binary(Box::new(math::Add), outlet, bias)?;
    }
    call.set_output(3, Wire { outlet, dtype })
}

fn convolution(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let float = DType::Float32;
    let input = call.tensor_as(0, float)?;
    let kernel = call.tensor_as(1, float)?;
    let bias = if call.is_none(2)? {
        None
    } else {
        Some(call.tensor_as(2, float)?)
    };
    let transposed = call.bool(6)?;
    let groups = usize::try_from(call.int(8)?)?;
    let sizes: Vec<usize> = call
        .builder()
        .shape(kernel)?
        .iter()
        .map(|dim| Ok(dim.to_usize()?))
        .collect::<TractResult<_>>()?;
    ensure!(
        sizes.len() > 2 && groups > 0,
        "invalid convolution: kernel of shape {sizes:?}, {groups} groups"
    );
    let spatial = sizes.len() - 2;
    let each = |numbers: Vec<usize>| match numbers.as_slice() {
        [one] => vec![*one; spatial],
        _ => numbers,
    };
    let padding = each(call.sizes(4)?);
    let window = SlidingWindow {
        channels_last: false,
        kernel: sizes[2..].to_vec(),
        stride: each(call.sizes(3)?),
        dilation: each(call.sizes(5)?),
        before: padding.clone(),
        after: padding,
    };
    let (input_channels, output_channels) = if transposed {
        (sizes[0], sizes[1] * groups)
    } else {
        (sizes[1] * groups, sizes[0])
    };
    let convolution = ImageConvolution {
        window,
        format: KernelFormat::OIHW,
        groups,
        input_channels,
        output_channels,
    };
    let adjustment = each(call.sizes(7)?);
    let builder = &mut call.frame.builder;
    let outlet = if transposed {
        let kernel = swap_kernel_channels(builder, kernel, &sizes, groups)?;
        convolution.wire_transposed(builder, input, kernel, bias, &adjustment)?
    } else {
        convolution.wire(builder, input, kernel, bias)?
    };
    call.set_output(9, Wire::new(outlet, float))
}

/// Reorders a kernel `[i, o / groups, ..]` to `[o, i / groups, ..]`.
fn swap_kernel_channels(
    builder: &mut Builder,
    kernel: OutletId,
    sizes: &[usize],
    groups: usize,
) -> TractResult<OutletId> {
    ensure!(
        sizes[0].is_multiple_of(groups),
        "{} channels are not divisible by {groups} groups",
        sizes[0]
    );
    let dims = |sizes: &[usize]| sizes.iter().map(ToDim::to_dim).collect::<Vec<TDim>>();
    let mut split = vec![groups, sizes[0] / groups];
    split.extend(&sizes[1..]);
    let mut joined = vec![groups * sizes[1], sizes[0] / groups];
    joined.extend(&sizes[2..]);
    let kernel = builder.reshape(kernel, &dims(&split))?;
    let kernel = builder.wire(AxisOp::Move(1, 2), &[kernel])?;
    builder.reshape(kernel, &dims(&joined))
}

fn embedding(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let weight = call.tensor(0)?;
    let indices = call.tensor_as(1, DType::Int64)?;
    let shape = call.shape(weight)?;
    ensure!(!shape.is_empty(), "the embedding table has no dimensions");
    let indices = call.checked_indices(indices, &shape[0], false)?;
    let outlet = call.wire(Gather::new(0), &[weight.outlet, indices])?;
    call.set_result(Wire::new(outlet, weight.dtype))
}

fn softmax(call: &mut OperatorCall<'_, '_>, kind: SoftmaxKind) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let rank = call.frame.builder.rank(input)?;
    let axis = call.axis(1, rank)?;
    let op = Softmax {
        axes: tvec!(axis),
        quant_output_dt: None,
        kind,
    };
    let outlet = call.wire(op, &[input])?;
    call.set_output(3, Wire::float(outlet))
}

fn glu(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    let axis = call.axis(1, shape.len())?;
    let half = shape[axis].to_i64()? / 2;
    let builder = &mut call.frame.builder;
    let first = builder.slice(input, axis, 0, half)?;
    let second = builder.slice(input, axis, half, 2 * half)?;
    let gate = builder.unary(sigmoid(), second)?;
    let outlet = builder.binary(Box::new(math::Mul), first, gate)?;
    call.set_output(2, Wire::float(outlet))
}
