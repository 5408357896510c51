//! Inlines the functions of an ONNX model into their callers, because the tract library does not
//! expand them.
//!
//! Some calls stay and are rejected by name later: those of functions for another operator set, and
//! those with default values of attributes, which the library's reader drops.
//!
//! Invariant: the number of resulting nodes is bounded, even for functions that call themselves.

use std::collections::HashMap;

use tract_onnx::pb::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};

use super::graph::{attribute, each_graph_mut, opset};

/// Maximum depth of nested function calls.
const MAX_DEPTH: usize = 32;
/// Maximum number of nodes from all inlined calls.
const MAX_NODES: usize = 1 << 18;

/// Functions by domain and name.
type FunctionMap<'a> = HashMap<(&'a str, &'a str), &'a FunctionProto>;

/// Inlines all function calls, or none if the result would be too large.
pub(crate) fn expand(model: &mut ModelProto) {
    if model.functions.is_empty() {
        return;
    }
    let version = opset(model);
    let functions = std::mem::take(&mut model.functions);
    let usable = functions
        .iter()
        .filter(|function| uses_opset(function, version));
    let known = usable.map(|function| ((function.domain(), function.name()), function));
    let known: FunctionMap<'_> = known.collect();
    let nodes = model.graph.as_ref().map(|graph| graph.node.clone());
    let nodes = nodes.unwrap_or_default();
    if size(&nodes, &known, 0, &mut HashMap::new()).is_some() {
        let mut calls = 0;
        for _ in 0..MAX_DEPTH {
            let before = calls;
            // Subgraphs of inlined nodes are processed in the next round.
            each_graph_mut(model, &mut |graph| inline_calls(graph, &known, &mut calls));
            if calls == before {
                break;
            }
        }
    }
    drop(known);
    model.functions = functions;
}

/// Returns the number of nodes after inlining; `None` if it is too large or infinite. The size of
/// each function is computed once.
fn size<'a>(
    nodes: &'a [NodeProto],
    known: &FunctionMap<'a>,
    depth: usize,
    sizes: &mut HashMap<(&'a str, &'a str), usize>,
) -> Option<usize> {
    let mut total: usize = 0;
    for node in nodes {
        let name = (node.domain.as_str(), node.op_type.as_str());
        total += match (sizes.get(&name), known.get(&name)) {
            (Some(size), _) => *size,
            (None, Some(_)) if depth == MAX_DEPTH => return None,
            (None, Some(function)) => {
                let found = size(&function.node, known, depth + 1, sizes)?;
                sizes.insert(name, found);
                found
            }
            (None, None) => 1,
        };
        for found in &node.attribute {
            for graph in found.g.iter().chain(&found.graphs) {
                total += size(&graph.node, known, depth, sizes)?;
            }
        }
        if total > MAX_NODES {
            return None;
        }
    }
    Some(total)
}

/// Returns `true` if a function uses the model's operator set.
fn uses_opset(function: &FunctionProto, version: i64) -> bool {
    let mut imports = function.opset_import.iter();
    let default = imports.find(|import| matches!(import.domain.as_str(), "" | "ai.onnx"));
    default.is_none_or(|import| import.version == version)
}

fn inline_calls(graph: &mut GraphProto, known: &FunctionMap<'_>, calls: &mut usize) {
    let function_of = |node: &NodeProto| {
        let function = known
            .get(&(node.domain.as_str(), node.op_type.as_str()))
            .copied();
        function.filter(|function| has_all_attributes(&function.node, function, node))
    };
    if !graph.node.iter().any(|node| function_of(node).is_some()) {
        return;
    }
    for node in std::mem::take(&mut graph.node) {
        match function_of(&node) {
            Some(function) => {
                *calls += 1;
                let call = Call::new(function, &node, *calls);
                graph
                    .node
                    .extend(function.node.iter().map(|inner| call.node(inner)));
            }
            None => graph.node.push(node),
        }
    }
}

/// Returns `true` if each referenced attribute is given by the call, or declared without a default.
fn has_all_attributes(nodes: &[NodeProto], function: &FunctionProto, call: &NodeProto) -> bool {
    nodes.iter().flat_map(|node| &node.attribute).all(|found| {
        let name = &found.ref_attr_name;
        let is_known =
            name.is_empty() || attribute(call, name).is_some() || function.attribute.contains(name);
        let inner = found.g.iter().chain(&found.graphs);
        is_known
            && inner
                .into_iter()
                .all(|graph| has_all_attributes(&graph.node, function, call))
    })
}

/// One call of a function.
struct Call<'a> {
    /// The names of the function's inputs and outputs in the calling graph.
    names: HashMap<&'a str, &'a str>,
    /// The prefix of all other names.
    prefix: String,
    node: &'a NodeProto,
}

impl<'a> Call<'a> {
    fn new(function: &'a FunctionProto, node: &'a NodeProto, number: usize) -> Self {
        let absent = std::iter::repeat("");
        let given = node.input.iter().map(String::as_str).chain(absent);
        let inputs = function.input.iter().map(String::as_str).zip(given);
        let outputs = function.output.iter().zip(&node.output);
        let outputs = outputs.filter(|(_, outer)| !outer.is_empty());
        let outputs = outputs.map(|(inner, outer)| (inner.as_str(), outer.as_str()));
        Self {
            names: inputs.chain(outputs).collect(),
            prefix: format!("{}.{number}", function.name()),
            node,
        }
    }

    fn name(&self, inner: &str) -> String {
        match self.names.get(inner) {
            Some(outer) => (*outer).to_owned(),
            None if inner.is_empty() => String::new(),
            None => format!("{}.{inner}", self.prefix),
        }
    }

    fn node(&self, inner: &NodeProto) -> NodeProto {
        let names = |names: &[String]| names.iter().map(|name| self.name(name)).collect();
        let attributes = inner
            .attribute
            .iter()
            .filter_map(|found| self.attribute(found));
        NodeProto {
            input: names(&inner.input),
            output: names(&inner.output),
            name: if inner.name.is_empty() {
                String::new()
            } else {
                format!("{}.{}", self.prefix, inner.name)
            },
            attribute: attributes.collect(),
            ..inner.clone()
        }
    }

    fn attribute(&self, inner: &AttributeProto) -> Option<AttributeProto> {
        if !inner.ref_attr_name.is_empty() {
            let given = attribute(self.node, &inner.ref_attr_name)?;
            return Some(AttributeProto {
                name: inner.name.clone(),
                ..given.clone()
            });
        }
        Some(AttributeProto {
            g: inner.g.as_ref().map(|graph| self.graph(graph)),
            graphs: inner.graphs.iter().map(|graph| self.graph(graph)).collect(),
            ..inner.clone()
        })
    }

    fn graph(&self, inner: &GraphProto) -> GraphProto {
        let mut graph = inner.clone();
        graph.node = inner.node.iter().map(|node| self.node(node)).collect();
        let values = graph.input.iter_mut().chain(&mut graph.output);
        for value in values.chain(&mut graph.value_info) {
            value.name = self.name(&value.name);
        }
        for tensor in &mut graph.initializer {
            tensor.name = self.name(&tensor.name);
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::OperatorSetIdProto;

    use super::*;

    fn node(domain: &str, operator: &str, inputs: &[&str], output: &str) -> NodeProto {
        NodeProto {
            domain: domain.to_owned(),
            op_type: operator.to_owned(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.to_owned()],
            ..NodeProto::default()
        }
    }

    fn referring(name: &str) -> AttributeProto {
        AttributeProto {
            name: "alpha".to_owned(),
            ref_attr_name: name.to_owned(),
            ..AttributeProto::default()
        }
    }

    /// A model in which `twice` calls `once` and passes its attribute on.
    fn model(declared: &[&str]) -> ModelProto {
        let mut leaky = node("", "LeakyRelu", &["a"], "b");
        leaky.attribute = vec![referring("slope")];
        let mut inner = node("own", "once", &["x"], "m");
        inner.attribute = vec![AttributeProto {
            name: "slope".to_owned(),
            f: 0.5,
            ..AttributeProto::default()
        }];
        let mut last = inner.clone();
        (last.input, last.output) = (vec!["m".to_owned()], vec!["y".to_owned()]);
        if declared.is_empty() {
            last.attribute.clear();
        }
        let function = |name: &str, nodes: Vec<NodeProto>, ends: [&str; 2]| FunctionProto {
            name: Some(name.to_owned()),
            domain: Some("own".to_owned()),
            input: vec![ends[0].to_owned()],
            output: vec![ends[1].to_owned()],
            attribute: declared.iter().map(|name| (*name).to_owned()).collect(),
            node: nodes,
            ..FunctionProto::default()
        };
        ModelProto {
            opset_import: vec![OperatorSetIdProto {
                domain: String::new(),
                version: 17,
            }],
            functions: vec![
                function("twice", vec![inner, last], ["x", "y"]),
                function("once", vec![leaky], ["a", "b"]),
            ],
            graph: Some(GraphProto {
                node: vec![node("own", "twice", &["in"], "out")],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        }
    }

    #[test]
    fn calls_within_calls_are_written_out() {
        let mut model = model(&["slope"]);
        expand(&mut model);
        let nodes = model.graph.expect("it is still there").node;
        let operators: Vec<&str> = nodes.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(operators, ["LeakyRelu", "LeakyRelu"]);
        assert_eq!(
            (nodes[0].input[0].as_str(), nodes[1].output[0].as_str()),
            ("in", "out")
        );
        assert_eq!(nodes[0].output, nodes[1].input);
        assert!((nodes[0].attribute[0].f - 0.5).abs() < f32::EPSILON);
    }

    #[test]
    fn what_would_mean_something_else_stays_a_call() {
        let mut defaults = model(&[]);
        expand(&mut defaults);
        let nodes = defaults.graph.expect("it is still there").node;
        let operators: Vec<&str> = nodes.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(operators, ["LeakyRelu", "once"]);

        let mut other = model(&["slope"]);
        other.functions[0].opset_import = vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }];
        expand(&mut other);
        assert_eq!(
            other.graph.expect("it is still there").node[0].op_type,
            "twice"
        );
    }

    #[test]
    fn functions_that_call_themselves_come_to_an_end() {
        let mut model = model(&["slope"]);
        let call = |output: &str| node("own", "twice", &["x"], output);
        model.functions[0].node = vec![call("m"), call("y")];
        expand(&mut model);
        let nodes = model.graph.expect("it is still there").node;
        assert_eq!(nodes[0].op_type, "twice");
    }
}
