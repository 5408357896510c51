//! Nodes that ONNX Runtime, or one of its providers, computes wrongly without an error.
//!
//! They are refused on the provider for which they are listed, under the conditions that the header
//! shows; then another candidate runs the model. The conformance cases of the `onnx` Python package
//! found them. What depends on values alone cannot be seen here and is in
//! `tests/conformance/known.json`.

use std::collections::BTreeMap;
use std::path::Path;

use super::NAME;
use crate::engine::{EngineError, Provider};
use crate::model::onnx::{self, Node, each_node, each_stored};
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

/// Of a resize that aligns corners by scales: the name of the scales.
fn aligned_by(node: &Node) -> Option<&str> {
    let aligns = node.is("coordinate_transformation_mode", "align_corners");
    let is_one = node.operator == "Resize" && aligns && !node.has_input(3);
    is_one
        .then(|| node.inputs.get(2).map(String::as_str))
        .flatten()
}

/// Whether the model aligns corners by scales that are not stored as whole numbers: coordinates are
/// scaled by the output's whole size, ONNX says the product of size and scale.
fn aligns_wrongly(pages: &Pages<'_>) -> Result<bool, onnx::Error> {
    let mut scales: BTreeMap<String, bool> = BTreeMap::new();
    each_node(pages, &mut |node| {
        if let Some(name) = aligned_by(node) {
            scales.insert(name.to_owned(), false);
        }
    })?;
    if scales.is_empty() {
        return Ok(false);
    }
    let is_whole =
        |values: &[f32]| !values.is_empty() && values.iter().all(|scale| scale.fract() == 0.0);
    let mut known = |name: &str, values: &[f32]| {
        if let Some(known) = scales.get_mut(name) {
            *known = is_whole(values);
        }
    };
    each_stored(pages, &mut |name, stored| {
        known(&name, &stored.floats.unwrap_or_default());
    })?;
    each_node(pages, &mut |node| {
        let value = node
            .attribute("value")
            .filter(|_| node.operator == "Constant");
        if let (Some(value), Some(name)) = (value, node.outputs.first()) {
            let stored = value.tensor.as_ref();
            let floats = stored.and_then(|stored| stored.floats.as_deref());
            known(name, floats.unwrap_or_default());
        }
    })?;
    Ok(scales.values().any(|whole| !whole))
}

/// Refuses a model with a node that the provider is known to compute wrongly.
pub(super) fn check(model: &Path, provider: Provider) -> Result<(), EngineError> {
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    let Ok(source) = FileSource::open(model) else {
        // Loading will say why.
        return Ok(());
    };
    let pages = Pages::new(&source);
    let mut walked = each_node(&pages, &mut |node| {
        for known in KNOWN_WRONG {
            let same = known.operator == node.operator && known.providers.contains(&provider);
            if same && (known.condition)(node) {
                found.insert(known.operator, known.cause);
            }
        }
    });
    // Every provider here has the CPU's code beside it or in it.
    if walked.is_ok() && provider != Provider::Qnn {
        match aligns_wrongly(&pages) {
            Ok(true) => {
                let cause = "corners are aligned wrongly by scales that are not whole numbers";
                found.insert("Resize", cause);
            }
            Ok(false) => {}
            Err(error) => walked = Err(error),
        }
    }
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
