//! Extracts evidence of dynamic dimensions from the graph of an XNNPACK delegate.
//!
//! XNNPACK graphs do not record dynamism. But their nodes show how dimensions depend on each other,
//! and weights have fixed dimensions: the input of a fully connected layer is as wide as its
//! filter. Invariant: an invalid or unknown value or node yields no evidence and no error; weights
//! are never read. Images are `[n, h, w, c]`.

use std::collections::BTreeMap;

use super::super::flatbuffer::Table;
use super::super::payload_graph::{MAX_PORTS, PayloadGraph, PayloadShape, Ports};
use super::super::storage::ByteRange;
use super::fields::{ValueIds, read_sizes};
use super::kinds::read_computation;
use super::node::{BinaryKind, Conv, ConvKind, NodeKind};
use super::payload::XnnpackParts;
use super::schema::{CONSTANT_INDEX, DIMS, ID, INPUTS, NODES, NUM_DIMS, OUTPUTS, VALUES, tensor};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// Returns the position of a payload's graph, if the payload belongs to XNNPACK.
pub(in super::super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Option<ByteRange> {
    let parts = XnnpackParts::find(pages, payload).ok().flatten()?;
    let mark = parts.unexpected_identifier(pages).ok()?;
    mark.is_none().then_some(parts.graph)
}

/// Adds the rules of a graph; returns its inputs and outputs.
pub(in super::super) fn relate(
    root: &Table<'_>,
    graph: &mut PayloadGraph<'_>,
) -> Result<Ports, FormatError> {
    let mut nodes = XnnpackRules {
        graph,
        shapes: BTreeMap::new(),
    };
    nodes.values(root)?;
    // All ids are accepted; an unknown id simply lacks a shape.
    let ids = ValueIds(&|_| true);
    for node in root.tables(NODES)?.iter_tables() {
        if let Ok(Some(kind)) = read_computation(&node?, &ids) {
            nodes.node(&kind);
        }
    }
    let mut shapes = Vec::new();
    for field in [INPUTS, OUTPUTS] {
        let ids = root.vector(field, 4)?;
        for index in 0..ids.len().min(MAX_PORTS) {
            shapes.push(nodes.shapes.get(&ids.u32(index)?).cloned());
        }
    }
    Ok(Ports {
        shapes,
        in_memory_order: true,
    })
}

/// The tensors of a graph, by id.
struct XnnpackRules<'g, 'r> {
    graph: &'g mut PayloadGraph<'r>,
    shapes: BTreeMap<u32, PayloadShape>,
}

/// The parsed part of a value.
struct ParsedValue {
    id: u32,
    dims: Vec<u64>,
    is_constant: bool,
}

/// Reads a value's sizes; `None` if their number differs from its rank.
fn read_value(value: &Table<'_>) -> Result<Option<ParsedValue>, FormatError> {
    let Some((tensor, _)) = tensor(value)? else {
        return Ok(None);
    };
    let rank = u64::from(tensor.u32(NUM_DIMS)?);
    let dims = read_sizes(&tensor, DIMS)?;
    if dims.len() as u64 != rank {
        return Ok(None);
    }
    Ok(Some(ParsedValue {
        id: tensor.u32(ID)?,
        dims,
        is_constant: tensor.u32(CONSTANT_INDEX)? != 0,
    }))
}

impl XnnpackRules<'_, '_> {
    fn values(&mut self, root: &Table<'_>) -> Result<(), FormatError> {
        for value in root.tables(VALUES)?.iter_tables() {
            let Ok(Some(value)) = read_value(&value?) else {
                continue;
            };
            let Some(shape) = self.graph.shape(value.dims) else {
                return Ok(());
            };
            if value.is_constant {
                self.graph.fixed(&shape);
            }
            self.shapes.insert(value.id, shape);
        }
        Ok(())
    }

    /// Returns the shapes of all ids; `None` if one is unknown.
    fn shapes<const N: usize>(&self, ids: [u32; N]) -> Option<[PayloadShape; N]> {
        let shapes = ids.iter().filter_map(|id| self.shapes.get(id).cloned());
        shapes.collect::<Vec<_>>().try_into().ok()
    }

    /// Adds the rules of a node; does nothing if one of its tensors is unknown.
    fn node(&mut self, kind: &NodeKind) {
        match kind {
            // The slopes have the size of the channel dimension.
            NodeKind::Binary {
                kind: BinaryKind::PRelu,
                a: input,
                output,
                ..
            }
            | NodeKind::Unary { input, output, .. } => {
                self.add_unary_rules([*input, *output], |graph, from, to| {
                    graph.elementwise(to, from);
                });
            }
            NodeKind::Binary { a, b, output, .. } => {
                if let Some([a, b, to]) = self.shapes([*a, *b, *output]) {
                    self.graph.broadcast(&to, &a, &b);
                }
            }
            NodeKind::FullyConnected {
                input,
                filter,
                output,
                transposed,
                other_flags: false,
                ..
            } => {
                if let Some([from, filter, to]) = self.shapes([*input, *filter, *output]) {
                    self.graph.linear(&to, &from, &filter, *transposed);
                }
            }
            NodeKind::MatMul {
                a,
                b,
                output,
                transposed: false,
                other_flags: false,
            } => {
                if let Some([a, b, to]) = self.shapes([*a, *b, *output]) {
                    self.graph.matmul(&to, &a, &b);
                }
            }
            NodeKind::Transpose {
                perm,
                input,
                output,
            } => self.add_unary_rules([*input, *output], |graph, from, to| {
                graph.transpose(to, from, perm);
            }),
            NodeKind::Conv(conv) => self.add_convolution(conv),
            NodeKind::Resize {
                height,
                width,
                input,
                output,
                ..
            } => self.add_unary_rules([*input, *output], |graph, from, to| {
                resize(graph, from, to, [*height, *width]);
            }),
            NodeKind::Pad { input, output, .. } => {
                self.add_unary_rules([*input, *output], |graph, from, to| graph.pad(to, from));
            }
            NodeKind::AvgPool(pool) | NodeKind::MaxPool(pool) => {
                self.add_unary_rules([pool.input, pool.output], |graph, from, to| {
                    graph.window(to, from, pool.stride);
                    graph.equal((to, 3), (from, 3));
                });
            }
            NodeKind::GlobalAvgPool { input, output, .. } => {
                self.add_unary_rules([*input, *output], relate_global_avg_pool);
            }
            NodeKind::Reshape {
                shape,
                input,
                output,
            } => self.add_unary_rules([*input, *output], |graph, from, to| {
                graph.reshape(to, from, shape);
            }),
            NodeKind::Concatenate {
                axis,
                inputs,
                output,
            } => self.add_concatenation(*axis, inputs, *output),
            // The exporter writes upper bounds for sizes that it does not change.
            NodeKind::Slice { input, output, .. } => {
                self.add_unary_rules([*input, *output], |graph, from, to| {
                    graph.each_dim_from_same(to, from);
                });
            }
            NodeKind::FullyConnected { .. }
            | NodeKind::MatMul { .. }
            | NodeKind::ArgMaxPool { .. }
            | NodeKind::Attention { .. } => {}
        }
    }

    /// Adds the rules of a node with one argument.
    fn add_unary_rules(
        &mut self,
        [input, output]: [u32; 2],
        relate: impl FnOnce(&mut PayloadGraph<'_>, &PayloadShape, &PayloadShape),
    ) {
        if let Some([from, to]) = self.shapes([input, output]) {
            relate(self.graph, &from, &to);
        }
    }

    fn add_convolution(&mut self, conv: &Conv) {
        // A transposed convolution enlarges an image, so different sizes stay different.
        let steps = match conv.kind {
            ConvKind::Transposed => [1, 1],
            ConvKind::Plain | ConvKind::Depthwise => conv.stride,
        };
        self.add_unary_rules([conv.input, conv.output], |graph, from, to| {
            graph.window(to, from, steps);
            graph.literal(from, 3, conv.groups * conv.group_input_channels);
            graph.literal(to, 3, conv.groups * conv.group_output_channels);
        });
    }

    fn add_concatenation(&mut self, axis: i64, inputs: &[u32], output: u32) {
        let from = inputs.iter().filter_map(|id| self.shapes.get(id).cloned());
        let from: Vec<PayloadShape> = from.collect();
        let to = self.shapes.get(&output).cloned();
        if let (Some(to), Ok(axis), true) = (to, axis.try_into(), from.len() == inputs.len()) {
            self.graph.concatenate(&to, &from, axis);
        }
    }
}

fn resize(
    graph: &mut PayloadGraph<'_>,
    from: &PayloadShape,
    to: &PayloadShape,
    [height, width]: [u64; 2],
) {
    graph.literal(to, 1, height);
    graph.literal(to, 2, width);
    graph.equal((to, 0), (from, 0));
    graph.equal((to, 3), (from, 3));
}

fn relate_global_avg_pool(graph: &mut PayloadGraph<'_>, from: &PayloadShape, to: &PayloadShape) {
    if from.rank() != 4 {
        return;
    }
    graph.equal((to, 0), (from, 0));
    match to.rank() {
        2 => graph.equal((to, 1), (from, 3)),
        4 => {
            graph.literal(to, 1, 1);
            graph.literal(to, 2, 1);
            graph.equal((to, 3), (from, 3));
        }
        _ => {}
    }
}
