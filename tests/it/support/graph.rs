//! Builds ONNX models with several nodes, weights, attributes and symbolic dimensions.

use pkgtool_testing::onnx::{int, model, part};

/// A dimension of an input: fixed or symbolic.
#[derive(Clone, Copy)]
pub(crate) enum Size {
    /// A fixed size.
    Of(u64),
    /// A symbolic dimension with this name.
    Open(&'static str),
}

/// An attribute.
pub(crate) enum Attribute {
    /// An integer.
    Int(&'static str, u64),
    /// Integers.
    Ints(&'static str, &'static [u64]),
    /// A string.
    #[cfg(feature = "ort")]
    Text(&'static str, &'static str),
    /// A graph.
    #[cfg(feature = "ort")]
    Body(&'static str, Vec<u8>),
}

/// ONNX element type `float32`.
pub(crate) const FLOAT: u64 = 1;
/// `uint8`.
#[cfg(feature = "ort")]
pub(crate) const UINT8: u64 = 2;
/// `int8`.
#[cfg(feature = "ort")]
pub(crate) const INT8: u64 = 3;
/// `int32`.
#[cfg(feature = "ort")]
pub(crate) const INT32: u64 = 6;
/// `bool`.
#[cfg(feature = "ort")]
pub(crate) const BOOL: u64 = 9;
/// `int64`.
pub(crate) const INT64: u64 = 7;
/// `float64`.
#[cfg(feature = "ort")]
pub(crate) const DOUBLE: u64 = 11;

/// Builder of an ONNX graph.
#[derive(Default)]
pub(crate) struct Graph {
    parts: Vec<Vec<u8>>,
}

impl Graph {
    /// Adds an input.
    pub(crate) fn input(mut self, name: &str, element: u64, sizes: &[Size]) -> Self {
        self.parts.push(value(11, name, element, &shape(sizes)));
        self
    }

    /// Adds an output with a shape.
    pub(crate) fn shaped_output(mut self, name: &str, element: u64, sizes: &[Size]) -> Self {
        self.parts.push(value(12, name, element, &shape(sizes)));
        self
    }

    /// Adds an output without a shape.
    pub(crate) fn output(mut self, name: &str, element: u64) -> Self {
        self.parts.push(value(12, name, element, &[]));
        self
    }

    /// Adds a float32 initializer of ones.
    pub(crate) fn ones(mut self, name: &str, dims: &[u64]) -> Self {
        let count = usize::try_from(dims.iter().product::<u64>()).expect("the number fits");
        let data = 1_f32.to_le_bytes().repeat(count);
        self.parts.push(stored(name, FLOAT, dims, &data));
        self
    }

    /// Adds a float32 scalar.
    #[cfg(feature = "ort")]
    pub(crate) fn number(mut self, name: &str, value: f32) -> Self {
        self.parts
            .push(stored(name, FLOAT, &[], &value.to_le_bytes()));
        self
    }

    /// Adds a float32 initializer.
    pub(crate) fn numbers(mut self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
        self.parts.push(stored(name, FLOAT, dims, &data));
        self
    }

    /// Adds a float64 vector.
    #[cfg(feature = "ort")]
    pub(crate) fn doubles(mut self, name: &str, values: &[f64]) -> Self {
        let data: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
        let dims = [values.len() as u64];
        self.parts.push(stored(name, DOUBLE, &dims, &data));
        self
    }

    /// Adds a scalar of one byte.
    #[cfg(feature = "ort")]
    pub(crate) fn byte(mut self, name: &str, value: u8) -> Self {
        self.parts.push(stored(name, UINT8, &[], &[value]));
        self
    }

    /// Adds an initializer from raw bytes of an element type.
    pub(crate) fn bytes_of(mut self, name: &str, element: u64, dims: &[u64], data: &[u8]) -> Self {
        self.parts.push(stored(name, element, dims, data));
        self
    }

    /// Adds an int64 vector.
    pub(crate) fn integers(mut self, name: &str, values: &[i64]) -> Self {
        let data: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let dims = [values.len() as u64];
        self.parts.push(stored(name, INT64, &dims, &data));
        self
    }

    /// Adds a node with one output; the node and its output share the name.
    pub(crate) fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[Attribute],
    ) -> Self {
        let attributes: Vec<Vec<u8>> = attributes.iter().map(attribute).collect();
        let attributes: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
        self.parts.push(node(operator, inputs, output, &attributes));
        self
    }

    /// Returns the bytes of the graph, for a branch.
    #[cfg(feature = "ort")]
    pub(crate) fn body(self) -> Vec<u8> {
        [part(2, &[b"branch"]), self.parts.concat()].concat()
    }

    /// Returns the bytes of the ONNX file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        model(&[&self.parts.concat()])
    }
}

fn shape(sizes: &[Size]) -> Vec<u8> {
    let dims = sizes.iter().map(|size| match size {
        Size::Of(size) => part(1, &[&int(1, *size)]),
        Size::Open(name) => part(1, &[&part(2, &[name.as_bytes()])]),
    });
    let dims: Vec<Vec<u8>> = dims.collect();
    part(2, &[&dims.concat()])
}

fn value(field: u64, name: &str, element: u64, shape: &[u8]) -> Vec<u8> {
    let tensor = [int(1, element), shape.to_vec()].concat();
    let kind = part(2, &[&part(1, &[&tensor])]);
    part(field, &[&part(1, &[name.as_bytes()]), &kind])
}

fn stored(name: &str, element: u64, dims: &[u64], data: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| int(1, *dim)).collect();
    let name = part(8, &[name.as_bytes()]);
    part(5, &[&dims, &int(2, element), &name, &part(9, &[data])])
}

fn attribute(attribute: &Attribute) -> Vec<u8> {
    let (name, value) = match attribute {
        Attribute::Int(name, value) => (name, [int(3, *value), int(20, 2)].concat()),
        Attribute::Ints(name, values) => {
            let values: Vec<u8> = values.iter().flat_map(|value| int(8, *value)).collect();
            (name, [values, int(20, 7)].concat())
        }
        #[cfg(feature = "ort")]
        Attribute::Text(name, text) => (name, [part(4, &[text.as_bytes()]), int(20, 3)].concat()),
        #[cfg(feature = "ort")]
        Attribute::Body(name, body) => (name, [part(6, &[body]), int(20, 5)].concat()),
    };
    part(5, &[&part(1, &[name.as_bytes()]), &value])
}

/// Returns the field of a graph for a node with one output; the node and its output share the name.
pub(crate) fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[&[u8]]) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = inputs
        .iter()
        .map(|name| part(1, &[name.as_bytes()]))
        .collect();
    parts.push(part(2, &[output.as_bytes()]));
    parts.push(part(3, &[output.as_bytes()]));
    parts.push(part(4, &[operator.as_bytes()]));
    parts.push(attributes.concat());
    part(1, &[&parts.concat()])
}
