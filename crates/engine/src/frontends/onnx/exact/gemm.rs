//! `MatMul`, `MatMulInteger` and `Gemm` of vectors, of dtypes at which the library panics, and with
//! factors that the library treats as float32 for all dtypes.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::math::{add, mul};
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::binary::wire_rank_broadcast;
use tract_onnx::tract_hir::ops::matmul::{MatMulInference, compute_shapes};

use crate::frontends::onnx::library::library_expansion;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::corrections::product::Sums;

/// Builds `MatMul`.
pub(crate) fn matmul() -> Built {
    operator("MatMul", None, MatMul(MatMulInference::default()))
}

/// Builds `MatMulInteger`.
pub(crate) fn matmul_integer(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let usual = library_expansion(context, node)?;
    operator("MatMulInteger", None, MatMulInteger(usual))
}

/// The library's operator. It treats a vector as a matrix of one row and keeps that row in the
/// product.
#[derive(Debug, Clone)]
struct MatMulInteger(Box<dyn Expansion>);

impl NodeOperator for MatMulInteger {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&outputs[0].datum_type, i32::datum_type())?;
        s.given_2(&inputs[0].shape, &inputs[1].shape, move |s, left, right| {
            let (_, _, _, shape) = compute_shapes(left, right, false, false, false)?;
            s.equals(&outputs[0].shape, shape)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut inputs: TVec<OutletId> = inputs.into();
        let mut are_vectors = [false; 2];
        for (at, is_vector) in are_vectors.iter_mut().enumerate() {
            *is_vector = model.outlet_fact(inputs[at])?.rank() == 1;
            if *is_vector {
                // A row on the left, a column on the right.
                let name = format!("{prefix}.matrix.{at}");
                inputs[at] = model.wire_node(name, AxisOp::Add(at), &inputs[at..=at])?[0];
            }
        }
        let mut product = self.0.wire(prefix, model, &inputs)?;
        for (from_end, is_vector) in [(1, are_vectors[1]), (2, are_vectors[0])] {
            if is_vector {
                let rank = model.outlet_fact(product[0])?.rank();
                let axis = rank - from_end.min(rank);
                let name = format!("{prefix}.vector.{from_end}");
                product = model.wire_node(name, AxisOp::Rm(axis), &product)?;
            }
        }
        Ok(product)
    }
}

/// Returns `true` if the library has kernels for products of this dtype.
fn has_kernels(dtype: DatumType) -> bool {
    dtype.is_float() || dtype == DatumType::I32
}

/// Adds a product of two tensors, by the library's operator or by one of this module.
fn wire_product(
    axes: AxesMapping,
    shape: TVec<TDim>,
    prefix: &str,
    model: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let dtype = model.outlet_fact(inputs[0])?.datum_type;
    if has_kernels(dtype) {
        return model.wire_node(prefix, EinSum::new(axes, dtype), inputs);
    }
    let (terms, output) = axes.to_strs();
    let terms = terms.into_iter().map(|term| term.chars().collect());
    let sums = Sums {
        terms: terms.collect(),
        output: output[0].chars().collect(),
    };
    model.wire_node(prefix, sums.kernel(dtype.fact(shape)), inputs)
}

#[derive(Debug, Clone)]
struct MatMul(MatMulInference);

impl NodeOperator for MatMul {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        self.0.rules(s, inputs, outputs)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let left = model.outlet_fact(inputs[0])?.clone();
        let right = model.outlet_fact(inputs[1])?.shape.to_tvec();
        if left.rank() == 1 && right.len() == 1 {
            let name = format!("{prefix}.row");
            let row = model.wire_node(name, AxisOp::Add(0), &inputs[..1])?[0];
            let axes: AxesMapping = "mk,k->m".parse()?;
            let name = format!("{prefix}.product");
            let product = wire_product(axes, tvec!(1.to_dim()), &name, model, &[row, inputs[1]])?;
            return model.wire_node(prefix, AxisOp::Rm(0), &product);
        }
        if has_kernels(left.datum_type) {
            return self.0.wire(prefix, model, inputs);
        }
        let (_, _, _, shape) =
            compute_shapes(left.shape.to_tvec(), right.clone(), false, false, false)?;
        let sums = numpy(left.rank(), right.len());
        model.wire_node(prefix, sums.kernel(left.datum_type.fact(shape)), inputs)
    }
}

/// Returns the equation of a product of tensors of these ranks.
fn numpy(left: usize, right: usize) -> Sums {
    let outer = left.max(right).saturating_sub(2);
    let batch: Vec<char> = ('a'..).take(outer).collect();
    let of = |rank: usize, matrix: [char; 2], vector: char| {
        if rank == 1 {
            return vec![vector];
        }
        let skipped = outer - (rank - 2);
        batch[skipped..].iter().copied().chain(matrix).collect()
    };
    let mut output = batch.clone();
    output.extend((left > 1).then_some('m'));
    output.extend((right > 1).then_some('n'));
    Sums {
        terms: vec![of(left, ['m', 'k'], 'k'), of(right, ['k', 'n'], 'k')],
        output,
    }
}

/// Builds `Gemm`.
pub(crate) fn gemm(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let takes_sum = node.input.get(2).is_some_and(|name| !name.is_empty());
    let gemm = Gemm {
        alpha: node.get_attr_opt("alpha")?.unwrap_or(1.0),
        beta: node.get_attr_opt("beta")?.unwrap_or(1.0),
        flips_left: node.get_attr_opt("transA")?.unwrap_or(false),
        flips_right: node.get_attr_opt("transB")?.unwrap_or(false),
    };
    operator("Gemm", 2 + usize::from(takes_sum), gemm)
}

#[derive(Debug, Clone)]
struct Gemm {
    alpha: f32,
    beta: f32,
    flips_left: bool,
    flips_right: bool,
}

impl Gemm {
    /// Returns a factor as a tensor of this dtype with two axes; `None` for the factor 1.
    #[expect(clippy::float_cmp, reason = "the model's exact value")]
    fn factor(value: f32, dtype: DatumType) -> TractResult<Option<Tensor>> {
        if value == 1.0 {
            return Ok(None);
        }
        ensure!(
            dtype.is_float() || value.fract() == 0.0,
            "a factor of {value} in a Gemm of {dtype:?} is not supported"
        );
        let factor = tensor0(value).cast_to_dt(dtype)?.into_owned();
        factor.broadcast_into_rank(2).map(Some)
    }
}

impl NodeOperator for Gemm {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        for input in inputs {
            s.equals(&input.datum_type, &outputs[0].datum_type)?;
        }
        for tensor in inputs[..2].iter().chain(outputs) {
            s.equals(&tensor.rank, 2)?;
        }
        let left = usize::from(self.flips_left);
        let right = usize::from(self.flips_right);
        s.equals(&inputs[0].shape[left], &outputs[0].shape[0])?;
        s.equals(&inputs[0].shape[1 - left], &inputs[1].shape[right])?;
        s.equals(&inputs[1].shape[1 - right], &outputs[0].shape[1])
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let dtype = model.outlet_fact(inputs[0])?.datum_type;
        let rows = model.outlet_fact(inputs[0])?.shape[usize::from(self.flips_left)].clone();
        let columns = 1 - usize::from(self.flips_right);
        let columns = model.outlet_fact(inputs[1])?.shape[columns].clone();
        let axes = AxesMapping::for_numpy_matmul(2, self.flips_left, self.flips_right, false)?;
        let name = format!("{prefix}.ab");
        let mut wire = wire_product(axes, tvec!(rows, columns), &name, model, &inputs[..2])?[0];
        if let Some(alpha) = Self::factor(self.alpha, dtype)? {
            let alpha = model.add_const(format!("{prefix}.alpha"), alpha)?;
            wire = model.wire_node(format!("{prefix}.alpha_ab"), mul(), &[alpha, wire])?[0];
        }
        if let Some(sum) = inputs.get(2).filter(|_| self.beta != 0.0) {
            let mut sum = *sum;
            if let Some(beta) = Self::factor(self.beta, dtype)? {
                let name = format!("{prefix}.beta_c");
                let beta = model.add_const(format!("{prefix}.beta"), beta)?;
                let pair = wire_rank_broadcast(&name, model, &[beta, sum])?;
                sum = model.wire_node(name, mul(), &pair)?[0];
            }
            let pair = wire_rank_broadcast(prefix, model, &[wire, sum])?;
            wire = model.wire_node(prefix, add(), &pair)?[0];
        }
        Ok(tvec!(wire))
    }
}
