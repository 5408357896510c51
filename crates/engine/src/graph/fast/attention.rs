//! Fuses the two products of an attention and the softmax between them into one operator, which
//! holds the scores of a few queries at a time instead of all.
//!
//! It matches the graph after the library has simplified it, so transpositions are already part of
//! the products. Between the products it accepts a factor, an added mask, and PyTorch's way of
//! returning zeros for fully masked queries.

use std::collections::HashSet;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind};

use super::chain::only_reader;
use crate::graph::kernel::Kernel;
use crate::graph::places::places;
use crate::graph::pool::computed;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{Attention, HeadRows};

/// Returns the replacement of the last product, if this node is the softmax of an attention.
pub(super) fn replaced(
    model: &TypedModel,
    node: &TypedNode,
    cpu: Cpu,
) -> TractResult<Option<TypedModelPatch>> {
    let found = FoundAttention::at(model, node)?;
    found.map(|found| found.patch(model, cpu)).transpose()
}

/// An attention found around a softmax.
struct FoundAttention {
    scores: Scores,
    mask: Option<OutletId>,
    scale: f32,
    zeros: bool,
    /// The product with the weights: its node, the values, and the order of axes.
    product: usize,
    weights: OutletId,
    values: OutletId,
    values_axes: Vec<char>,
    output_axes: Vec<char>,
    /// The weights' axes, by the letters of that product.
    weights_axes: Vec<char>,
}

/// The product of queries and keys, and the letters of their axes.
struct Scores {
    queries: OutletId,
    keys: OutletId,
    queries_axes: Vec<char>,
    keys_axes: Vec<char>,
    axes: Vec<char>,
}

impl FoundAttention {
    fn at(model: &TypedModel, node: &TypedNode) -> TractResult<Option<Self>> {
        let Some(softmax) = node.op_as::<Softmax>() else {
            return Ok(None);
        };
        let fact = &node.outputs[0].fact;
        let is_plain = softmax.kind == SoftmaxKind::Softmax
            && softmax.quant_output_dt.is_none()
            && fact.datum_type == DatumType::F32
            && fact.rank() >= 2
            && *softmax.axes == [fact.rank() - 1];
        if !is_plain {
            return Ok(None);
        }
        let masked = node.inputs[0];
        let (weights, zeros) = match guarded(model, masked, node.id)? {
            Some(weights) => (weights, true),
            None if only_reader(model, masked).is_some() => (node.id.into(), false),
            None => return Ok(None),
        };
        let mut found = masked;
        let mask = added(model, found)?;
        if let Some((scores, _)) = mask {
            found = scores;
        }
        let factor = scaled(model, found)?;
        if let Some((scores, _)) = factor {
            found = scores;
        }
        let Some(scores) = Scores::of(model, found) else {
            return Ok(None);
        };
        let Some(reader) = only_reader(model, weights) else {
            return Ok(None);
        };
        let product = model.node(reader.node);
        let Some((axes, outputs)) = plain_product(product) else {
            return Ok(None);
        };
        let found = Self {
            scores,
            mask: mask.map(|(_, mask)| mask),
            scale: factor.map_or(1.0, |(_, factor)| factor),
            zeros,
            product: product.id,
            weights,
            values: product.inputs[1 - reader.slot],
            values_axes: axes[1 - reader.slot].clone(),
            weights_axes: axes[reader.slot].clone(),
            output_axes: outputs,
        };
        let is_one = found.is_attention(model)? && product.inputs[0] != product.inputs[1];
        Ok(is_one.then_some(found))
    }

    /// Returns `true` if the axes are those of an attention: `[.., query, size]`, `[.., key,
    /// size]`, `[.., key, width]` and `[.., width]`, with any order before the last one.
    fn is_attention(&self, model: &TypedModel) -> TractResult<bool> {
        let Scores {
            queries,
            keys,
            queries_axes,
            keys_axes,
            axes,
        } = &self.scores;
        let rank = axes.len();
        let (query, key) = (axes[rank - 2], axes[rank - 1]);
        let size = queries_axes.last();
        // All other axes of an operand must have size 1.
        let has_only = |outlet: OutletId, letters: &[char], known: &[&[char]]| {
            let axes = letters.iter().zip(&*model.outlet_fact(outlet)?.shape);
            let is_known = |letter: &char| known.iter().any(|known| known.contains(letter));
            TractResult::Ok(
                axes.into_iter()
                    .all(|(letter, size)| is_known(letter) || size.is_one()),
            )
        };
        let is_product = size == keys_axes.last()
            && size.is_some_and(|size| !axes.contains(size))
            && queries_axes.contains(&query)
            && !queries_axes.contains(&key)
            && keys_axes.contains(&key)
            && !keys_axes.contains(&query);
        let of_scores = [&**axes, size.map(std::slice::from_ref).unwrap_or_default()];
        let (query, key) = (self.weights_axes[rank - 2], self.weights_axes[rank - 1]);
        let width = self.values_axes.last();
        let is_sum = width == self.output_axes.last()
            && width.is_some_and(|width| !self.weights_axes.contains(width))
            && self.values_axes.contains(&key)
            && !self.output_axes.contains(&key)
            && self.output_axes.contains(&query)
            && !self.values_axes.contains(&query);
        let of_values = [
            &*self.weights_axes,
            width.map(std::slice::from_ref).unwrap_or_default(),
        ];
        let fits = is_product
            && is_sum
            && has_only(*queries, queries_axes, &of_scores)?
            && has_only(*keys, keys_axes, &of_scores)?
            && has_only(
                self.weights,
                &self.weights_axes,
                &[&self.output_axes, &[key]],
            )?
            && has_only(self.values, &self.values_axes, &of_values)?
            && has_only(self.product.into(), &self.output_axes, &of_values)?;
        Ok(fits)
    }

    fn patch(self, model: &TypedModel, cpu: Cpu) -> TractResult<TypedModelPatch> {
        let product = model.node(self.product);
        let mut inputs = tvec!(self.scores.queries, self.scores.keys, self.values);
        inputs.extend(self.mask);
        let facts = tvec!(product.outputs[0].fact.without_value());
        let (name, output) = (product.name.clone(), OutletId::new(product.id, 0));
        let mut patch = TypedModelPatch::new("scores of a few queries at a time");
        let taps = patch.taps(model, &inputs)?;
        let kernel = Kernel::new("Attend", facts, move |inputs| {
            Ok(tvec!(self.run(cpu, inputs)?))
        });
        let wire = patch.wire_node(name, kernel, &taps)?;
        patch.shunt_outside(model, output, wire[0])?;
        Ok(patch)
    }

    fn run(&self, cpu: Cpu, inputs: &[TValue]) -> TractResult<Arc<Tensor>> {
        let Scores {
            queries_axes,
            keys_axes,
            axes,
            ..
        } = &self.scores;
        let queries = Axes::new(queries_axes, inputs[0].shape());
        let keys = Axes::new(keys_axes, inputs[1].shape());
        let values = Axes::new(&self.values_axes, inputs[2].shape());
        let rank = axes.len();
        // The axes before those of the queries are heads, by the letters of each product.
        let heads: Vec<[char; 2]> = (0..rank - 2)
            .map(|at| [axes[at], self.weights_axes[at]])
            .collect();
        let sizes: Vec<usize> = heads
            .iter()
            .map(|[of_scores, of_weights]| {
                let sizes = [
                    queries.size(*of_scores),
                    keys.size(*of_scores),
                    values.size(*of_weights),
                ];
                sizes.into_iter().max().unwrap_or(1)
            })
            .collect();
        let starts = |axes: &Axes<'_>, letter: usize| {
            let strides: Vec<usize> = heads
                .iter()
                .map(|head| axes.repeated(head[letter]))
                .collect();
            places(&sizes, &strides)
        };
        let of_mask = self.mask.map(|_| {
            let shape = inputs[3].shape();
            let letters = &axes[rank - shape.len().min(rank)..];
            Axes::new(letters, shape)
        });
        let (query, key) = (axes[rank - 2], axes[rank - 1]);
        let size = queries_axes.last().copied().unwrap_or_default();
        let width = self.values_axes.last().copied().unwrap_or_default();
        let counts = [
            queries.size(query),
            keys.size(key),
            queries.size(size),
            values.size(width),
        ];
        // The rows of the output, each with its head and its query.
        let row = &self.output_axes[..self.output_axes.len() - 1];
        let (mut shape, mut of_heads, mut of_queries) = (TVec::new(), Vec::new(), Vec::new());
        for letter in row {
            let head = heads.iter().position(|head| head[1] == *letter);
            let is_query = *letter == self.weights_axes[rank - 2];
            shape.push(match head {
                Some(head) => sizes[head],
                None if is_query => counts[0],
                None => 1,
            });
            of_heads.push(head.map_or(0, |head| sizes[head + 1..].iter().product()));
            of_queries.push(usize::from(is_query));
        }
        let rows = places(&shape, &of_heads)
            .into_iter()
            .zip(places(&shape, &of_queries));
        let rows: Vec<[usize; 2]> = rows.map(|(head, query)| [head, query]).collect();
        shape.push(counts[3]);
        let [of_queries, of_keys, of_values] =
            [starts(&queries, 0), starts(&keys, 0), starts(&values, 1)];
        let mask_starts = of_mask
            .as_ref()
            .map(|mask| starts(mask, 0))
            .unwrap_or_default();
        computed::<f32, f32>(&shape, inputs, |from, to, split| {
            let lines = |at: usize, starts, stride| HeadRows {
                elements: from[at],
                starts,
                stride,
            };
            let attention = Attention {
                queries: lines(0, &of_queries, queries.stride(query)),
                keys: lines(1, &of_keys, keys.stride(key)),
                values: lines(2, &of_values, values.stride(self.weights_axes[rank - 1])),
                mask: of_mask
                    .as_ref()
                    .map(|mask| lines(3, &mask_starts, mask.repeated(query))),
                sizes: counts,
                scale: self.scale,
                score_limit: None,
                visible: None,
                sinks: None,
                zeros: self.zeros,
            };
            attention.run(cpu, &rows, to, split)
        })
    }
}

impl Scores {
    /// Returns the product of two tensors that computes these scores.
    fn of(model: &TypedModel, outlet: OutletId) -> Option<Self> {
        let node = model.node(outlet.node);
        let (inputs, axes) = plain_product(node)?;
        let query = *axes.get(axes.len().checked_sub(2)?)?;
        let first = usize::from(!inputs[0].contains(&query));
        Some(Self {
            queries: node.inputs[first],
            keys: node.inputs[1 - first],
            queries_axes: inputs[first].clone(),
            keys_axes: inputs[1 - first].clone(),
            axes,
        })
    }
}

/// Returns the letters of the axes of inputs and output, for a product of two float32 tensors.
fn plain_product(node: &TypedNode) -> Option<([Vec<char>; 2], Vec<char>)> {
    let product = node.op_as::<EinSum>()?;
    let is_plain = product.q_params.is_none()
        && product.operating_dt == DatumType::F32
        && node.outputs[0].fact.datum_type == DatumType::F32
        && node.inputs.len() == 2;
    let (inputs, outputs) = product.axes.to_strs();
    let is_once =
        |axes: &String| axes.chars().collect::<HashSet<_>>().len() == axes.chars().count();
    let is_plain = is_plain && inputs.iter().chain(&outputs).all(is_once);
    let letters = |axes: &String| axes.chars().collect();
    let output: Vec<char> = letters(&outputs[0]);
    (is_plain && !output.is_empty()).then(|| ([letters(&inputs[0]), letters(&inputs[1])], output))
}

/// Returns the operands of this operator on two tensors, if it computes this outlet.
fn pair(model: &TypedModel, outlet: OutletId, name: &str) -> Option<[OutletId; 2]> {
    let node = model.node(outlet.node);
    let op = node.op_as::<TypedBinOp>().filter(|op| op.1.is_none())?;
    (op.0.name() == name).then(|| [node.inputs[0], node.inputs[1]])
}

/// Returns the scores and the mask added to them: one row or one per query, for all heads or per
/// head.
fn added(model: &TypedModel, outlet: OutletId) -> TractResult<Option<(OutletId, OutletId)>> {
    let Some([a, b]) = pair(model, outlet, "Add") else {
        return Ok(None);
    };
    let shape = &model.outlet_fact(outlet)?.shape;
    for (scores, mask) in [(a, b), (b, a)] {
        let is_scores = only_reader(model, scores).is_some()
            && (plain_product(model.node(scores.node)).is_some()
                || scaled(model, scores)?.is_some());
        let (of_scores, of_mask) = (model.outlet_fact(scores)?, model.outlet_fact(mask)?);
        let fits = is_scores
            && of_scores.shape == *shape
            && of_mask.rank() == shape.rank()
            && of_mask.datum_type == DatumType::F32
            && of_mask.shape[shape.rank() - 1] == shape[shape.rank() - 1];
        if fits {
            return Ok(Some((scores, mask)));
        }
    }
    Ok(None)
}

/// Returns the scores and their factor.
fn scaled(model: &TypedModel, outlet: OutletId) -> TractResult<Option<(OutletId, f32)>> {
    let Some([a, b]) = pair(model, outlet, "Mul") else {
        return Ok(None);
    };
    for (scores, factor) in [(a, b), (b, a)] {
        if let Some(factor) = one_number(model, factor)?
            && only_reader(model, scores).is_some()
            && plain_product(model.node(scores.node)).is_some()
        {
            return Ok(Some((scores, factor)));
        }
    }
    Ok(None)
}

/// Returns the number of a float32 constant of one element.
fn one_number(model: &TypedModel, outlet: OutletId) -> TractResult<Option<f32>> {
    let known = model.outlet_fact(outlet)?.konst.as_ref();
    let known =
        known.filter(|it| it.datum_type() == DatumType::F32 && it.is_plain_ram() && it.len() == 1);
    known.map(|it| it.cast_to_scalar::<f32>()).transpose()
}

/// Returns weights that are zeros if all scores of a query are -∞: `where(not any(not (scores ==
/// -inf)), 0, softmax)`. Nothing else may read the scores and the softmax.
fn guarded(model: &TypedModel, scores: OutletId, softmax: usize) -> TractResult<Option<OutletId>> {
    let Some(choice) = only_reader(model, softmax.into()) else {
        return Ok(None);
    };
    let choice = model.node(choice.node);
    let is_kernel = |node: &TypedNode, name: &str| node.op_is::<Kernel>() && node.op.name() == name;
    if !is_kernel(choice, "Choose")
        || choice.inputs[2].node != softmax
        || model.outlet_successors(scores).len() != 2
        || model.outputs.contains(&scores)
    {
        return Ok(None);
    }
    let zeros = model.outlet_fact(choice.inputs[1])?.konst.as_ref();
    let is_zero =
        |it: &Arc<Tensor>| it.datum_type() == DatumType::F32 && it.is_all_zero().unwrap_or(false);
    if !zeros.is_some_and(is_zero) {
        return Ok(None);
    }
    // Walks from the condition back to the scores.
    let rank = model.outlet_fact(scores)?.rank();
    let is_not = |node: &TypedNode| {
        node.op_as::<ElementWiseOp>()
            .is_some_and(|op| op.0.name() == "Not")
    };
    let steps: [&dyn Fn(&TypedNode) -> bool; 4] = [
        &|node| node.op_as::<AxisOp>() == Some(&AxisOp::Add(rank - 1)),
        &is_not,
        &|node| is_kernel(node, "Any") && node.outputs[0].fact.rank() + 1 == rank,
        &is_not,
    ];
    let mut outlet = choice.inputs[0];
    for is_step in steps {
        let node = model.node(outlet.node);
        if !is_step(node) || only_reader(model, outlet).is_none() {
            return Ok(None);
        }
        outlet = node.inputs[0];
    }
    let Some([a, b]) = pair(model, outlet, "CompEq") else {
        return Ok(None);
    };
    let is_guard = only_reader(model, outlet).is_some()
        && a == scores
        && one_number(model, b)? == Some(f32::NEG_INFINITY);
    Ok(is_guard.then(|| choice.id.into()))
}

/// The axes of a tensor in memory, by their letters.
struct Axes<'a> {
    letters: &'a [char],
    shape: &'a [usize],
}

impl<'a> Axes<'a> {
    fn new(letters: &'a [char], shape: &'a [usize]) -> Self {
        Self { letters, shape }
    }

    /// Returns the size of an axis; 1 for a missing one.
    fn size(&self, letter: char) -> usize {
        let at = self.letters.iter().position(|it| *it == letter);
        at.map_or(1, |at| self.shape[at])
    }

    /// Returns the distance of neighbours along an axis, in elements.
    fn stride(&self, letter: char) -> usize {
        let at = self.letters.iter().position(|it| *it == letter);
        at.map_or(0, |at| self.shape[at + 1..].iter().product())
    }

    /// Returns the stride, or 0 for an axis of size 1.
    fn repeated(&self, letter: char) -> usize {
        if self.size(letter) == 1 {
            0
        } else {
            self.stride(letter)
        }
    }
}
