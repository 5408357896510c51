//! What the graph of a payload tells of dimensions.
//!
//! XNNPACK says nothing of dynamism. But its nodes say how dimensions hang together, and weights have fixed
//! ones: what a fully connected layer reads is as wide as its filter. Invariant: a value or a node that is
//! broken, or of a kind that is not known, tells nothing and is no error; no weights are read. Images are
//! `[n, h, w, c]` here.

use std::collections::BTreeMap;

use super::super::error::Error;
use super::super::flatbuffer::Table;
use super::super::payload_graph::{Graph, MAX_PORTS, Ports, Shape};
use super::super::storage::ByteRange;
use super::fields::{Ids, numbers};
use super::kinds::computes;
use super::node::{BinaryKind, Conv, ConvKind, NodeKind};
use super::payload::Parts;
use super::schema::{CONSTANT, DIMS, ID, INPUTS, NODES, NUM_DIMS, OUTPUTS, VALUES, tensor};
use crate::source::Pages;

/// Where the graph of a payload is, if it is one of XNNPACK's.
pub(in super::super) fn find(pages: &Pages<'_>, payload: ByteRange) -> Option<ByteRange> {
    let parts = Parts::find(pages, payload).ok().flatten()?;
    let mark = parts.other_mark(pages).ok()?;
    mark.is_none().then_some(parts.graph)
}

/// Adds the rules of a graph; its inputs and outputs.
pub(in super::super) fn relate(root: &Table<'_>, graph: &mut Graph<'_>) -> Result<Ports, Error> {
    let mut nodes = Nodes {
        graph,
        shapes: BTreeMap::new(),
    };
    nodes.values(root)?;
    // Those of no value lead to no shape.
    let ids = Ids(&|_| true);
    for node in root.tables(NODES)?.iter_tables() {
        if let Ok(Some(kind)) = computes(&node?, &ids) {
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

/// The tensors of a graph by their ids.
struct Nodes<'g, 'r> {
    graph: &'g mut Graph<'r>,
    shapes: BTreeMap<u32, Shape>,
}

/// What is read of a value.
struct Read {
    id: u32,
    dims: Vec<u64>,
    is_constant: bool,
}

/// A value's sizes; none where its rank is another.
fn read_value(value: &Table<'_>) -> Result<Option<Read>, Error> {
    let Some((tensor, _)) = tensor(value)? else {
        return Ok(None);
    };
    let rank = u64::from(tensor.u32(NUM_DIMS)?);
    let dims = numbers(&tensor, DIMS)?;
    if dims.len() as u64 != rank {
        return Ok(None);
    }
    Ok(Some(Read {
        id: tensor.u32(ID)?,
        dims,
        is_constant: tensor.u32(CONSTANT)? != 0,
    }))
}

impl Nodes<'_, '_> {
    fn values(&mut self, root: &Table<'_>) -> Result<(), Error> {
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

    /// The shapes of all of these.
    fn shapes<const N: usize>(&self, ids: [u32; N]) -> Option<[Shape; N]> {
        let shapes = ids.iter().filter_map(|id| self.shapes.get(id).cloned());
        shapes.collect::<Vec<_>>().try_into().ok()
    }

    /// Each needs all its tensors.
    fn node(&mut self, kind: &NodeKind) {
        match kind {
            // Slopes have the channels.
            NodeKind::Binary {
                kind: BinaryKind::PRelu,
                a: input,
                output,
                ..
            }
            | NodeKind::Unary { input, output, .. } => {
                self.moves([*input, *output], |graph, from, to| {
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
            } => self.moves([*input, *output], |graph, from, to| {
                graph.transpose(to, from, perm);
            }),
            NodeKind::Conv(conv) => self.convolution(conv),
            NodeKind::Resize {
                height,
                width,
                input,
                output,
                ..
            } => self.moves([*input, *output], |graph, from, to| {
                resize(graph, from, to, [*height, *width]);
            }),
            NodeKind::Pad { input, output, .. } => {
                self.moves([*input, *output], |graph, from, to| graph.pad(to, from));
            }
            NodeKind::AvgPool(pool) | NodeKind::MaxPool(pool) => {
                self.moves([pool.input, pool.output], |graph, from, to| {
                    graph.window(to, from, pool.stride);
                    graph.equal((to, 3), (from, 3));
                });
            }
            NodeKind::GlobalAvgPool { input, output, .. } => {
                self.moves([*input, *output], global_average);
            }
            NodeKind::Reshape {
                shape,
                input,
                output,
            } => self.moves([*input, *output], |graph, from, to| {
                graph.reshape(to, from, shape);
            }),
            NodeKind::Concatenate {
                axis,
                inputs,
                output,
            } => self.concatenate(*axis, inputs, *output),
            // The exporter writes bounds for sizes that it does not change.
            NodeKind::Slice { input, output, .. } => {
                self.moves([*input, *output], |graph, from, to| {
                    graph.each_from_its_own(to, from);
                });
            }
            NodeKind::FullyConnected { .. }
            | NodeKind::MatMul { .. }
            | NodeKind::ArgMaxPool { .. }
            | NodeKind::Attention { .. } => {}
        }
    }

    /// A node with one argument that says something.
    fn moves(
        &mut self,
        [input, output]: [u32; 2],
        relate: impl FnOnce(&mut Graph<'_>, &Shape, &Shape),
    ) {
        if let Some([from, to]) = self.shapes([input, output]) {
            relate(self.graph, &from, &to);
        }
    }

    fn convolution(&mut self, conv: &Conv) {
        // A transposed convolution makes an image larger: no two sizes become one.
        let steps = match conv.kind {
            ConvKind::Transposed => [1, 1],
            ConvKind::Plain | ConvKind::Depthwise => conv.stride,
        };
        self.moves([conv.input, conv.output], |graph, from, to| {
            graph.window(to, from, steps);
            graph.literal(from, 3, conv.groups * conv.group_input_channels);
            graph.literal(to, 3, conv.groups * conv.group_output_channels);
        });
    }

    fn concatenate(&mut self, axis: i64, inputs: &[u32], output: u32) {
        let from = inputs.iter().filter_map(|id| self.shapes.get(id).cloned());
        let from: Vec<Shape> = from.collect();
        let to = self.shapes.get(&output).cloned();
        if let (Some(to), Ok(axis), true) = (to, axis.try_into(), from.len() == inputs.len()) {
            self.graph.concatenate(&to, &from, axis);
        }
    }
}

fn resize(graph: &mut Graph<'_>, from: &Shape, to: &Shape, [height, width]: [u64; 2]) {
    graph.literal(to, 1, height);
    graph.literal(to, 2, width);
    graph.equal((to, 0), (from, 0));
    graph.equal((to, 3), (from, 3));
}

fn global_average(graph: &mut Graph<'_>, from: &Shape, to: &Shape) {
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
