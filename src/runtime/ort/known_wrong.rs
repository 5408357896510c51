//! Nodes that ONNX Runtime, or one of its providers, computes wrongly without an error.
//!
//! They are refused on the provider for which they are listed, under the conditions that the header
//! shows; then another candidate runs the model. The conformance cases of the `onnx` Python package
//! found them. What depends on values alone cannot be seen here and is in
//! `tests/conformance/known.json`.

use std::collections::BTreeMap;
use std::path::Path;

use super::NAME;
use crate::model::onnx::{Node, each_node};
use crate::runtime::{EngineError, Provider};
use crate::source::{FileSource, Pages};

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

/// Refuses a model with a node that the provider is known to compute wrongly.
pub(super) fn check(model: &Path, provider: Provider) -> Result<(), EngineError> {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    let Ok(source) = FileSource::open(model) else {
        // Loading will say why.
        return Ok(());
    };
    let walked = each_node(&Pages::new(&source), &mut |node| {
        for known in KNOWN_WRONG {
            let same = known.operator == node.operator && known.providers.contains(&provider);
            if same && (known.condition)(node) {
                found.insert(known.operator, known.cause);
            }
        }
    });
    if let Err(error) = walked {
        return Err(EngineError::Load {
            engine: NAME.to_owned(),
            reason: error.to_string(),
        });
    }
    let Some((_, cause)) = found.first_key_value() else {
        return Ok(());
    };
    Err(EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators: found
            .keys()
            .map(|operator| (*operator).to_owned())
            .collect(),
        reason: format!("on the {provider} provider {cause}"),
    })
}
