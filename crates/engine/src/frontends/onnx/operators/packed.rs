//! `MatMulNBits`: rows times weights of two, four or eight bits, which stay packed in memory (two
//! bits as four).
//!
//! The library rounds scales of blocks of 32 to float16, converts weights in other blocks to
//! float32, and lacks weights of eight bits. It still handles blocks that do not fill the rows.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::math::add;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::logic::wire_with_rank_broadcast;

use super::super::graph::{has_input, integer};
use super::super::library::library_operator;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, operator, stored,
};
use crate::graph::rows::{product_of_rows, rules_of_rows};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::rows::{Bits, FloatRowProduct, MatrixSizes};

/// The operator's name.
pub(super) const NAME: &str = "MatMulNBits";

/// Builds a `MatMulNBits`.
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    if let Some(product) = PackedProduct::of(node) {
        return operator(NAME, None, product);
    }
    library_operator(context, node)
}

/// Number of bits of a stored number. The first number of a byte is in its lowest bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredBits(usize);

impl StoredBits {
    const TWO: Self = Self(2);

    /// Returns the number of bits of a node's weights, if it is supported here.
    pub(super) fn of(node: &NodeProto) -> Option<Self> {
        let bits = usize::try_from(integer(node, "bits", 4)).ok()?;
        matches!(bits, 2 | 4 | 8).then_some(Self(bits))
    }

    /// Numbers per byte.
    pub(super) fn per_byte(self) -> usize {
        8 / self.0
    }

    /// Returns the number of bytes for `count` numbers.
    pub(super) fn bytes_of(self, count: usize) -> usize {
        count.div_ceil(self.per_byte())
    }

    /// Returns one of the numbers.
    pub(super) fn part(self, bytes: &[u8], at: usize) -> u8 {
        let each = self.per_byte();
        let shifted = bytes[at / each] >> (self.0 * (at % each));
        shifted & (u8::MAX >> (8 - self.0))
    }

    /// The default zero point.
    pub(super) fn middle(self) -> u8 {
        1 << (self.0 - 1)
    }

    fn packed(self) -> Bits {
        if self.0 == 8 { Bits::Eight } else { Bits::Four }
    }
}

#[derive(Debug, Clone)]
struct PackedProduct {
    stored: StoredBits,
    sizes: MatrixSizes,
    zeros: Option<usize>,
    bias: Option<usize>,
}

impl PackedProduct {
    /// Returns the product in a node, if it is supported here.
    fn of(node: &NodeProto) -> Option<Self> {
        let stored = StoredBits::of(node)?;
        let size = |name| usize::try_from(integer(node, name, 0)).ok();
        let sizes = MatrixSizes {
            inputs: size("K")?,
            outputs: size("N")?,
            group: size("block_size")?,
        };
        let fits = sizes.inputs > 0 && sizes.outputs > 0 && sizes.group > 0;
        let fits = fits && sizes.inputs.is_multiple_of(sizes.group);
        if !fits || !sizes.group.is_multiple_of(8) || has_input(node, 4) {
            return None;
        }
        let given: Vec<Option<usize>> = optional_inputs(node).take(6).collect();
        Some(Self {
            stored,
            sizes,
            zeros: given[3],
            bias: given[5],
        })
    }

    /// Packs the stored weights.
    fn pack(
        &self,
        weights: &Tensor,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> TractResult<FloatRowProduct> {
        let MatrixSizes {
            inputs,
            outputs,
            group,
        } = self.sizes;
        let bytes = weights.try_as_plain_ram()?;
        let bytes = bytes.as_slice::<u8>()?;
        let row = self.stored.bytes_of(inputs);
        ensure!(
            Some(bytes.len()) == outputs.checked_mul(row),
            "{} bytes of weights for {outputs} outputs and {inputs} inputs",
            bytes.len()
        );
        let groups = inputs / group;
        let zeros = zeros.map(|zeros| {
            ensure!(
                zeros.datum_type() == DatumType::U8,
                "zero points of {:?} are not supported: expected packed ones",
                zeros.datum_type()
            );
            let bytes = zeros.try_as_plain_ram()?;
            let bytes = bytes.as_slice::<u8>()?;
            let row = self.stored.bytes_of(groups);
            ensure!(
                Some(bytes.len()) == outputs.checked_mul(row),
                "{} bytes of zero points for {outputs} outputs of {groups} blocks",
                bytes.len()
            );
            let rows = bytes.chunks_exact(row);
            let of_rows = rows.flat_map(|row| (0..groups).map(|at| self.stored.part(row, at)));
            Ok(of_rows.collect::<Vec<u8>>())
        });
        let zeros = match zeros.transpose()? {
            // The default zero point is the middle. Packing two bits as four moves the middle.
            None if self.stored == StoredBits::TWO => {
                Some(vec![StoredBits::TWO.middle(); outputs * groups])
            }
            zeros => zeros,
        };
        let scales = scales.cast_to::<f32>()?;
        let scales = scales.try_as_plain_ram()?;
        let product = FloatRowProduct::new(
            Cpu::chosen(),
            self.stored.packed(),
            self.sizes,
            |output, input| self.stored.part(bytes, output * inputs + input),
            scales.as_slice::<f32>()?,
            zeros.as_deref(),
        );
        product.map_err(|told| format_err!("{told}"))
    }
}

impl NodeOperator for PackedProduct {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&outputs[0].datum_type, &inputs[0].datum_type)?;
        rules_of_rows(
            s,
            [&inputs[0], &outputs[0]],
            [self.sizes.inputs, self.sizes.outputs],
        )
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let stored = |at: usize, what| stored(model, inputs[at], what);
        let (weights, scales) = (stored(1, "weights")?, stored(2, "scales")?);
        let zeros = self.zeros.map(|at| stored(at, "zero points")).transpose()?;
        let product = self.pack(&weights, &scales, zeros.as_deref())?;
        let fact = model.outlet_fact(inputs[0])?;
        let (dtype, shape) = (fact.datum_type, fact.shape.to_tvec());
        let name = format!("{prefix}.real");
        let real = model.wire_node(name, cast(f32::datum_type()), &inputs[..1])?;
        let (outputs, bytes) = (self.sizes.outputs, product.bytes());
        let run = move |rows, from: &[&[f32]], to: &mut [f32], split| {
            product.run(rows, from[0], to, split)
        };
        let kernel = product_of_rows("PackedProduct", &shape, outputs, bytes, run)?;
        let sums = model.wire_node(format!("{prefix}.sums"), kernel, &real)?;
        let Some(bias) = self.bias else {
            return model.wire_node(prefix, cast(dtype), &sums);
        };
        let sums = model.wire_node(format!("{prefix}.cast"), cast(dtype), &sums)?;
        wire_with_rank_broadcast(prefix, model, add(), &[sums[0], inputs[bias]])
    }
}
