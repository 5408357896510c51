//! Iteration over a decoded ONNX model: every node and every tensor, in all subgraphs, and access
//! to stored tensors and attributes.

use std::collections::{HashMap, HashSet};

use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

/// Calls `visit` with every graph: the model's and all subgraphs of its nodes.
pub(crate) fn each_graph<'a>(model: &'a ModelProto, visit: &mut dyn FnMut(&'a GraphProto)) {
    fn walk<'a>(graph: &'a GraphProto, visit: &mut dyn FnMut(&'a GraphProto)) {
        visit(graph);
        for attribute in graph.node.iter().flat_map(|node| &node.attribute) {
            for inner in attribute.g.iter().chain(&attribute.graphs) {
                walk(inner, visit);
            }
        }
    }
    if let Some(graph) = &model.graph {
        walk(graph, visit);
    }
}

/// Calls `visit` with every node of every graph.
pub(crate) fn each_node<'a>(model: &'a ModelProto, visit: &mut dyn FnMut(&'a NodeProto)) {
    each_graph(model, &mut |graph| graph.node.iter().for_each(&mut *visit));
}

/// Calls `visit` with every graph, inner ones first.
pub(crate) fn each_graph_mut(model: &mut ModelProto, visit: &mut dyn FnMut(&mut GraphProto)) {
    fn walk(graph: &mut GraphProto, visit: &mut dyn FnMut(&mut GraphProto)) {
        for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
            for inner in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                walk(inner, visit);
            }
        }
        visit(graph);
    }
    if let Some(graph) = &mut model.graph {
        walk(graph, visit);
    }
}

/// Calls `visit` with every tensor: initializers and tensors of attributes.
pub(crate) fn each_tensor_mut(model: &mut ModelProto, visit: &mut dyn FnMut(&mut TensorProto)) {
    each_graph_mut(model, &mut |graph| {
        graph.initializer.iter_mut().for_each(&mut *visit);
        for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
            let AttributeProto { t, tensors, .. } = attribute;
            t.iter_mut().chain(tensors).for_each(&mut *visit);
        }
    });
}

/// Returns the version of the default operator set.
pub(crate) fn opset(model: &ModelProto) -> i64 {
    let default = |domain: &str| matches!(domain, "" | "ai.onnx");
    let imports = &model.opset_import;
    imports
        .iter()
        .find(|import| default(&import.domain))
        .map_or(0, |import| import.version)
}

/// Small tensors that a model stores, by name: initializers and constants.
#[derive(Default)]
pub(crate) struct Stored<'a>(HashMap<&'a str, &'a TensorProto>);

impl<'a> Stored<'a> {
    /// Collects the tensors of all graphs of `model`.
    pub(crate) fn of(model: &'a ModelProto) -> Self {
        let mut found = HashMap::new();
        each_graph(model, &mut |graph| {
            let stored = graph.initializer.iter();
            found.extend(stored.map(|tensor| (tensor.name.as_str(), tensor)));
            for node in graph.node.iter().filter(|node| node.op_type == "Constant") {
                let value = attribute(node, "value").and_then(|value| value.t.as_ref());
                found.extend(node.output.first().map(String::as_str).zip(value));
            }
        });
        Self(found)
    }

    /// Returns the names of the tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().copied()
    }

    /// Returns the sizes of a stored tensor.
    pub(crate) fn shape(&self, name: &str) -> Option<&'a [i64]> {
        Some(&self.0.get(name)?.dims)
    }

    /// Returns the values of a small stored tensor of integers.
    pub(crate) fn integers(&self, name: &str) -> Option<Vec<i64>> {
        integers(self.0.get(name)?)
    }
}

/// Maximum number of elements of a tensor that is a shape, a list of axes or of bounds.
const MAX_INTEGERS: i64 = 64;

/// Returns the elements of a small int64 or int32 tensor.
fn integers(tensor: &TensorProto) -> Option<Vec<i64>> {
    let elements = tensor
        .dims
        .iter()
        .try_fold(1_i64, |all, size| all.checked_mul(*size))?;
    if elements > MAX_INTEGERS || !tensor.external_data.is_empty() {
        return None;
    }
    let raw = &tensor.raw_data;
    Some(match tensor.data_type {
        7 if raw.is_empty() => tensor.int64_data.clone(),
        7 => raw
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| i64::from_le_bytes(*bytes))
            .collect(),
        6 if raw.is_empty() => tensor
            .int32_data
            .iter()
            .map(|value| i64::from(*value))
            .collect(),
        6 => {
            let (chunks, _) = raw.as_chunks::<4>();
            let values = chunks.iter().map(|bytes| i32::from_le_bytes(*bytes));
            values.map(i64::from).collect()
        }
        _ => return None,
    })
}

/// Names of stored tensors whose elements are all zero.
pub(crate) struct Zeros(HashSet<String>);

impl Zeros {
    /// Collects the tensors of all graphs of `model`.
    pub(crate) fn of(model: &ModelProto) -> Self {
        let is_zero = |tensor: &TensorProto| {
            let in_fields = tensor.int32_data.iter().all(|value| *value == 0);
            let in_bytes = tensor.raw_data.iter().all(|value| *value == 0);
            tensor.external_data.is_empty() && in_fields && in_bytes
        };
        let stored = Stored::of(model).0.into_iter();
        let zeros = stored.filter(|(_, tensor)| is_zero(tensor));
        Self(zeros.map(|(name, _)| name.to_owned()).collect())
    }

    /// Returns `true` if the tensor of this name is one of them.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Shapes of the tensors that a model stores, by name.
pub(crate) struct Shapes(HashMap<String, Vec<i64>>);

impl Shapes {
    /// Collects the tensors of all graphs of `model`.
    pub(crate) fn of(model: &ModelProto) -> Self {
        let found = Stored::of(model).0.into_iter();
        Self(
            found
                .map(|(name, tensor)| (name.to_owned(), tensor.dims.clone()))
                .collect(),
        )
    }

    /// Returns the shape of the tensor of this name.
    pub(crate) fn of_tensor(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

/// Returns the attribute of this name.
pub(crate) fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|found| found.name == name)
}

/// Returns an integer attribute, or `absent` if the node lacks it.
pub(crate) fn integer(node: &NodeProto, name: &str, absent: i64) -> i64 {
    attribute(node, name).map_or(absent, |found| found.i)
}

/// Returns a text attribute; empty if the node lacks it.
pub(crate) fn text<'a>(node: &'a NodeProto, name: &str) -> &'a [u8] {
    attribute(node, name).map_or(&[], |found| &found.s)
}

/// Returns `true` if the node has an input at this position.
pub(crate) fn has_input(node: &NodeProto, place: usize) -> bool {
    node.input.get(place).is_some_and(|name| !name.is_empty())
}

/// Returns `true` if the node's operator is of the default domain.
pub(crate) fn is_default(node: &NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx")
}

/// Creates a node of the default domain without a name, with one output.
pub(crate) fn step(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: operator.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

/// ONNX's codes of element types.
pub(crate) const FLOAT: i32 = 1;
pub(crate) const UINT8: i32 = 2;
pub(crate) const INT8: i32 = 3;
pub(crate) const UINT16: i32 = 4;
pub(crate) const INT16: i32 = 5;
pub(crate) const INT64: i32 = 7;
pub(crate) const FLOAT16: i32 = 10;
pub(crate) const BFLOAT16: i32 = 16;

/// Kinds of attributes, with ONNX's codes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttributeKind {
    Float = 1,
    Int = 2,
    Text = 3,
    Tensor = 4,
    Floats = 6,
    Ints = 7,
}

/// Creates an attribute without a value.
pub(crate) fn named(name: &str, kind: AttributeKind) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: kind as i32,
        ..AttributeProto::default()
    }
}

/// Creates a tensor attribute with the name `value`.
pub(crate) fn value(tensor: TensorProto) -> AttributeProto {
    AttributeProto {
        t: Some(tensor),
        ..named("value", AttributeKind::Tensor)
    }
}

/// Creates a float32 tensor of one element.
pub(crate) fn number(value: f32) -> TensorProto {
    TensorProto {
        data_type: FLOAT,
        float_data: vec![value],
        ..TensorProto::default()
    }
}

/// Creates a node that gives a tensor.
pub(crate) fn constant(output: &str, tensor: TensorProto) -> NodeProto {
    let mut node = step("Constant", &[], output);
    node.attribute.push(value(tensor));
    node
}

/// Creates nodes that give a number in the dtype of another tensor.
pub(crate) fn number_like(of: f32, like: &str, output: &str) -> [NodeProto; 2] {
    let stored = format!("{output}_f32");
    let cast = step("CastLike", &[&stored, like], output);
    [constant(&stored, number(of)), cast]
}

/// Keeps the first inputs of a node, at most `most`, without omitted ones at their end.
pub(crate) fn keep_inputs(node: &mut NodeProto, most: usize) {
    node.input.truncate(most);
    while node.input.last().is_some_and(String::is_empty) {
        node.input.pop();
    }
}

/// Returns the operator's full name, without the default domain.
pub(crate) fn operator(node: &NodeProto) -> String {
    if is_default(node) {
        return node.op_type.clone();
    }
    format!("{}::{}", node.domain, node.op_type)
}

/// Returns the name by which the library identifies a node.
pub(crate) fn node_name(node: &NodeProto) -> Option<&str> {
    let made = node.output.first().map(String::as_str);
    [Some(node.name.as_str()), made]
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
}
