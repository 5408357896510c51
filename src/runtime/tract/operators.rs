//! What tract cannot or must not run, found before it builds anything.
//!
//! Operators it has no code for are named all at once. Operators that it computes wrongly without an
//! error are refused under exactly the conditions under which it does; the conformance cases of the
//! `onnx` Python package found them.

use std::collections::{BTreeSet, HashSet};

use tract_onnx::model::OnnxOpRegister;
use tract_onnx::pb::attribute_proto::AttributeType;
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
    condition: fn(&NodeProto) -> bool,
    cause: &'static str,
}

const KNOWN_WRONG: &[KnownWrong] = &[
    KnownWrong {
        operator: "GRU",
        condition: is_reversed,
        cause: "tract runs a reversed GRU in the wrong order",
    },
    KnownWrong {
        operator: "LSTM",
        condition: is_reversed,
        cause: "tract runs a reversed LSTM in the wrong order",
    },
    KnownWrong {
        operator: "RNN",
        condition: is_reversed,
        cause: "tract runs a reversed RNN in the wrong order",
    },
];

fn is_reversed(node: &NodeProto) -> bool {
    text(node, "direction").is_some_and(|direction| direction == b"reverse")
}

/// Refuses a model that tract cannot run, or would run wrongly.
pub(super) fn check(model: &ModelProto, register: &OnnxOpRegister) -> Result<(), EngineError> {
    let Some(graph) = &model.graph else {
        return Err(load_error("it has no graph"));
    };
    check_outputs(graph)?;
    let mut found = Found::default();
    found.graph(graph, register, 0);
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
    fn graph(&mut self, graph: &GraphProto, register: &OnnxOpRegister, depth: usize) {
        if depth > MAX_DEPTH {
            self.too_deep = true;
            return;
        }
        for node in &graph.node {
            self.node(node, register);
            for attribute in &node.attribute {
                for inner in attribute.g.iter().chain(&attribute.graphs) {
                    self.graph(inner, register, depth + 1);
                }
            }
        }
    }

    fn node(&mut self, node: &NodeProto, register: &OnnxOpRegister) {
        let known = DOMAINS.contains(&node.domain.as_str());
        if !known || !register.0.contains_key(&node.op_type) {
            let domain = match node.domain.as_str() {
                "" | "ai.onnx" => String::new(),
                other => format!("{other}::"),
            };
            self.missing.insert(format!("{domain}{}", node.op_type));
        }
        for wrong in KNOWN_WRONG {
            if wrong.operator == node.op_type && (wrong.condition)(node) {
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
