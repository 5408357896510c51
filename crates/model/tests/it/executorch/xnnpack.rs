//! XNNPACK payloads: all kinds of nodes, and the strictness of the two readers.
//!
//! The reader that infers dimensions tolerates graphs that the executor rejects.

use pkgtool_model::FormatError;
use pkgtool_model::executorch::body::ByteRange;
use pkgtool_model::executorch::xnnpack::XnnpackGraph;

use super::delegates::{caller_of, forward, graph, node, sigmoid};
use super::read;
use pkgtool_testing::program::{OffsetTarget, int, ints};

/// The members of `XNodeUnion` in their order, by the names that profiles show.
const KINDS: [&str; 47] = [
    "XNNAdd",
    "XNNFullyConnected",
    "XNNSoftmax",
    "XNNSigmoid",
    "XNNStaticTranspose",
    "XNNClamp",
    "XNNConv2d",
    "XNNDiv",
    "XNNStaticResizeBilinear2D",
    "XNNStaticConstantPad",
    "XNNAvgPooling2d",
    "XNNMinimum",
    "XNNConv2d",
    "XNNMaxPooling2d",
    "XNNMultiply",
    "XNNSubtract",
    "XNNFloor",
    "XNNConvert",
    "XNNGlobalAvgPooling2d",
    "XNNStaticReshape",
    "XNNArgMaxPooling2d",
    "XNNSquareRoot",
    "XNNCeiling",
    "XNNHardswish",
    "XNNLeakyReLU",
    "XNNMaximum",
    "XNNNegate",
    "XNNSquare",
    "XNNELU",
    "XNNAbs",
    "XNNPReLU",
    "XNNConcatenate",
    "XNNConcatenate",
    "XNNConcatenate",
    "XNNStaticSlice",
    "XNNScaledDotProductAttention",
    "XNNBatchMatrixMultiply",
    "XNNConcatenate",
    "XNNConv2d",
    "XNNReciprocalSquareRoot",
    "XNNLog",
    "XNNGelu",
    "XNNTanh",
    "XNNExp",
    "XNNSin",
    "XNNCopy",
    "XNNCos",
];

/// The signature of a method whose delegate fixes one dimension.
const TOLD: &str = "(float32[2 or -1, 8 or -1]) → (float32[-1 (up to 2), 8])";
/// The signature of the same method without evidence from the delegate.
const NOT_TOLD: &str = "(float32[2 or -1, 8 or -1]) → (float32[2 or -1, 8 or -1])";

/// Reads a complete graph with the strict reader of the executor.
fn whole(payload: &[u8]) -> Result<XnnpackGraph, FormatError> {
    let size = payload.len() as u64;
    XnnpackGraph::read(&payload.to_vec(), ByteRange { offset: 0, size })
}

/// A graph that reshapes to eight columns and applies a sigmoid, with another node in between.
fn with(node: OffsetTarget) -> Vec<u8> {
    graph(&[2, 8], 3, vec![reshape(&[0, 8]), node, sigmoid(1, 2)])
}

fn reshape(sizes: &[i32]) -> OffsetTarget {
    node(20, vec![(1, ints(sizes)), (2, int(0)), (3, int(1))])
}

/// Returns the signature of a program that calls a payload of this backend.
fn told(backend: &str, payload: &[u8]) -> String {
    let sizes: [&[i32]; 2] = [&[2, 8], &[2, 8]];
    forward(&read(&caller_of(backend, payload.to_vec(), sizes, 1)))
}

#[test]
fn every_member_of_the_union_is_read() {
    let nodes = (1..=47).map(|kind| node(kind, Vec::new())).collect();
    let graph = whole(&graph(&[1, 8], 1, nodes)).expect("all kinds are known");
    let names: Vec<&str> = graph.nodes.iter().map(|node| node.name).collect();
    assert_eq!(names, KINDS);
}

#[test]
fn a_kind_that_is_not_known_tells_nothing_and_is_not_executed() {
    for kind in [0, 48, 255] {
        let payload = with(node(kind, Vec::new()));
        assert_eq!(told("XnnpackBackend", &payload), TOLD);
        let error = whole(&payload).expect_err("the operation is unknown");
        let text = error.to_string();
        let rest = format!("expected a union type of 1 to 47, found {kind}");
        assert!(text.starts_with("XNNGraph.xnodes[1].union_type"), "{text}");
        assert!(text.ends_with(&rest), "{text}");
    }
}

#[test]
fn a_node_that_is_broken_tells_nothing_and_is_not_executed() {
    // More dimensions than XNNPACK supports, and a value that does not exist.
    for broken in [reshape(&[1; 7]), sigmoid(0, 9)] {
        let payload = with(broken);
        assert_eq!(told("XnnpackBackend", &payload), TOLD);
        whole(&payload).expect_err("the graph is not executable");
    }
}

#[test]
fn a_payload_is_read_as_what_its_delegate_is_called() {
    let payload = with(sigmoid(1, 2));
    assert_eq!(told("XnnpackBackend", &payload), TOLD);
    for other in ["VulkanBackend", "MLXBackend", "QnnBackend", "Xnnpack", ""] {
        assert_eq!(told(other, &payload), NOT_TOLD, "{other}");
    }
}
