//! Writes messages of `onnx.proto`: the wire format of `wire.rs`, with the field names of
//! `schema.rs`.
//!
//! Only the small models that this tool generates itself are supported.

use super::schema::{
    ATTRIBUTE, DIMENSION, FieldDef, GRAPH, MODEL, NODE, OPSET, SHAPE, TENSOR, TENSOR_TYPE, TYPE,
    VALUE_INFO,
};

const VARINT_WIRE_TYPE: u64 = 0;
const BYTES_WIRE_TYPE: u64 = 2;

/// `AttributeProto.AttributeType.INT`.
const INT_ATTRIBUTE_TYPE: u64 = 2;

/// `TensorProto.DataType.FLOAT`: all written tensors are float32.
const FLOAT_DATA_TYPE: u64 = 1;

/// IR version of written models; it dates from 2020, so all readers support it.
const IR_VERSION: u64 = 8;

/// A message being written.
#[derive(Debug, Clone)]
pub struct WrittenMessage {
    schema: &'static [FieldDef],
    bytes: Vec<u8>,
}

/// A float32 input or output of a graph.
#[derive(Debug, Clone, Copy)]
pub struct GraphPort<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its sizes.
    pub dims: &'a [Size<'a>],
}

/// A size of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum Size<'a> {
    /// A fixed size.
    Fixed(u64),
    /// A dynamic size with this symbol.
    Symbol(&'a str),
}

/// Writes a number as a varint.
#[expect(clippy::missing_panics_doc, reason = "seven bits fit into a byte")]
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits fit") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits fit"));
}

/// Writes a length-delimited field.
pub fn put_bytes(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(number << 3 | BYTES_WIRE_TYPE, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Builds a model with a single graph and operator set. The nodes must be in execution order.
pub fn model(
    name: &str,
    opset: u64,
    nodes: &[WrittenMessage],
    stored: &[WrittenMessage],
    io: [&[GraphPort<'_>]; 2],
) -> Vec<u8> {
    let mut graph = WrittenMessage::new(GRAPH);
    for node in nodes {
        graph = graph.message("node", node);
    }
    graph = graph.text("name", name);
    for tensor in stored {
        graph = graph.message("initializer", tensor);
    }
    for (field, values) in ["input", "output"].into_iter().zip(io) {
        for value in values {
            graph = graph.message(field, &value.message());
        }
    }
    let opset = WrittenMessage::new(OPSET)
        .text("domain", "")
        .int("version", opset);
    let model = WrittenMessage::new(MODEL)
        .int("ir_version", IR_VERSION)
        .text("producer_name", "pkgtool")
        .message("graph", &graph)
        .message("opset_import", &opset);
    model.bytes
}

/// Builds a node of a graph.
pub fn node(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, u64)],
) -> WrittenMessage {
    let mut node = WrittenMessage::new(NODE);
    for input in inputs {
        node = node.text("input", input);
    }
    node = node.text("output", output).text("op_type", operator);
    for (name, value) in attributes {
        let attribute = WrittenMessage::new(ATTRIBUTE)
            .text("name", name)
            .int("i", *value)
            .int("type", INT_ATTRIBUTE_TYPE);
        node = node.message("attribute", &attribute);
    }
    node
}

/// Builds a float32 tensor that is stored in the model.
pub fn stored(name: &str, dims: &[u64], values: &[f32]) -> WrittenMessage {
    let mut tensor = WrittenMessage::new(TENSOR);
    for dim in dims {
        tensor = tensor.int("dims", *dim);
    }
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    tensor
        .int("data_type", FLOAT_DATA_TYPE)
        .text("name", name)
        .raw("raw_data", &bytes)
}

impl GraphPort<'_> {
    fn message(&self) -> WrittenMessage {
        let mut shape = WrittenMessage::new(SHAPE);
        for size in self.dims {
            let dim = WrittenMessage::new(DIMENSION);
            let dim = match size {
                Size::Fixed(size) => dim.int("dim_value", *size),
                Size::Symbol(symbol) => dim.text("dim_param", symbol),
            };
            shape = shape.message("dim", &dim);
        }
        let tensor = WrittenMessage::new(TENSOR_TYPE)
            .int("elem_type", FLOAT_DATA_TYPE)
            .message("shape", &shape);
        let kind = WrittenMessage::new(TYPE).message("tensor_type", &tensor);
        WrittenMessage::new(VALUE_INFO)
            .text("name", self.name)
            .message("type", &kind)
    }
}

impl WrittenMessage {
    fn new(schema: &'static [FieldDef]) -> Self {
        let bytes = Vec::new();
        Self { schema, bytes }
    }

    fn number(&self, field: &str) -> u64 {
        let def = self.schema.iter().find(|def| def.name == field);
        def.map(|def| u64::from(def.number))
            .expect("fields are named as the schema has them")
    }

    fn int(mut self, field: &str, value: u64) -> Self {
        put_varint(self.number(field) << 3 | VARINT_WIRE_TYPE, &mut self.bytes);
        put_varint(value, &mut self.bytes);
        self
    }

    fn raw(mut self, field: &str, value: &[u8]) -> Self {
        put_bytes(self.number(field), value, &mut self.bytes);
        self
    }

    fn text(self, field: &str, value: &str) -> Self {
        self.raw(field, value.as_bytes())
    }

    fn message(self, field: &str, value: &Self) -> Self {
        self.raw(field, &value.bytes)
    }
}
