//! What tract cannot or must not run, found before it builds anything.
//!
//! Operators it has no code for are named all at once. Operators that it computes wrongly without an
//! error are refused under exactly the conditions under which it does; the conformance cases of the
//! `onnx` Python package found them.

use std::collections::{BTreeSet, HashSet};

use tract_onnx::model::OnnxOpRegister;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::type_proto::Value;
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto};

use super::{load_error, unsupported};
use crate::runtime::EngineError;

/// Domains whose operators tract knows by name alone.
const DOMAINS: [&str; 4] = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft"];

/// Deepest nesting of graphs in attributes.
const MAX_DEPTH: usize = 32;

/// An operator that tract computes wrongly under a condition.
struct KnownWrong {
    operator: &'static str,
    condition: fn(&NodeProto, Facts) -> bool,
    cause: &'static str,
}

/// What a condition may depend on beside the node.
#[derive(Clone, Copy)]
struct Facts {
    /// Version of the default operator set.
    opset: i64,
    /// Whether the model's inputs, outputs or weights have float16 among them.
    has_float16: bool,
}

const KNOWN_WRONG: &[KnownWrong] = &[
    KnownWrong {
        operator: "GRU",
        condition: |node, _| is_reversed(node),
        cause: "tract runs a reversed GRU in the wrong order",
    },
    KnownWrong {
        operator: "LSTM",
        condition: |node, _| is_reversed(node),
        cause: "tract runs a reversed LSTM in the wrong order",
    },
    KnownWrong {
        operator: "RNN",
        condition: |node, _| is_reversed(node),
        cause: "tract runs a reversed RNN in the wrong order",
    },
    KnownWrong {
        operator: "Attention",
        condition: |node, _| {
            let windows = ["left_window_size", "right_window_size"];
            windows.iter().any(|name| attribute(node, name).is_some())
        },
        cause: "tract does not know attention windows and would look at everything",
    },
    KnownWrong {
        operator: "Attention",
        condition: |node, _| {
            let past = node.input.get(4).is_some_and(|past| !past.is_empty());
            past && attribute(node, "is_causal").is_some_and(|causal| causal.i != 0)
        },
        cause: "tract's causal mask does not count the past keys",
    },
    KnownWrong {
        operator: "BitShift",
        condition: |_, facts| facts.opset >= BIT_SHIFT_OF_SIGNED,
        cause: "tract does not define shifts of signed integers by negative and large amounts",
    },
    KnownWrong {
        operator: "Celu",
        condition: |node, facts| facts.has_float16 && !is_one(node, "alpha"),
        cause: "tract ignores Celu's alpha in float16",
    },
    KnownWrong {
        operator: "SpaceToDepth",
        condition: |node, _| text(node, "mode").is_some_and(|mode| mode == b"CRD"),
        cause: "tract does not know SpaceToDepth's CRD mode",
    },
    KnownWrong {
        operator: "Swish",
        condition: |node, _| !is_one(node, "alpha"),
        cause: "tract ignores Swish's alpha",
    },
];

/// The operator set from which on `BitShift` takes signed integers.
const BIT_SHIFT_OF_SIGNED: i64 = 28;

fn is_reversed(node: &NodeProto) -> bool {
    text(node, "direction").is_some_and(|direction| direction == b"reverse")
}

/// Whether a float attribute is 1, also by its default.
fn is_one(node: &NodeProto, name: &str) -> bool {
    attribute(node, name).is_none_or(|attribute| (attribute.f - 1.0).abs() < f32::EPSILON)
}

impl Facts {
    fn of(model: &ModelProto, graph: &GraphProto) -> Self {
        let opsets = model.opset_import.iter();
        let opset = opsets
            .filter(|opset| ["", "ai.onnx"].contains(&opset.domain.as_str()))
            .map(|opset| opset.version)
            .max();
        let values = graph
            .input
            .iter()
            .chain(&graph.output)
            .chain(&graph.value_info);
        let types = values.filter_map(|value| match value.r#type.as_ref()?.value.as_ref()? {
            Value::TensorType(tensor) => Some(tensor.elem_type),
        });
        let weights = graph.initializer.iter().map(|tensor| tensor.data_type);
        Self {
            opset: opset.unwrap_or(0),
            has_float16: types
                .chain(weights)
                .any(|one| one == DataType::Float16 as i32),
        }
    }
}

/// Refuses a model that tract cannot run, or would run wrongly.
pub(super) fn check(model: &ModelProto, register: &OnnxOpRegister) -> Result<(), EngineError> {
    let Some(graph) = &model.graph else {
        return Err(load_error("it has no graph"));
    };
    check_outputs(graph)?;
    let mut found = Found::default();
    let facts = Facts::of(model, graph);
    found.graph(graph, register, facts, 0);
    if found.too_deep {
        return Err(load_error("its graphs are nested too deeply"));
    }
    if !found.missing.is_empty() {
        let names = found.missing.into_iter().collect();
        return Err(unsupported(names, "tract has no code for it"));
    }
    if let Some((operator, cause)) = found.wrong.into_iter().next() {
        return Err(unsupported(vec![operator.to_owned()], cause));
    }
    Ok(())
}

/// tract panics on an output that nothing gives.
fn check_outputs(graph: &GraphProto) -> Result<(), EngineError> {
    let nodes = graph.node.iter().flat_map(|node| &node.output);
    let initializers = graph.initializer.iter().map(|tensor| &tensor.name);
    let inputs = graph.input.iter().map(|input| &input.name);
    let given: HashSet<&String> = nodes.chain(initializers).chain(inputs).collect();
    match graph
        .output
        .iter()
        .find(|output| !given.contains(&output.name))
    {
        Some(output) => Err(load_error(&format!(
            "no node gives its output `{}`",
            output.name
        ))),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Found {
    missing: BTreeSet<String>,
    wrong: BTreeSet<(&'static str, &'static str)>,
    too_deep: bool,
}

impl Found {
    fn graph(&mut self, graph: &GraphProto, register: &OnnxOpRegister, facts: Facts, depth: usize) {
        if depth > MAX_DEPTH {
            self.too_deep = true;
            return;
        }
        for node in &graph.node {
            self.node(node, register, facts);
            for attribute in &node.attribute {
                for inner in attribute.g.iter().chain(&attribute.graphs) {
                    self.graph(inner, register, facts, depth + 1);
                }
            }
        }
    }

    fn node(&mut self, node: &NodeProto, register: &OnnxOpRegister, facts: Facts) {
        let known = DOMAINS.contains(&node.domain.as_str());
        if !known || !register.0.contains_key(&node.op_type) {
            let domain = match node.domain.as_str() {
                "" | "ai.onnx" => String::new(),
                other => format!("{other}::"),
            };
            self.missing.insert(format!("{domain}{}", node.op_type));
        }
        for wrong in KNOWN_WRONG {
            if wrong.operator == node.op_type && (wrong.condition)(node, facts) {
                self.wrong.insert((wrong.operator, wrong.cause));
            }
        }
    }
}

fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute
        .iter()
        .find(|attribute| attribute.name == name)
}

/// A string attribute's bytes.
fn text<'n>(node: &'n NodeProto, name: &str) -> Option<&'n [u8]> {
    let attribute = attribute(node, name)?;
    let is_text = attribute.r#type == AttributeType::String as i32;
    is_text.then_some(&attribute.s[..])
}
