//! What a graph of `MLXBackend` tells of dynamic dimensions.
//!
//! Its tensor metadata say of each dimension whether it is fixed, and how small it may be. Names of slots are not taken: they
//! are the exporter's (`b5c3/x`), with a prefix of its own.

use super::super::error::Error;
use super::super::evidence::Certain;
use super::super::flatbuffer::{Field, Table, Vector};
use super::super::payload_graph::{ANY_SIZE, Graph, MAX_PORTS, Ports, Shape};

const INPUTS: Field = Field(10, "input_map");
const OUTPUTS: Field = Field(11, "output_map");
const METADATA: Field = Field(14, "tensor_meta");
const SLOT: Field = Field(0, "idx");
const SLOT_TYPE: Field = Field(1, "slot_type");
const SHAPE: Field = Field(0, "shape");
const VALUE: Field = Field(0, "value");
const LEAST: Field = Field(1, "min_value");

/// Most dimensions of a tensor here.
const MAX_RANK: u64 = 16;

/// Adds what the metadata say; the graph's inputs and outputs.
pub(in super::super) fn relate(root: &Table<'_>, graph: &mut Graph<'_>) -> Result<Ports, Error> {
    let metadata = root.tables(METADATA)?;
    let mut shapes = Vec::new();
    for field in [INPUTS, OUTPUTS] {
        let slots = root.tables(field)?;
        for slot in 0..slots.len().min(MAX_PORTS) {
            let slot = slots.table(slot)?;
            let index = u64::from(slot.u32(SLOT)?);
            let is_tensor = slot.u8(SLOT_TYPE)? == 0 && index < metadata.len();
            shapes.push(if is_tensor {
                tensor(&metadata.table(index)?.vector(SHAPE, 4)?, graph)?
            } else {
                None
            });
        }
    }
    Ok(Ports {
        shapes,
        in_memory_order: false,
    })
}

/// Returns how many inputs and outputs a graph has.
pub(in super::super) fn count_ports(root: &Table<'_>) -> Result<u64, Error> {
    Ok(root.tables(INPUTS)?.len() + root.tables(OUTPUTS)?.len())
}

fn tensor(dims: &Vector<'_>, graph: &mut Graph<'_>) -> Result<Option<Shape>, Error> {
    if dims.len() > MAX_RANK {
        return Ok(None);
    }
    let mut bounds = Vec::new();
    let mut certain = Vec::new();
    for dim in dims.iter_tables() {
        let dim = dim?;
        let value = dim.i32_or(VALUE, -1)?;
        let (size, known, least) = match u64::try_from(value) {
            Ok(size) => (size, Certain::Fixed, 0),
            // Its bound is the program's, where it states one.
            Err(_) => (ANY_SIZE, Certain::Dynamic, dim.i32_or(LEAST, 0)?),
        };
        bounds.push(size);
        certain.push((known, u64::try_from(least).unwrap_or(0)));
    }
    let shape = graph.shape(bounds);
    if let Some(shape) = &shape {
        for (dim, (certain, least)) in certain.into_iter().enumerate() {
            graph.fact(shape.dim(dim), certain);
            if least > 0 {
                graph.at_least(shape.dim(dim), least);
            }
        }
    }
    Ok(shape)
}
