//! The payload of `XnnpackBackend`: `XNNGraph`, bare or behind a header `XH00`.
//!
//! XNNPACK says nothing of dynamism. But its nodes say how dimensions hang together, and weights
//! have fixed ones: what a fully connected layer reads is as wide as its filter. Node types that
//! are not listed in [`Nodes::node`] tell nothing. Schema: `xnnpack/serialization/schema.fbs` of
//! ExecuTorch 1.5 (`XN01`, and `XN00` before it). Images are `[n, h, w, c]` here.

use std::collections::BTreeMap;

use super::super::delegate::{Graph, MAX_PORTS, Ports, Shape};
use super::super::error::Error;
use super::super::flatbuffer::{Field, Table};

/// XNNPACK's own limit.
const MAX_RANK: u64 = 6;
/// `XNN_FLAG_TRANSPOSE_WEIGHTS`
const TRANSPOSED: u32 = 1;

const NODES: Field = Field(1, "xnodes");
const VALUES: Field = Field(2, "xvalues");
const INPUTS: Field = Field(4, "input_ids");
const OUTPUTS: Field = Field(5, "output_ids");
const UNION_TYPE: Field = Field(0, "union_type");
const UNION: Field = Field(1, "union");
const TENSOR: Field = Field(0, "tensor_value");
const NUM_DIMS: Field = Field(1, "num_dims");
const DIMS: Field = Field(2, "dims");
const CONSTANT: Field = Field(3, "constant_buffer_idx");
const ID: Field = Field(6, "id_out");

/// The tensors of a graph by their ids.
struct Nodes<'g, 'r> {
    graph: &'g mut Graph<'r>,
    shapes: BTreeMap<u32, Shape>,
}

/// Adds the rules of a graph; its inputs and outputs.
pub(in super::super) fn read(root: &Table<'_>, graph: &mut Graph<'_>) -> Result<Ports, Error> {
    let mut nodes = Nodes {
        graph,
        shapes: BTreeMap::new(),
    };
    nodes.values(root)?;
    for node in root.tables(NODES)?.iter_tables() {
        let node = node?;
        let tag = node.u8(UNION_TYPE)?;
        if let Some(table) = node.table(UNION)? {
            nodes.node(tag, &table)?;
        }
    }
    let mut ports = Vec::new();
    for field in [INPUTS, OUTPUTS] {
        let ids = root.vector(field, 4)?;
        for index in 0..ids.len().min(MAX_PORTS) {
            ports.push(nodes.shapes.get(&ids.u32(index)?).cloned());
        }
    }
    Ok(Ports {
        shapes: ports,
        in_memory_order: true,
    })
}

impl Nodes<'_, '_> {
    fn values(&mut self, root: &Table<'_>) -> Result<(), Error> {
        for value in root.tables(VALUES)?.iter_tables() {
            let value = value?;
            let tensor = match value.u8(UNION_TYPE)? {
                1 => value.table(UNION)?,
                2 => match value.table(UNION)? {
                    Some(quantized) => quantized.table(TENSOR)?,
                    None => None,
                },
                _ => None,
            };
            let Some(tensor) = tensor else { continue };
            let rank = u64::from(tensor.u32(NUM_DIMS)?);
            let dims = numbers(&tensor, DIMS)?.filter(|dims| dims.len() as u64 == rank);
            let Some(dims) = dims else { continue };
            let Some(shape) = self.graph.shape(dims) else {
                return Ok(());
            };
            if tensor.u32(CONSTANT)? != 0 {
                self.graph.fixed(&shape);
            }
            self.shapes.insert(tensor.u32(ID)?, shape);
        }
        Ok(())
    }

    fn shape(&self, table: &Table<'_>, slot: u16) -> Result<Option<Shape>, Error> {
        let id = table.u32(Field(slot, "id"))?;
        Ok(self.shapes.get(&id).cloned())
    }

    /// Members of `XNodeUnion` by number; each needs all its tensors.
    fn node(&mut self, tag: u8, node: &Table<'_>) -> Result<(), Error> {
        match tag {
            // Add, Div, Minimum, Multiply, Subtract, Maximum
            1 | 8 | 12 | 15 | 16 | 26 => {
                if let Some([a, b, to]) = self.shapes(node, [0, 1, 2])? {
                    self.graph.broadcast(&to, &a, &b);
                }
            }
            2 => self.fully_connected(node)?,
            // Softmax, Sigmoid, Clamp, Floor, Convert, SquareRoot, Ceiling, Hardswish, Negate,
            // Square, Abs, ReciprocalSquareRoot, Log, Gelu, Tanh, Exp, Sin, Copy, Cos
            3 | 4 | 6 | 17 | 18 | 22..=24 | 27 | 28 | 30 | 40..=47 => self.unary(node, [0, 1])?,
            // LeakyReLU, ELU
            25 | 29 => self.unary(node, [1, 2])?,
            // PReLU, whose slopes have the channels
            31 => self.unary(node, [0, 2])?,
            5 => {
                let order = numbers(node, Field(1, "perm"))?;
                if let (Some([from, to]), Some(order)) = (self.shapes(node, [2, 3])?, order) {
                    self.graph.transpose(&to, &from, &order);
                }
            }
            // Conv2d, DepthwiseConv2d, ConvTranspose2d
            7 | 13 | 39 => self.convolution(tag, node)?,
            9 => self.resize(node)?,
            // StaticConstantPad
            10 => {
                if let Some([from, to]) = self.shapes(node, [3, 4])? {
                    self.graph.pad(&to, &from);
                }
            }
            // AvgPooling2d, MaxPooling2d
            11 | 14 => self.pooling(node)?,
            19 => self.global_average(node)?,
            20 => {
                let sizes = numbers(node, Field(1, "new_shape"))?;
                if let (Some([from, to]), Some(sizes)) = (self.shapes(node, [2, 3])?, sizes) {
                    self.graph.reshape(&to, &from, &sizes);
                }
            }
            // Concatenate2, 3, 4 and 5
            32..=34 | 38 => self.concatenate(tag, node)?,
            // StaticSlice: the exporter writes bounds for sizes that it does not change
            35 => {
                if let Some([from, to]) = self.shapes(node, [3, 4])? {
                    self.graph.each_from_its_own(&to, &from);
                }
            }
            // BatchMatrixMultiply
            37 if node.u32(Field(3, "flags"))? == 0 => {
                if let Some([a, b, to]) = self.shapes(node, [0, 1, 2])? {
                    self.graph.matmul(&to, &a, &b);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn shapes<const N: usize>(
        &self,
        node: &Table<'_>,
        slots: [u16; N],
    ) -> Result<Option<[Shape; N]>, Error> {
        let mut found = Vec::with_capacity(N);
        for slot in slots {
            found.extend(self.shape(node, slot)?);
        }
        Ok(found.try_into().ok())
    }

    fn unary(&mut self, node: &Table<'_>, slots: [u16; 2]) -> Result<(), Error> {
        if let Some([from, to]) = self.shapes(node, slots)? {
            self.graph.elementwise(&to, &from);
        }
        Ok(())
    }

    fn fully_connected(&mut self, node: &Table<'_>) -> Result<(), Error> {
        let flags = node.u32(Field(4, "flags"))?;
        if flags & !TRANSPOSED != 0 {
            return Ok(());
        }
        if let Some([from, filter, to]) = self.shapes(node, [0, 1, 3])? {
            self.graph
                .linear(&to, &from, &filter, flags & TRANSPOSED != 0);
        }
        Ok(())
    }

    fn convolution(&mut self, tag: u8, node: &Table<'_>) -> Result<(), Error> {
        let Some([from, to]) = self.shapes(node, [15, 18])? else {
            return Ok(());
        };
        let number = |slot| node.u32(Field(slot, "number"));
        // A transposed convolution makes an image larger: no two sizes become one.
        let steps = match tag {
            39 => [1, 1],
            _ => [number(6)?, number(7)?],
        };
        self.graph.window(&to, &from, steps);
        let groups = u64::from(number(12)?);
        self.graph
            .literal(&from, 3, groups * u64::from(number(10)?));
        self.graph.literal(&to, 3, groups * u64::from(number(11)?));
        Ok(())
    }

    fn pooling(&mut self, node: &Table<'_>) -> Result<(), Error> {
        if let Some([from, to]) = self.shapes(node, [10, 11])? {
            let step = |slot| node.u32(Field(slot, "stride"));
            self.graph.window(&to, &from, [step(6)?, step(7)?]);
            self.graph.equal((&to, 3), (&from, 3));
        }
        Ok(())
    }

    fn resize(&mut self, node: &Table<'_>) -> Result<(), Error> {
        if let Some([from, to]) = self.shapes(node, [2, 3])? {
            for (dim, slot) in [(1, 0), (2, 1)] {
                let size = node.u32(Field(slot, "new_size"))?;
                self.graph.literal(&to, dim, size.into());
            }
            self.graph.equal((&to, 0), (&from, 0));
            self.graph.equal((&to, 3), (&from, 3));
        }
        Ok(())
    }

    fn global_average(&mut self, node: &Table<'_>) -> Result<(), Error> {
        let Some([from, to]) = self.shapes(node, [0, 1])? else {
            return Ok(());
        };
        if from.rank() != 4 {
            return Ok(());
        }
        self.graph.equal((&to, 0), (&from, 0));
        let last = to.rank().saturating_sub(1);
        match to.rank() {
            2 => self.graph.equal((&to, last), (&from, 3)),
            4 => {
                self.graph.literal(&to, 1, 1);
                self.graph.literal(&to, 2, 1);
                self.graph.equal((&to, last), (&from, 3));
            }
            _ => {}
        }
        Ok(())
    }

    fn concatenate(&mut self, tag: u8, node: &Table<'_>) -> Result<(), Error> {
        let slots: &[u16] = match tag {
            32 => &[1, 2],
            33 => &[1, 2, 3],
            34 => &[1, 2, 3, 4],
            _ => &[1, 2, 3, 4, 7],
        };
        let mut from = Vec::new();
        for &slot in slots {
            from.extend(self.shape(node, slot)?);
        }
        let axis = node.u32(Field(0, "axis"))? as usize;
        if let (Some(to), true) = (self.shape(node, 5)?, from.len() == slots.len()) {
            self.graph.concatenate(&to, &from, axis);
        }
        Ok(())
    }
}

/// A short vector of numbers.
fn numbers(table: &Table<'_>, field: Field) -> Result<Option<Vec<u64>>, Error> {
    let vector = table.vector(field, 4)?;
    if vector.len() > MAX_RANK {
        return Ok(None);
    }
    let numbers = (0..vector.len()).map(|index| vector.u32(index).map(u64::from));
    numbers.collect::<Result<_, _>>().map(Some)
}
