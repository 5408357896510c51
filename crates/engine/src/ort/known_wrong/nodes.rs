//! Nodes that ONNX Runtime computes wrongly regardless of their neighbours.
//!
//! Each entry lists the affected providers and a condition on attributes and inputs. The
//! conformance cases of the `onnx` Python package found them.

use super::WrongOperators;
use crate::Provider;
use pkgtool_model::onnx::OnnxNode;

/// A node that is computed wrongly.
struct WrongNode {
    operator: &'static str,
    /// The affected providers. The CPU's code also runs the nodes that other providers leave to it.
    providers: &'static [Provider],
    condition: fn(&OnnxNode) -> bool,
    cause: &'static str,
}

const CPU: &[Provider] = &[Provider::Cpu];
const QNN: &[Provider] = &[Provider::Qnn];

const KNOWN_WRONG: &[WrongNode] = &[
    WrongNode {
        operator: "Attention",
        providers: CPU,
        condition: |node| node.has_output(3) && node.int("is_causal") != 0,
        cause: "its score output has the least finite float instead of minus infinity at causally masked positions",
    },
    WrongNode {
        operator: "MaxUnpool",
        providers: CPU,
        condition: |node| node.has_input(2),
        cause: "with an output shape, indices refer to another shape than ONNX specifies",
    },
    WrongNode {
        operator: "AveragePool",
        providers: QNN,
        condition: overhangs,
        cause: "pooling with padding returns zeros, or crashes",
    },
    WrongNode {
        operator: "LpPool",
        providers: QNN,
        condition: overhangs,
        cause: "pooling with padding returns zeros, or crashes",
    },
    WrongNode {
        operator: "GridSample",
        providers: QNN,
        condition: |node| node.is("mode", "nearest"),
        cause: "coordinates halfway between two elements are rounded to another one than ONNX specifies",
    },
    WrongNode {
        operator: "STFT",
        providers: QNN,
        condition: |_| true,
        cause: "the provider crashes when it reads the node",
    },
];

/// Returns `true` if windows extend beyond the input.
fn overhangs(node: &OnnxNode) -> bool {
    let pads = node.attribute("pads");
    let pads = pads.is_some_and(|pads| pads.ints.iter().any(|pad| *pad != 0));
    let auto = ["SAME_UPPER", "SAME_LOWER"];
    pads || node.int("ceil_mode") != 0 || auto.iter().any(|mode| node.is("auto_pad", mode))
}

/// Records the node if the provider computes it wrongly.
pub(super) fn check_node(node: &OnnxNode, provider: Provider, found: &mut WrongOperators) {
    for known in KNOWN_WRONG {
        let same = known.operator == node.operator && known.providers.contains(&provider);
        if same && (known.condition)(node) {
            found.insert(known.operator.to_owned(), known.cause);
        }
    }
}
