//! Products of rows of bytes with a stored matrix.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::node;
use crate::frontends::onnx::graph::integer;
use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::rows::{product_of_byte_rows, rules_of_rows, turned};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::bytes::{ByteProduct, Requantize, Sign, product};

/// Stored bytes and their zero points.
#[derive(Debug, Clone)]
pub(super) struct QuantisedBytes {
    sign: Sign,
    zero_points: Vec<i32>,
}

/// The weights of a product, and the quantisation of its sums.
#[derive(Debug, Clone)]
pub(super) struct ProductWeights {
    pub(super) bytes: QuantisedBytes,
    pub(super) bias: Option<Vec<i32>>,
    pub(super) requantize: Requantize,
}

impl ProductWeights {
    /// Reads them from a node of this module.
    pub(super) fn of(node: &NodeProto) -> TractResult<Self> {
        let (range, grid) = (node::range(node)?, node::grid(node, "y")?);
        Ok(Self {
            bytes: QuantisedBytes::of(node)?,
            bias: node::integers(node, "bias")?,
            requantize: Requantize {
                factors: node::floats(node, "factors"),
                zero_point: grid.zero_point,
                least: range.least,
                most: range.most,
            },
        })
    }
}

impl QuantisedBytes {
    /// Reads them from a node of this module.
    pub(super) fn of(node: &NodeProto) -> TractResult<Self> {
        Ok(Self {
            sign: node::sign(node, "w"),
            zero_points: node::integers(node, "w_zero_points")?.unwrap_or_default(),
        })
    }

    /// Returns the stored numbers as -128 to 127; 128 is subtracted from unsigned ones.
    pub(super) fn signed(&self, model: &TypedModel, weights: OutletId) -> TractResult<Vec<i8>> {
        let stored = &model.outlet_fact(weights)?.konst;
        let stored = stored.as_ref();
        let stored = stored.context("computed weights are not supported")?;
        let dtype = stored.datum_type();
        ensure!(
            dtype == node::datum_type(self.sign),
            "weights of {dtype:?} have zero points of another type"
        );
        let plain = stored.try_as_plain_ram()?;
        Ok(self.sign.signed(plain.as_bytes()))
    }

    /// Returns the zero points of [`signed`](Self::signed).
    pub(super) fn zeros(&self) -> Vec<i32> {
        let zeros = self.zero_points.iter();
        zeros.map(|zero| zero - self.sign.moved()).collect()
    }
}

/// Returns the numbers of inputs and outputs of the matrix that a node stores.
pub(super) fn matrix_sizes(node: &NodeProto) -> TractResult<[usize; 2]> {
    let sizes = node::shape(node)?;
    let &[inputs, outputs] = sizes.as_slice() else {
        bail!("expected a matrix of two dimensions, got {}", sizes.len());
    };
    Ok([inputs, outputs])
}

/// Builds a product.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let product = QuantisedProduct {
        sizes: matrix_sizes(node)?,
        is_turned: integer(node, "is_turned", 0) != 0,
        from: node::grid(node, "x")?,
        sign: node::grid(node, "y")?.sign,
        weights: ProductWeights::of(node)?,
    };
    operator(node::PRODUCT, 2, product)
}

#[derive(Debug, Clone)]
struct QuantisedProduct {
    /// Inputs and outputs of a row.
    sizes: [usize; 2],
    /// Is `true` if the matrix has a row for each output.
    is_turned: bool,
    from: Grid,
    sign: Sign,
    weights: ProductWeights,
}

impl QuantisedProduct {
    fn kernel(&self, mut weights: Vec<i8>) -> TractResult<ByteProduct> {
        if !self.is_turned {
            weights = turned(&weights, self.sizes[1]);
        }
        let parts = product::Parts {
            sizes: self.sizes,
            weights: &weights,
            weight_zeros: &self.weights.bytes.zeros(),
            bias: self.weights.bias.as_deref(),
            input_zero: self.from.zero_point,
            sign_in: self.from.sign,
            sign_out: self.sign,
            requantize: &self.weights.requantize,
        };
        ByteProduct::new(Cpu::chosen(), &parts).map_err(TractError::msg)
    }
}

impl NodeOperator for QuantisedProduct {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        node::byte_dtypes(s, [self.from.sign, self.sign], [inputs, outputs])?;
        rules_of_rows(s, [&inputs[0], &outputs[0]], self.sizes)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let kernel = self.kernel(self.weights.bytes.signed(model, inputs[1])?)?;
        let bytes = kernel.bytes();
        let run = move |from: &[u8], to: &mut [u8], split| kernel.run(from, to, split);
        let shape = model.outlet_fact(inputs[0])?.shape.to_tvec();
        let to = (self.sizes[1], node::datum_type(self.sign));
        let kernel = product_of_byte_rows("MultiplyByteRows", &shape, to, bytes, run)?;
        model.wire_node(prefix, kernel, &inputs[..1])
    }
}
