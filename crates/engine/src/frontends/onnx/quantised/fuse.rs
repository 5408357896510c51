//! Finds the groups of a graph that one node of this module can replace.

use std::collections::{HashMap, HashSet};

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto};

use super::bounds::{Bounds, narrowed};
use super::constants::{Element, StoredConstants};
use super::function::{ElementFunction, function_of, numbers};
use super::graph::{drop_unread, makers, outputs, readers};
use super::groups::{GroupTarget, QuantisedTensor, group, group_of_qlinear, sums};
use super::node;
use crate::frontends::onnx::graph::{
    attribute, each_graph_mut, each_node, has_input, integer, is_default,
};
use crate::frontends::onnx::narrow::NarrowType;
use crate::frontends::onnx::weights::LoadTensor;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange};

/// Replaces groups around quantised tensors by nodes of this module.
pub(crate) fn fuse(model: &mut ModelProto, load: &LoadTensor<'_>) {
    let mut quantises = false;
    each_node(model, &mut |node| {
        quantises |= matches!(
            node.op_type.as_str(),
            "QuantizeLinear" | "QLinearConv" | "QLinearMatMul" | "MatMulInteger"
        );
    });
    if quantises {
        let constants = StoredConstants::of(model, load);
        each_graph_mut(model, &mut |graph| fuse_graph(graph, &constants));
    }
}

fn fuse_graph(graph: &mut GraphProto, constants: &StoredConstants) {
    let nodes = std::mem::take(&mut graph.node);
    let outputs = outputs(graph);
    let mut pass = Pass {
        constants,
        readers: readers(&nodes, &outputs),
        makers: makers(&nodes),
        nodes,
        held: HashMap::new(),
        replaced: HashMap::new(),
        gone: HashSet::new(),
        ours: HashMap::new(),
    };
    for at in 0..pass.nodes.len() {
        pass.look_at(at);
    }
    for (at, node) in pass.nodes.into_iter().enumerate() {
        match pass.replaced.remove(&at) {
            Some(nodes) => graph.node.extend(nodes),
            None if pass.gone.contains(&at) => {}
            None => graph.node.push(node),
        }
    }
    drop_unread(&mut graph.node, &outputs, &pass.readers);
}

/// One pass over a graph, in the order of its nodes.
struct Pass<'c> {
    constants: &'c StoredConstants,
    nodes: Vec<NodeProto>,
    /// Number of readers of each tensor.
    readers: HashMap<String, usize>,
    /// Index of the node that computes each tensor.
    makers: HashMap<String, usize>,
    /// Dequantised tensors whose bytes are known.
    held: HashMap<String, QuantisedTensor>,
    /// Replacements of nodes, by the index of the node.
    replaced: HashMap<usize, Vec<NodeProto>>,
    /// Indices of nodes that are merged into others.
    gone: HashSet<usize>,
    /// Tensors that nodes of this module compute: the index of the replaced node, and the index
    /// among its replacements.
    ours: HashMap<String, (usize, usize)>,
}

/// The replacement of a group.
struct FusedGroup {
    nodes: Vec<NodeProto>,
    /// Indices of the nodes of the group.
    parts: Vec<usize>,
}

impl Pass<'_> {
    fn look_at(&mut self, at: usize) {
        let node = &self.nodes[at];
        let fused = match node.op_type.as_str() {
            "DequantizeLinear" => {
                if let (Some(held), [output]) = (self.dequantized(node), &*node.output) {
                    self.held.insert(output.clone(), held);
                }
                return;
            }
            "QuantizeLinear" => self
                .quantized(at)
                .or_else(|| self.tabled(at))
                .or_else(|| self.rounds(at)),
            "QLinearConv" | "QLinearMatMul" if is_default(node) => {
                group_of_qlinear(self.constants, node).map(|nodes| FusedGroup {
                    nodes,
                    parts: Vec::new(),
                })
            }
            "MatMulInteger" if is_default(node) => self.sums(node),
            _ => return,
        };
        let Some(FusedGroup { nodes, parts }) = fused else {
            return;
        };
        for (place, node) in nodes.iter().enumerate() {
            let made = node.output.iter().cloned();
            self.ours.extend(made.map(|output| (output, (at, place))));
        }
        self.gone.extend(parts);
        self.replaced.insert(at, nodes);
    }

    /// Returns the input of a `DequantizeLinear`, with its grid.
    fn dequantized(&self, node: &NodeProto) -> Option<QuantisedTensor> {
        let bytes = node.input.first()?;
        let scales = self.constants.list(node.input.get(1)?, Element::Float)?;
        let (element, zeros) = if has_input(node, 2) {
            let zero = self.constants.get(&node.input[2])?;
            let zeros = zero.values.as_ref()?.iter();
            #[expect(clippy::cast_possible_truncation, reason = "bytes, or zeros")]
            let zeros = zeros.map(|zero| *zero as i32).collect();
            (zero.element, zeros)
        } else {
            (self.constants.get(bytes)?.element, vec![0])
        };
        let is_wide = element == Element::Int32;
        let known = matches!(element, Element::Int8 | Element::Uint8 | Element::Int32)
            && integer(node, "block_size", 0) == 0
            && (!is_wide || zeros.iter().all(|zero| *zero == 0));
        #[expect(clippy::cast_possible_truncation, reason = "float32 values")]
        let scales = scales.iter().map(|scale| *scale as f32).collect();
        known.then(|| QuantisedTensor {
            bytes: bytes.clone(),
            element,
            scales,
            zeros,
            axis: integer(node, "axis", 1),
        })
    }

    /// Returns the grid of a `QuantizeLinear`.
    fn target(&self, node: &NodeProto) -> Option<Grid> {
        let scale = self.constants.float(node.input.get(1)?)?;
        let (sign, zero_point) = if has_input(node, 2) {
            let zero = self.constants.get(&node.input[2])?;
            let sign = zero.element.sign()?;
            let [zero] = zero.values.as_deref()? else {
                return None;
            };
            #[expect(clippy::cast_possible_truncation, reason = "a byte")]
            let zero = *zero as i32;
            (sign, zero)
        } else {
            match integer(node, "output_dtype", 0) {
                0 | 2 => (Sign::Unsigned, 0),
                3 => (Sign::Signed, 0),
                _ => return None,
            }
        };
        let has_bytes = NarrowType::of(integer(node, "output_dtype", 0)).is_none();
        let known = scale.is_normal() && scale > 0.0 && integer(node, "block_size", 0) == 0;
        (known && has_bytes).then_some(Grid {
            sign,
            scale,
            zero_point,
        })
    }

    /// Returns the group that ends in the `QuantizeLinear` at this index.
    fn quantized(&mut self, at: usize) -> Option<FusedGroup> {
        let node = &self.nodes[at];
        let (grid, output) = (self.target(node)?, node.output.first()?.clone());
        let mut value = node.input.first()?.clone();
        let (mut bounds, mut parts) = (Bounds::NONE, Vec::new());
        while !self.held.contains_key(&value) {
            let maker = *self.makers.get(&value)?;
            if self.readers.get(&value) != Some(&1) {
                return None;
            }
            parts.push(maker);
            let found = &self.nodes[maker];
            if !is_default(found) {
                return None;
            }
            if let Some(first) = self.activation(found) {
                bounds = bounds.after(first);
                value.clone_from(found.input.first()?);
                continue;
            }
            let target = GroupTarget {
                grid,
                range: bounds.on(grid),
                output: &output,
            };
            let nodes = group(self.constants, &self.held, found, target)?;
            return Some(FusedGroup { nodes, parts });
        }
        let name = self.nodes[at].name.clone();
        let bytes = self.rounded(&value, grid, bounds.on(grid), [&name, &output])?;
        Some(FusedGroup {
            nodes: vec![bytes],
            parts,
        })
    }

    /// Returns the chain of elementwise functions from bytes to the `QuantizeLinear` at this index.
    fn tabled(&self, at: usize) -> Option<FusedGroup> {
        let node = &self.nodes[at];
        let (grid, output) = (self.target(node)?, node.output.first()?);
        let mut value = node.input.first()?;
        let (mut functions, mut parts) = (Vec::new(), Vec::new());
        let held = loop {
            if let Some(held) = self.held.get(value) {
                break held;
            }
            let maker = *self.makers.get(value)?;
            let found = &self.nodes[maker];
            if !is_default(found) || self.readers.get(value) != Some(&1) {
                return None;
            }
            let bounds = self.activation(found);
            let bounded =
                bounds.map(|bounds| -> ElementFunction { Box::new(move |x| bounds.hold(x)) });
            functions.push(bounded.or_else(|| function_of(found))?);
            parts.push(maker);
            value = found.input.first()?;
        };
        let from = held.grid()?;
        let mut numbers = numbers(from)?;
        for function in functions.iter().rev() {
            for number in &mut numbers {
                *number = function(*number);
            }
        }
        let mut made = node::new(node::TABLE, &node.name, &[&held.bytes], output);
        node::put_sign(&mut made, "x", from.sign);
        node::put_grid(&mut made, "y", grid);
        node::put_range(&mut made, IntegerRange::whole(grid.sign));
        node::put_floats(&mut made, "numbers", &numbers);
        Some(FusedGroup {
            nodes: vec![made],
            parts,
        })
    }

    /// Returns a `MatMulInteger` with a stored matrix and one zero point for the other operand.
    fn sums(&self, node: &NodeProto) -> Option<FusedGroup> {
        let [rows, matrix, ..] = node.input.as_slice() else {
            return None;
        };
        let is_one = |name: &String| {
            let stored = self.constants.get(name);
            let maker = self.makers.get(name).map(|maker| &self.nodes[*maker]);
            stored.is_some_and(|stored| stored.values.as_ref().is_some_and(|it| it.len() == 1))
                || maker.is_some_and(|maker| {
                    maker.op_type == "DynamicQuantizeLinear" && maker.output.get(2) == Some(name)
                })
        };
        if has_input(node, 2) && !is_one(&node.input[2]) {
            return None;
        }
        let nodes = vec![sums(self.constants, node, [rows, matrix])?];
        let parts = Vec::new();
        Some(FusedGroup { nodes, parts })
    }

    /// Returns the `QuantizeLinear` at this index alone. The library multiplies with the scale's
    /// reciprocal, which may be a step off the quotient.
    fn rounds(&self, at: usize) -> Option<FusedGroup> {
        let node = &self.nodes[at];
        let (value, output) = (node.input.first()?, node.output.first()?);
        if self.constants.get(value).is_some() {
            return None;
        }
        let mut made = node::new(node::ROUNDED, &node.name, &[value], output);
        node::put_grid(&mut made, "y", self.target(node)?);
        Some(FusedGroup {
            nodes: vec![made],
            parts: Vec::new(),
        })
    }

    /// Returns the conversion of bytes to a range or to another grid. If only this conversion reads
    /// the bytes, the node of this module that computes them gets the range instead.
    fn rounded(
        &mut self,
        value: &str,
        grid: Grid,
        range: IntegerRange,
        [name, output]: [&str; 2],
    ) -> Option<NodeProto> {
        let held = self.held.get(value)?;
        let (from, bytes) = (held.grid()?, held.bytes.clone());
        let mut same = from == grid && range == IntegerRange::whole(grid.sign);
        let alone = |name: &str| self.readers.get(name) == Some(&1);
        if from == grid && !same && alone(&bytes) && alone(value) {
            let maker = self.ours.get(&bytes);
            let maker = maker
                .and_then(|(at, place)| self.replaced.get_mut(at)?.get_mut(*place))
                .filter(|maker| attribute(maker, "least").is_some());
            if let Some((maker, first)) =
                maker.and_then(|maker| node::range(maker).ok().map(|first| (maker, first)))
            {
                node::put_range(maker, narrowed(first, range));
                same = true;
            }
        }
        if same {
            return Some(node::new("Identity", name, &[&bytes], output));
        }
        Some(node::rounded(name, &bytes, [from, grid], range, output))
    }

    /// Returns the bounds of a node that only clamps its input.
    fn activation(&self, node: &NodeProto) -> Option<Bounds> {
        let bound = |place: usize, name: &str, absent: f32| {
            if has_input(node, place) {
                return self.constants.float(&node.input[place]);
            }
            Some(attribute(node, name).map_or(absent, |found| found.f))
        };
        match node.op_type.as_str() {
            "Relu" => Bounds::new(0.0, f32::INFINITY),
            "Clip" => Bounds::new(
                bound(1, "min", f32::NEG_INFINITY)?,
                bound(2, "max", f32::INFINITY)?,
            ),
            _ => None,
        }
    }
}
