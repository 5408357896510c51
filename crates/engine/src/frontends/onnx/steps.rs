//! Writes one node as several.

use tract_onnx::pb::{AttributeProto, NodeProto, TensorProto};

use super::graph::{AttributeKind, FLOAT, INT64, Shapes, constant, named, number_like, step};

/// The model around a node.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// Shapes of stored tensors.
    pub(crate) shapes: &'a Shapes,
    /// Version of the default operator set.
    pub(crate) opset: i64,
}

/// Nodes that replace one; the names of their tensors begin with that of its output.
pub(crate) struct NodeSteps {
    nodes: Vec<NodeProto>,
    prefix: String,
    opset: i64,
}

impl NodeSteps {
    /// Creates nodes for a node with this output, in a model of this version of the default
    /// operator set.
    pub(crate) fn new(output: &str, opset: i64) -> Self {
        Self {
            nodes: Vec::new(),
            prefix: output.to_owned(),
            opset,
        }
    }

    /// Returns a new name.
    fn name(&self) -> String {
        format!("{}.step.{}", self.prefix, self.nodes.len())
    }

    /// Adds an operator of the default domain and returns its output.
    pub(crate) fn add(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.add_with(operator, inputs, [])
    }

    /// Adds an operator with attributes and returns its output.
    pub(crate) fn add_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> String {
        let output = self.name();
        let mut node = step(operator, inputs, &output);
        node.attribute.extend(attributes);
        self.nodes.push(node);
        output
    }

    /// Adds a node as it is.
    pub(crate) fn push(&mut self, node: NodeProto) {
        self.nodes.push(node);
    }

    /// Adds a node with a new name for its only output, and returns that.
    pub(crate) fn push_renamed(&mut self, mut node: NodeProto) -> String {
        let output = self.name();
        node.output = vec![output.clone()];
        self.nodes.push(node);
        output
    }

    /// Quantises numbers between their extremes and returns bytes, scale and zero point.
    pub(crate) fn quantised(&mut self, numbers: &str) -> [String; 3] {
        let name = self.name();
        let outputs = ["bytes", "scale", "zero"].map(|part| format!("{name}.{part}"));
        let mut node = step("DynamicQuantizeLinear", &[numbers], "");
        node.output = outputs.to_vec();
        self.nodes.push(node);
        outputs
    }

    /// Multiplies matrices of bytes, given with their zero points, and the sums by the scales of
    /// both.
    pub(crate) fn scaled_product(&mut self, tensors: &[&str], scales: [&str; 2]) -> String {
        let sums = self.add("MatMulInteger", tensors);
        let sums = self.cast(&sums, FLOAT);
        let scale = self.add("Mul", &scales);
        self.add("Mul", &[&sums, &scale])
    }

    /// Permutes the axes of a tensor.
    pub(crate) fn transpose(&mut self, input: &str, axes: &[i64]) -> String {
        self.add_with("Transpose", &[input], [ints("perm", axes)])
    }

    /// Adds a list of integers and returns its name.
    pub(crate) fn integers(&mut self, integers: &[i64]) -> String {
        let output = self.name();
        let dims = vec![i64::try_from(integers.len()).unwrap_or(0)];
        self.nodes
            .push(constant(&output, integer_tensor(dims, integers)));
        output
    }

    /// Adds an integer without dimensions and returns its name.
    pub(crate) fn integer(&mut self, integer: i64) -> String {
        let output = self.name();
        self.nodes
            .push(constant(&output, integer_tensor(vec![], &[integer])));
        output
    }

    /// Adds a number in the dtype of another tensor and returns its name.
    pub(crate) fn number(&mut self, number: f32, like: &str) -> String {
        let output = self.name();
        self.nodes.extend(number_like(number, like, &output));
        output
    }

    /// Converts a tensor to an element type by its code.
    pub(crate) fn cast(&mut self, input: &str, to: i32) -> String {
        self.add_with("Cast", &[input], [int("to", to.into())])
    }

    /// Inserts axes of size 1.
    pub(crate) fn unsqueeze(&mut self, input: &str, axes: &[i64]) -> String {
        self.with_axes("Unsqueeze", input, axes, 13, [])
    }

    /// Removes axes of size 1.
    pub(crate) fn squeeze(&mut self, input: &str, axes: &[i64]) -> String {
        self.with_axes("Squeeze", input, axes, 13, [])
    }

    /// Sums over axes, or over all without any.
    pub(crate) fn sum(&mut self, input: &str, axes: &[i64], keeps: bool) -> String {
        self.with_axes(
            "ReduceSum",
            input,
            axes,
            13,
            [int("keepdims", keeps.into())],
        )
    }

    /// Averages over axes, or over all without any.
    pub(crate) fn mean(&mut self, input: &str, axes: &[i64], keeps: bool) -> String {
        self.with_axes(
            "ReduceMean",
            input,
            axes,
            18,
            [int("keepdims", keeps.into())],
        )
    }

    /// Adds an operator whose axes are an input since version `since`, and an attribute before.
    fn with_axes(
        &mut self,
        operator: &str,
        input: &str,
        axes: &[i64],
        since: i64,
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> String {
        let mut attributes: Vec<AttributeProto> = attributes.into_iter().collect();
        if axes.is_empty() {
            return self.add_with(operator, &[input], attributes);
        }
        if self.opset >= since {
            let axes = self.integers(axes);
            return self.add_with(operator, &[input, &axes], attributes);
        }
        attributes.push(ints("axes", axes));
        self.add_with(operator, &[input], attributes)
    }

    /// Splits a tensor into parts of these sizes along an axis.
    pub(crate) fn split(&mut self, input: &str, axis: i64, sizes: &[i64]) -> Vec<String> {
        let name = self.name();
        let outputs: Vec<String> = (0..sizes.len()).map(|at| format!("{name}.{at}")).collect();
        let mut node = step("Split", &[input], "");
        node.output.clone_from(&outputs);
        node.attribute.push(int("axis", axis));
        if self.opset >= 13 {
            let sizes = self.integers(sizes);
            node.input.push(sizes);
        } else {
            node.attribute.push(ints("split", sizes));
        }
        self.nodes.push(node);
        outputs
    }

    /// Returns the slice at a position of an axis, without the axis.
    pub(crate) fn at(&mut self, input: &str, axis: i64, position: i64) -> String {
        let position = self.integer(position);
        self.add_with("Gather", &[input, &position], [int("axis", axis)])
    }

    /// Renames the output of a step.
    pub(crate) fn rename(&mut self, output: &str, to: &str) {
        let outputs = self.nodes.iter_mut().flat_map(|node| &mut node.output);
        outputs
            .filter(|it| *it == output)
            .for_each(|it| to.clone_into(it));
    }

    /// Gives the last step the name of the replaced node's output.
    pub(crate) fn finish(mut self, output: &str) -> Vec<NodeProto> {
        let last = self
            .nodes
            .last_mut()
            .and_then(|node| node.output.first_mut());
        if let Some(last) = last {
            output.clone_into(last);
        }
        self.nodes
    }

    /// Returns the steps as they are.
    pub(crate) fn into_nodes(self) -> Vec<NodeProto> {
        self.nodes
    }
}

fn integer_tensor(dims: Vec<i64>, integers: &[i64]) -> TensorProto {
    TensorProto {
        dims,
        data_type: INT64,
        int64_data: integers.to_vec(),
        ..TensorProto::default()
    }
}

/// Creates an integer attribute.
pub(crate) fn int(name: &str, integer: i64) -> AttributeProto {
    AttributeProto {
        i: integer,
        ..named(name, AttributeKind::Int)
    }
}

/// Creates an attribute of a list of integers.
pub(crate) fn ints(name: &str, integers: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: integers.to_vec(),
        ..named(name, AttributeKind::Ints)
    }
}

/// Creates a number attribute.
pub(crate) fn float(name: &str, number: f32) -> AttributeProto {
    AttributeProto {
        f: number,
        ..named(name, AttributeKind::Float)
    }
}

/// Creates a text attribute.
pub(crate) fn text(name: &str, text: &str) -> AttributeProto {
    AttributeProto {
        s: text.as_bytes().to_vec(),
        ..named(name, AttributeKind::Text)
    }
}
