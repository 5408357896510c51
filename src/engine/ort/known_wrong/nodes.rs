//! Nodes that are computed wrongly as they stand, with no look at what is around them.
//!
//! Each is listed with the providers that do and the condition that its attributes and inputs show. The
//! conformance cases of the `onnx` Python package found them.

use super::Found;
use crate::engine::Provider;
use crate::model::onnx::Node;

/// A node that is computed wrongly.
struct KnownWrong {
    operator: &'static str,
    /// Providers that do; the CPU's code also runs what other providers leave.
    providers: &'static [Provider],
    condition: fn(&Node) -> bool,
    cause: &'static str,
}

const CPU: &[Provider] = &[Provider::Cpu];
const QNN: &[Provider] = &[Provider::Qnn];

const KNOWN_WRONG: &[KnownWrong] = &[
    KnownWrong {
        operator: "Attention",
        providers: CPU,
        condition: |node| node.has_output(3) && node.int("is_causal") != 0,
        cause: "its output of scores holds the least finite float where causality makes them minus infinity",
    },
    KnownWrong {
        operator: "MaxUnpool",
        providers: CPU,
        condition: |node| node.has_input(2),
        cause: "with an output shape, indices are counted in another shape than ONNX says",
    },
    KnownWrong {
        operator: "AveragePool",
        providers: QNN,
        condition: overhangs,
        cause: "pooling with padding gives zeros, or crashes",
    },
    KnownWrong {
        operator: "LpPool",
        providers: QNN,
        condition: overhangs,
        cause: "pooling with padding gives zeros, or crashes",
    },
    KnownWrong {
        operator: "GridSample",
        providers: QNN,
        condition: |node| node.is("mode", "nearest"),
        cause: "coordinates half way are rounded to another neighbour than ONNX says",
    },
    KnownWrong {
        operator: "STFT",
        providers: QNN,
        condition: |_| true,
        cause: "the provider crashes when it looks at the node",
    },
];

/// Windows that reach beyond the input.
fn overhangs(node: &Node) -> bool {
    let pads = node.attribute("pads");
    let pads = pads.is_some_and(|pads| pads.ints.iter().any(|pad| *pad != 0));
    let auto = ["SAME_UPPER", "SAME_LOWER"];
    pads || node.int("ceil_mode") != 0 || auto.iter().any(|mode| node.is("auto_pad", mode))
}

/// Adds the node if the provider computes it wrongly.
pub(super) fn look(node: &Node, provider: Provider, found: &mut Found) {
    for known in KNOWN_WRONG {
        let same = known.operator == node.operator && known.providers.contains(&provider);
        if same && (known.condition)(node) {
            found.insert(known.operator.to_owned(), known.cause);
        }
    }
}
