//! `MatMulNBits`: rows times weights of two, four or eight bits, which stay packed in memory (two
//! bits as four).
//!
//! The nodes hold their stored weights ([`hold_weights`]), so that each is read and packed once, one
//! after the other. Weights whose blocks do not fill the rows, with zero points that are no integers,
//! or with groups of their own for the inputs become float32.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::{AttributeProto, ModelProto, NodeProto, TensorProto};
use tract_onnx::tensor::load_tensor;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::math::add;
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::logic::wire_with_rank_broadcast;

use super::super::graph::{
    AttributeKind, UINT8, attribute, each_graph, each_graph_mut, integer, named,
};
use super::indices::checked_index;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, integers_of, operator, positive, stored,
};
use crate::graph::rows::{product_of_rows, rules_of_rows};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::rows::{Bits, FloatRowProduct, MatrixSizes};

/// The operator's name.
pub(super) const NAME: &str = "MatMulNBits";

/// The inputs that a node may hold, with the attributes that hold them.
const HELD: [(usize, &str); 3] = [
    (1, "pkgtool.weights"),
    (2, "pkgtool.scales"),
    (3, "pkgtool.zeros"),
];

/// Moves stored weights into attributes of the nodes that multiply by them packed.
pub(crate) fn hold_weights(model: &mut ModelProto) {
    let mut wanted = HashSet::new();
    each_graph(model, &mut |graph| {
        let products = graph.node.iter().filter(|node| node.op_type == NAME);
        wanted.extend(products.flat_map(|node| node.input.iter().skip(1).cloned()));
    });
    let Some(graph) = model.graph.as_mut().filter(|_| !wanted.is_empty()) else {
        return;
    };
    for input in &graph.input {
        wanted.remove(&input.name);
    }
    let initializers = std::mem::take(&mut graph.initializer).into_iter();
    let (stored, others) = initializers.partition(|tensor| wanted.contains(&tensor.name));
    graph.initializer = others;
    let stored: Vec<TensorProto> = stored;
    let mut stored: HashMap<String, TensorProto> = stored
        .into_iter()
        .map(|tensor| (tensor.name.clone(), tensor))
        .collect();
    each_graph_mut(model, &mut |graph| {
        for node in graph.node.iter_mut().filter(|node| node.op_type == NAME) {
            if is_packable(node, &stored) {
                hold(node, &stored);
            }
        }
    });
    let mut read = Vec::new();
    each_graph(model, &mut |graph| {
        let names = graph.node.iter().flat_map(|node| &node.input);
        let names = names.chain(graph.output.iter().map(|output| &output.name));
        read.extend(names.filter_map(|name| stored.remove(name)));
    });
    if let Some(graph) = &mut model.graph {
        graph.initializer.extend(read);
    }
}

/// Whether a node has stored weights in the form of the kernel for packed rows.
fn is_packable(node: &NodeProto, stored: &HashMap<String, TensorProto>) -> bool {
    let input = |at: usize| node.input.get(at).filter(|name| !name.is_empty());
    let tensor = |at: usize| input(at).map(|name| stored.get(name));
    let has_bytes = matches!(
        tensor(3),
        None | Some(Some(TensorProto {
            data_type: UINT8,
            ..
        }))
    );
    let fits = PackedProduct::of(node)
        .is_ok_and(|product| product.is_packed(input(4).is_some(), has_bytes));
    fits && [1, 2].iter().all(|at| tensor(*at).flatten().is_some())
}

fn hold(node: &mut NodeProto, stored: &HashMap<String, TensorProto>) {
    for (at, name) in HELD {
        let Some(input) = node.input.get_mut(at) else {
            continue;
        };
        let Some(tensor) = stored.get(input) else {
            continue;
        };
        node.attribute.push(AttributeProto {
            t: Some(tensor.clone()),
            ..named(name, AttributeKind::Tensor)
        });
        input.clear();
    }
}

/// Builds a `MatMulNBits`.
pub(super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    let mut product = PackedProduct::of(node)?;
    let held = HELD.map(|(_, name)| {
        let tensor = attribute(node, name).and_then(|held| held.t.as_ref());
        let provider = context.framework.provider.as_ref();
        tensor
            .map(|tensor| load_tensor(provider, tensor, context.model_dir))
            .transpose()
    });
    let [weights, scales, zeros] = held;
    if let (Some(weights), Some(scales)) = (weights?, scales?) {
        let packed = product.pack(&weights, &scales, zeros?.as_ref())?;
        product.held = Some(Arc::new(packed));
    }
    operator(NAME, None, product)
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
        // A power of two, without a division for each number.
        let each = self.per_byte();
        let shifted = bytes[at >> each.trailing_zeros()] >> (self.0 * (at & (each - 1)));
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
    groups: Option<usize>,
    bias: Option<usize>,
    /// The packed weights that the node holds.
    held: Option<Arc<FloatRowProduct>>,
}

/// The stored tensors of a product.
struct PackedWeights {
    weights: Arc<Tensor>,
    scales: Arc<Tensor>,
    zeros: Option<Arc<Tensor>>,
    groups: Option<Arc<Tensor>>,
}

/// Weights as they are multiplied.
enum MultipliedWeights {
    Packed(Arc<FloatRowProduct>),
    /// `[outputs, inputs]` in float32.
    Real(Tensor),
}

impl PackedProduct {
    fn of(node: &NodeProto) -> TractResult<Self> {
        let stored = StoredBits::of(node).context("weights of so many bits are not supported")?;
        let given: Vec<Option<usize>> = optional_inputs(node).take(6).collect();
        Ok(Self {
            stored,
            sizes: MatrixSizes {
                inputs: positive(node, "K")?,
                outputs: positive(node, "N")?,
                group: positive(node, "block_size")?,
            },
            zeros: given[3],
            groups: given[4],
            bias: given[5],
            held: None,
        })
    }

    /// Returns the number of blocks of an output.
    fn blocks(&self) -> usize {
        self.sizes.inputs.div_ceil(self.sizes.group)
    }

    /// Whether the kernel for packed rows has this form. Zero points are bytes or absent there.
    fn is_packed(&self, has_groups: bool, has_bytes: bool) -> bool {
        let MatrixSizes { inputs, group, .. } = self.sizes;
        inputs.is_multiple_of(group) && group.is_multiple_of(8) && !has_groups && has_bytes
    }

    /// Returns the weights as float32, `[outputs, inputs]`.
    fn unpacked(&self, of: &PackedWeights) -> TractResult<Tensor> {
        let MatrixSizes {
            inputs,
            outputs,
            group,
        } = self.sizes;
        let blocks = self.blocks();
        let bytes = of.weights.try_as_plain_ram()?;
        let bytes = bytes.as_slice::<u8>()?;
        let row = blocks * self.stored.bytes_of(group);
        check_count("weights", bytes.len(), outputs.checked_mul(row))?;
        let scales = of.scales.cast_to::<f32>()?;
        let scales = scales.try_as_plain_ram()?;
        let scales = scales.as_slice::<f32>()?;
        let count = outputs.checked_mul(blocks);
        check_count("scales", scales.len(), count)?;
        let zeros: Vec<f32> = match &of.zeros {
            None => vec![f32::from(self.stored.middle()); outputs * blocks],
            Some(zeros) if zeros.datum_type() == DatumType::U8 => {
                let zeros = self.zero_points(zeros)?.into_iter();
                zeros.map(f32::from).collect()
            }
            Some(zeros) => {
                let zeros = zeros.cast_to::<f32>()?;
                let zeros = zeros.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
                check_count("zero points", zeros.len(), count)?;
                zeros
            }
        };
        let groups = of.groups.as_deref().map(integers_of).transpose()?;
        if let Some(groups) = &groups {
            check_count("groups of inputs", groups.len(), Some(inputs))?;
        }
        let mut matrix = Vec::with_capacity(outputs * inputs);
        for (output, row) in bytes.chunks_exact(row).enumerate() {
            for input in 0..inputs {
                let block = match &groups {
                    Some(groups) => checked_index(groups[input], blocks)?,
                    None => input / group,
                };
                let at = output * blocks + block;
                matrix.push((f32::from(self.stored.part(row, input)) - zeros[at]) * scales[at]);
            }
        }
        Tensor::from_shape(&[outputs, inputs], &matrix)
    }

    /// Returns the weights in the form in which they are multiplied.
    fn weights(&self, model: &TypedModel, inputs: &[OutletId]) -> TractResult<MultipliedWeights> {
        if let Some(held) = &self.held {
            return Ok(MultipliedWeights::Packed(Arc::clone(held)));
        }
        let stored = |at: usize, what| stored(model, inputs[at], what);
        let optional = |at: Option<usize>, what| at.map(|at| stored(at, what)).transpose();
        let of = PackedWeights {
            weights: stored(1, "weights")?,
            scales: stored(2, "scales")?,
            zeros: optional(self.zeros, "zero points")?,
            groups: optional(self.groups, "groups of inputs")?,
        };
        let is_byte = |zeros: &Arc<Tensor>| zeros.datum_type() == DatumType::U8;
        let has_bytes = of.zeros.as_ref().is_none_or(is_byte);
        if !self.is_packed(of.groups.is_some(), has_bytes) {
            return Ok(MultipliedWeights::Real(self.unpacked(&of)?));
        }
        let packed = self.pack(&of.weights, &of.scales, of.zeros.as_deref())?;
        Ok(MultipliedWeights::Packed(Arc::new(packed)))
    }

    /// Returns the zero points of packed ones.
    fn zero_points(&self, zeros: &Tensor) -> TractResult<Vec<u8>> {
        let bytes = zeros.try_as_plain_ram()?;
        let bytes = bytes.as_slice::<u8>()?;
        let blocks = self.blocks();
        let row = self.stored.bytes_of(blocks);
        check_count(
            "zero points",
            bytes.len(),
            self.sizes.outputs.checked_mul(row),
        )?;
        let rows = bytes.chunks_exact(row);
        let of_row = |row| (0..blocks).map(move |at| self.stored.part(row, at));
        Ok(rows.flat_map(of_row).collect())
    }

    /// Packs the stored weights.
    fn pack(
        &self,
        weights: &Tensor,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> TractResult<FloatRowProduct> {
        let MatrixSizes {
            inputs, outputs, ..
        } = self.sizes;
        let bytes = weights.try_as_plain_ram()?;
        let bytes = bytes.as_slice::<u8>()?;
        let row = self.stored.bytes_of(inputs);
        check_count("weights", bytes.len(), outputs.checked_mul(row))?;
        let zeros = zeros.map(|zeros| self.zero_points(zeros));
        let zeros = match zeros.transpose()? {
            // The default zero point is the middle. Packing two bits as four moves the middle.
            None if self.stored == StoredBits::TWO => {
                Some(vec![StoredBits::TWO.middle(); outputs * self.blocks()])
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

fn check_count(of: &str, found: usize, wanted: Option<usize>) -> TractResult<()> {
    let wanted = wanted.context("the sizes exceed memory")?;
    ensure!(
        found == wanted,
        "wrong number of {of}: expected {wanted}, got {found}"
    );
    Ok(())
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
        let fact = model.outlet_fact(inputs[0])?;
        let (dtype, shape) = (fact.datum_type, fact.shape.to_tvec());
        let name = format!("{prefix}.real");
        let real = model.wire_node(name, cast(f32::datum_type()), &inputs[..1])?;
        let sums = format!("{prefix}.sums");
        let sums = match self.weights(model, inputs)? {
            MultipliedWeights::Packed(product) => {
                let (outputs, bytes) = (self.sizes.outputs, product.bytes());
                let run = move |rows, from: &[&[f32]], to: &mut [f32], split| {
                    product.run(rows, from[0], to, split)
                };
                let kernel = product_of_rows("PackedProduct", &shape, outputs, bytes, run)?;
                model.wire_node(sums, kernel, &real)?
            }
            MultipliedWeights::Real(matrix) => {
                let axes = &"abcdefgh"[..shape.len().min(8) - 1];
                let product = format!("{axes}k,nk->{axes}n").parse()?;
                let matrix = model.add_const(format!("{prefix}.weights"), matrix)?;
                model.wire_node(
                    sums,
                    EinSum::new(product, f32::datum_type()),
                    &[real[0], matrix],
                )?
            }
        };
        let Some(bias) = self.bias else {
            return model.wire_node(prefix, cast(dtype), &sums);
        };
        let sums = model.wire_node(format!("{prefix}.cast"), cast(dtype), &sums)?;
        wire_with_rank_broadcast(prefix, model, add(), &[sums[0], inputs[bias]])
    }
}
