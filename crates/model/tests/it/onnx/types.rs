//! Types of values and of graphs in attributes: the reader infers and compares them as ONNX Runtime
//! does.

use super::inspect;
use pkgtool_testing::onnx::{int, model, part, typed, value};

/// Encodes a `ValueInfoProto` of a tensor with this element type.
fn of_type(field: u64, name: &str, element: u64) -> Vec<u8> {
    let tensor = part(1, &[&int(1, element)]);
    part(field, &[&part(1, &[name.as_bytes()]), &part(2, &[&tensor])])
}

/// Encodes a `NodeProto`.
fn node(operator: &str, inputs: &[&str], outputs: &[&str], rest: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    parts.extend(inputs.iter().map(|name| part(1, &[name.as_bytes()])));
    parts.extend(outputs.iter().map(|name| part(2, &[name.as_bytes()])));
    parts.push(part(4, &[operator.as_bytes()]));
    parts.extend_from_slice(rest);
    part(1, &[&parts.concat()])
}

/// Encodes an `AttributeProto` whose value is a number or a graph.
fn attribute(name: &str, kind: u64, content: &[u8]) -> Vec<u8> {
    part(5, &[&part(1, &[name.as_bytes()]), &int(20, kind), content])
}

fn refused(graph: &[&[u8]], expected: &str) {
    let error = inspect(&model(graph)).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn stated_types_agree_with_what_nodes_make() {
    let cast = node("Cast", &["x"], &["c"], &[attribute("to", 2, &int(3, 7))]);
    let relu = node("Relu", &["c"], &["y"], &[]);
    let ends = [typed(11, "x"), value(12, "y")].concat();
    inspect(&model(&[&cast, &relu, &ends])).expect("int64");
    inspect(&model(&[&cast, &relu, &ends, &of_type(13, "c", 7)])).expect("as stated");
    refused(
        &[&cast, &relu, &ends, &of_type(13, "c", 1)],
        "`c` is declared as tensor(float), but is tensor(int64)",
    );
    refused(
        &[&cast, &relu, &ends, &of_type(13, "c", 40)],
        "invalid element type 40",
    );
    // `value_info` entries for inputs are ignored.
    inspect(&model(&[&cast, &relu, &ends, &of_type(13, "x", 40)])).expect("an input");
    refused(
        &[&relu, &value(11, "c"), &value(12, "y")],
        "the input `c` has no type",
    );
    refused(
        &[&relu, &typed(11, "c"), &of_type(12, "y", 7)],
        "`y` is declared as tensor(int64), but is tensor(float)",
    );
}

#[test]
fn sequences_have_the_types_of_their_elements() {
    let make = node("SequenceConstruct", &["x", "x"], &["s"], &[]);
    let take = node("SequenceAt", &["s", "i"], &["t"], &[]);
    let not = node("Not", &["t"], &["y"], &[]);
    let ends = [typed(11, "x"), of_type(11, "i", 7), value(12, "y")].concat();
    refused(
        &[&make, &take, &not, &ends],
        "`Not` does not accept tensor(float) as input 0",
    );
}

#[test]
fn constants_have_a_value() {
    let ends = value(12, "y");
    let float = attribute("value_float", 1, &[0x15, 0, 0, 0, 0]);
    let not = node("Not", &["c"], &["y"], &[]);
    refused(
        &[&node("Constant", &[], &["c"], &[]), &not, &ends],
        "`Constant` has no value",
    );
    refused(
        &[&node("Constant", &[], &["c"], &[float]), &not, &ends],
        "`Not` does not accept tensor(float) as input 0",
    );
}

/// A loop node whose body has these inputs and outputs.
fn looping(inputs: &[Vec<u8>], outputs: &[Vec<u8>]) -> Vec<u8> {
    let identity = |from, to| node("Identity", &[from], &[to], &[]);
    let nodes = [identity("going", "goes"), identity("carried", "more")].concat();
    let body = part(6, &[&nodes, &inputs.concat(), &outputs.concat()]);
    let body = attribute("body", 5, &body);
    let run = node("Loop", &["count", "", "x"], &["y"], &[body]);
    let ends = [of_type(11, "count", 7), typed(11, "x"), value(12, "y")].concat();
    [run, ends].concat()
}

#[test]
fn graphs_take_and_return_what_their_node_does() {
    let inputs = [
        of_type(11, "step", 7),
        of_type(11, "going", 9),
        typed(11, "carried"),
    ];
    let outputs = [of_type(12, "goes", 9), typed(12, "more")];
    inspect(&model(&[&looping(&inputs, &outputs)])).expect("a loop");
    refused(
        &[&looping(&inputs, &outputs[..1])],
        "the graph `body` of `Loop` has 1 outputs: expected 2",
    );
    let more = [&inputs[..], &[typed(11, "further")]].concat();
    refused(
        &[&looping(&more, &outputs)],
        "the graph `body` of `Loop` has 4 inputs: expected 3",
    );
    let mut other = inputs.clone();
    other[0] = typed(11, "step");
    refused(
        &[&looping(&other, &outputs)],
        "input 0 of the graph `body` is tensor(float): its node needs tensor(int64)",
    );
    let mut other = inputs;
    other[2] = of_type(11, "carried", 11);
    refused(
        &[&looping(&other, &[outputs[0].clone(), value(12, "more")])],
        "input 2 of the graph `body` is tensor(double): its node needs tensor(float)",
    );
}
