//! Operators that the tract library computes wrongly without an error. The test cases of the ONNX
//! standard found them.
//!
//! Such models are rejected, because a wrong answer is worse than an error.

use tract_onnx::pb::NodeProto;

use super::graph::{Stored, attribute, integer, operator, text};

/// An operator that is computed wrongly under a condition.
pub(crate) struct KnownWrong {
    /// Operators, with their domain unless it is the default one.
    pub(crate) operators: &'static [&'static str],
    /// Returns `true` if this node is computed wrongly. The second argument holds the stored
    /// tensors.
    pub(crate) applies: fn(&NodeProto, &Stored<'_>) -> bool,
    /// The defect, as the end of a sentence.
    pub(crate) cause: &'static str,
}

/// All known defects.
pub(crate) static KNOWN_WRONG: &[KnownWrong] = &[
    KnownWrong {
        operators: &["SpaceToDepth"],
        applies: |node, _| text(node, "mode") == b"CRD",
        cause: "it ignores the mode `CRD`",
    },
    KnownWrong {
        operators: &["BatchNormalization"],
        applies: |node, _| integer(node, "training_mode", 0) != 0,
        cause: "it uses stored statistics instead of the batch's",
    },
    KnownWrong {
        operators: &["QLinearConv"],
        applies: |node, stored| {
            let shape = |at: usize| node.input.get(at).and_then(|name| stored.shape(name));
            [3, 5].iter().any(|at| shape(*at).is_none())
        },
        cause: "it rounds halfway coordinates upwards unless the weights are stored",
    },
    KnownWrong {
        operators: &["AveragePool", "LpPool"],
        applies: |node, _| {
            let is_spread = attribute(node, "dilations")
                .is_some_and(|found| found.ints.iter().any(|step| *step != 1));
            is_spread && text(node, "auto_pad").starts_with(b"SAME")
        },
        cause: "it computes padding without the dilation of windows",
    },
    KnownWrong {
        operators: &["AveragePool", "LpPool", "MaxPool"],
        applies: |node, _| {
            let ints = |name| attribute(node, name).map_or(&[][..], |found| &found.ints);
            let sizes = ints("kernel_shape").iter().cycle();
            ints("pads")
                .iter()
                .zip(sizes)
                .any(|(pad, size)| pad >= size)
        },
        cause: "some windows would contain only padding",
    },
    KnownWrong {
        operators: &["ConstantOfShape", "Expand", "Tile", "Reshape"],
        applies: has_large_sizes,
        cause: "it reads sizes as 32-bit numbers",
    },
    KnownWrong {
        operators: &["ConvTranspose"],
        applies: |node, _| {
            let mode = text(node, "auto_pad");
            let is_automatic = mode == b"VALID" || mode.starts_with(b"SAME");
            is_automatic && attribute(node, "output_shape").is_some()
        },
        cause: "it uses `auto_pad` although `output_shape` determines the padding",
    },
    KnownWrong {
        operators: &["ConvTranspose"],
        applies: has_gaps,
        cause: "the standard does not define where its output starts if `auto_pad` is SAME and the \
                window is smaller than the stride",
    },
    KnownWrong {
        operators: &["GridSample"],
        applies: |node, _| {
            let is_cubic = matches!(text(node, "mode"), b"bicubic" | b"cubic");
            is_cubic && text(node, "padding_mode") == b"border"
        },
        cause: "it pads wrongly with the border in bicubic interpolation",
    },
];

/// Returns the reason why `node` would be computed wrongly, if it would.
pub(crate) fn known_wrong(node: &NodeProto, stored: &Stored<'_>) -> Option<&'static str> {
    let name = operator(node);
    KNOWN_WRONG
        .iter()
        .find(|entry| entry.operators.contains(&name.as_str()) && (entry.applies)(node, stored))
        .map(|entry| entry.cause)
}

/// Returns `true` if a stored shape or repetition count exceeds 31 bits.
fn has_large_sizes(node: &NodeProto, stored: &Stored<'_>) -> bool {
    let place = usize::from(node.op_type != "ConstantOfShape");
    let sizes = node.input.get(place).and_then(|name| stored.integers(name));
    sizes.is_some_and(|sizes| sizes.iter().any(|size| i32::try_from(*size).is_err()))
}

/// Returns `true` if `auto_pad` of a transposed convolution requires negative padding.
fn has_gaps(node: &NodeProto, stored: &Stored<'_>) -> bool {
    if !text(node, "auto_pad").starts_with(b"SAME") {
        return false;
    }
    let ints = |name: &str| attribute(node, name).map(|found| found.ints.as_slice());
    let weights = node.input.get(1).and_then(|name| stored.shape(name));
    let weights = weights.and_then(|sizes| sizes.get(2..));
    let strides = ints("strides").unwrap_or_default();
    let of = |name: &str, axis: usize, usual: i64| {
        let found = ints(name).and_then(|values| values.get(axis));
        found.copied().unwrap_or(usual)
    };
    strides.iter().enumerate().any(|(axis, stride)| {
        let kernel = ints("kernel_shape").or(weights);
        let Some(kernel) = kernel.and_then(|sizes| sizes.get(axis)) else {
            // Another tensor determines the window: its size is unknown here, and the library
            // rejects it.
            return false;
        };
        let window = kernel
            .saturating_sub(1)
            .saturating_mul(of("dilations", axis, 1));
        let window = window.saturating_add(1);
        window.saturating_add(of("output_padding", axis, 0)) < *stride
    })
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::AttributeProto;

    use super::*;

    fn node(operator: &str, attribute: AttributeProto) -> NodeProto {
        NodeProto {
            op_type: operator.to_owned(),
            attribute: vec![attribute],
            ..NodeProto::default()
        }
    }

    #[test]
    fn padding_is_smaller_than_windows() {
        let is_refused = |operator: &str, pads: &[i64]| {
            let list = |name: &str, ints: &[i64]| AttributeProto {
                name: name.to_owned(),
                ints: ints.to_vec(),
                ..AttributeProto::default()
            };
            let mut node = node(operator, list("kernel_shape", &[2, 3]));
            node.attribute.push(list("pads", pads));
            known_wrong(&node, &Stored::default()).is_some()
        };
        for operator in ["AveragePool", "LpPool", "MaxPool"] {
            assert!(!is_refused(operator, &[1, 2, 1, 2]));
            assert!(is_refused(operator, &[2, 0, 0, 0]));
            assert!(is_refused(operator, &[0, 0, 0, 1 << 30]));
        }
        assert!(!is_refused("Conv", &[5, 5, 5, 5]));
    }
}
