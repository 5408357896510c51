//! Phrases by which inference libraries report that they do not support a model.
//!
//! Some libraries have an error code for that. Others only write one of many messages, so all
//! engines share this list of phrases. Invariant: no phrase here blames the model or its inputs.
//! Another engine would repeat such an error, or answer for an invalid model.

/// The phrases, in lower case.
const UNSUPPORTED_PHRASES: [&str; 15] = [
    "not supported",
    "unsupported",
    "not implemented",
    "not_implemented",
    "unimplemented",
    "not yet implemented",
    "no implementation",
    "could not find an implementation",
    "does not support",
    "doesn't support",
    "do not support",
    "only support",
    "only implemented",
    "support is limited",
    "no kernel",
];

/// Returns `true` if a message says that the library does not support something.
pub(super) fn reports_unsupported(message: &str) -> bool {
    let message = message.to_lowercase();
    UNSUPPORTED_PHRASES
        .iter()
        .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_differs_from_invalid() {
        for message in [
            "IsScalarOr1ElementVector(W_Zero_Point) was false. Non per-tensor quantization is not \
             supported now.",
            "Batchwise recurrent operations (layout == 1) are not supported.",
            "'Cubic' mode only supports: 2-D inputs ('Bicubic')",
            "Only support GridSample Cubic mode in 4-D cases.",
            "Unsupported pooling size.",
            "bool data type is not supported with ScatterND opset 18 when reduction is 'max'.",
            "Bicubic interpolation only supports 2D spatial dimensions",
        ] {
            assert!(reports_unsupported(message), "{message}");
        }
        for message in [
            "indices element out of data bounds, idx=5 must be within the inclusive range [-2,1]",
            "Compute MatMul dimension mismatch",
            "Type 'tensor(float)' of input parameter (x) of operator (ConvInteger) in node () is \
             invalid.",
            "This is an invalid model. Error: the graph is not acyclic.",
            "The input tensor cannot be reshaped to the requested shape",
        ] {
            assert!(!reports_unsupported(message), "{message}");
        }
    }
}
