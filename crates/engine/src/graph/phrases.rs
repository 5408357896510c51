//! Translates error messages of the tract library into the terms of a model's user: dtypes, inputs,
//! attributes.
//!
//! Invariant: only messages of the library change. Unlisted messages stay as they are.

/// Phrases of the library and their translations. `{}` matches any text; `{0}` inserts the first
/// match.
const PHRASES: &[(&str, &str)] = &[
    (
        "Tensor datum type error: tensor is {}, accessed as {}",
        "the dtype {0} is not supported here: expected {1}",
    ),
    (
        "{} does not support {} (eval in a)",
        "the dtype {1} is not supported",
    ),
    (
        "{} does not support {} (out of place)",
        "the dtype {1} is not supported",
    ),
    (
        "Unsupported datum type in softmax: input type {}, output type {}",
        "the dtype {0} is not supported",
    ),
    ("Unknown DatumType {}", "the dtype {0} is not supported"),
    (
        "Element wise eval in-place not defined",
        "the dtype of its input is not supported",
    ),
    (
        "unknown ONNX TensorProto.DataType ({}): {}",
        "{0} is not a valid dtype code",
    ),
    (
        "No super type for {} and {}",
        "expected inputs of one dtype, found {0} and {1}",
    ),
    (
        "Wrong input number. Rules expect at least {}, node has {}.",
        "expected at least {0} inputs, found {1}",
    ),
    (
        "Wrong input number. Rules expect {}, node has {}.",
        "expected {0} inputs, found {1}",
    ),
    (
        "Wrong output number. Rules expect {}, node has {}.",
        "expected {0} outputs, found {1}",
    ),
    (
        "Wrong number of inputs. Expected {} or more, got {}",
        "expected at least {0} inputs, found {1}",
    ),
    (
        "Wrong number of inputs: expected {} got {}",
        "expected {0} inputs, found {1}",
    ),
    (
        "{}: optional input #{} (bias / mask / past KV) is unsupported",
        "input {1} (a bias, a mask, or past keys and values) is not supported: leave it out",
    ),
    (
        "MatMulNBits: only bits=4 and bits=2 are supported (got {})",
        "weights of {0} bits are not supported: expected 2, 4 or 8",
    ),
    (
        "{}: blocked quantization is not supported",
        "quantisation in blocks (the attribute `block_size`) is not supported",
    ),
    ("expected attribute '{}'", "the attribute `{0}` is missing"),
    (
        "Node {} ({}): expected attribute '{}'",
        "the attribute `{2}` is missing",
    ),
    (
        "Can not broadcast {} against {}",
        "the sizes {0} and {1} do not fit: expected equal ones, or 1",
    ),
    (
        "ShapeError/IncompatibleShape: incompatible shapes",
        "the shapes of its inputs do not fit together",
    ),
    (
        "Output mismatch after rewiring expansion for output{}",
        "the shapes of its inputs do not fit together",
    ),
    (
        "Illegal combination of values for rank and axis: {} and {}",
        "the axis {1} does not exist: expected one of a tensor of rank {0}",
    ),
    (
        "Inconsistent matmul: a: {} b: {}, a_trans{}",
        "matrices of the shapes [{0}] and [{1}] cannot be multiplied",
    ),
    (
        "Reshape volume mismatch: input {} (vol={}) vs shape {} (vol={})",
        "a tensor of shape {0} has {1} elements: expected {3} for the shape {2}",
    ),
    (
        "Op expects tensor of rank {}, input is actually of rank {}",
        "expected a tensor of rank {0}, found rank {1}",
    ),
    (
        "Attempt to squeeze an axis which dimension is not one{}",
        "an axis to remove has a size other than 1",
    ),
    ("mode: {}", "the mode `{0}` is not supported"),
    (
        "nearest_mode: {}",
        "the attribute `nearest_mode` = `{0}` is not supported",
    ),
    (
        "coordinate_transformation_mode: {}",
        "the attribute `coordinate_transformation_mode` = `{0}` is not supported",
    ),
    (
        "keep_aspect_ratio_policy: {}",
        "the attribute `keep_aspect_ratio_policy` = `{0}` is not supported",
    ),
    (
        "{} must be a const",
        "the input `{0}` is not supported unless the model stores it",
    ),
    (
        "shape input is variable{}",
        "a shape that the model computes is not supported here",
    ),
    (
        "Need axes to be a constant",
        "axes that the model computes are not supported",
    ),
    (
        "expected axes as a constant",
        "axes that the model computes are not supported",
    ),
    (
        "Expect constant integer depth",
        "a depth that the model computes is not supported",
    ),
    (
        "index out of bounds: the len is {} but the index is {}",
        "an index or axis is out of range: expected less than {0}, found {1}",
    ),
    ("index exceeds length", "an index or axis is out of range"),
    (
        "ndarray: index {} is out of bounds for array of shape {}",
        "an index is outside a tensor of shape {1}",
    ),
];

/// The library's names of dtypes, and the names in ONNX and this crate.
const DTYPES: [(&str, &str); 15] = [
    ("Bool", "bool"),
    ("U8", "uint8"),
    ("U16", "uint16"),
    ("U32", "uint32"),
    ("U64", "uint64"),
    ("I8", "int8"),
    ("I16", "int16"),
    ("I32", "int32"),
    ("I64", "int64"),
    ("F16", "float16"),
    ("F32", "float32"),
    ("F64", "float64"),
    ("BF16", "bfloat16"),
    ("TDim", "int64"),
    ("String", "string"),
];

/// Returns the translation of a message, if it is listed.
pub(crate) fn reworded(text: &str) -> Option<String> {
    PHRASES.iter().find_map(|(phrase, instead)| {
        let parts = captured(phrase, text)?;
        let mut told = (*instead).to_owned();
        for (place, part) in parts.iter().enumerate() {
            told = told.replace(&format!("{{{place}}}"), part);
        }
        Some(told)
    })
}

/// Replaces the library's names of dtypes by those of this crate.
pub(crate) fn with_dtypes(text: &str) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let length = rest[start..].find(|letter| !is_word(letter));
        let end = length.map_or(rest.len(), |length| start + length);
        let word = &rest[start..end];
        let dtype = DTYPES.iter().find(|(name, _)| *name == word);
        told.push_str(&rest[..start]);
        told.push_str(dtype.map_or(word, |(_, name)| name));
        rest = &rest[end..];
    }
    told + rest
}

/// Returns the parts of a text that match `{}` in a phrase.
fn captured<'t>(phrase: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut pieces = phrase.split("{}");
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let mut parts = Vec::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() {
            // The last piece must match the end of the text.
            rest.len().checked_sub(piece.len())?
        } else {
            rest.find(piece)?
        };
        if rest.get(end..end + piece.len()) != Some(piece) {
            return None;
        }
        parts.push(&rest[..end]);
        rest = &rest[end + piece.len()..];
    }
    rest.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::reports_unsupported;

    #[test]
    fn phrases_are_reworded_with_what_they_are_about() {
        for (text, told) in [
            (
                "Tensor datum type error: tensor is U16, accessed as I8",
                "the dtype U16 is not supported here: expected I8",
            ),
            (
                "MultiHeadAttention: optional input #3 (bias / mask / past KV) is unsupported",
                "input 3 (a bias, a mask, or past keys and values) is not supported: leave it out",
            ),
            (
                "MatMulNBits: only bits=4 and bits=2 are supported (got 3)",
                "weights of 3 bits are not supported: expected 2, 4 or 8",
            ),
            (
                "Node y (Concat): expected attribute 'axis'",
                "the attribute `axis` is missing",
            ),
        ] {
            assert_eq!(reworded(text).as_deref(), Some(told));
        }
        assert_eq!(reworded("something else"), None);
        assert_eq!(reworded("Can not broadcast 3"), None);
    }

    #[test]
    fn dtypes_are_named_as_everywhere() {
        let told = with_dtypes("U16 and I8 should be the same (F32, node U16x, µF32)");
        assert_eq!(
            told,
            "uint16 and int8 should be the same (float32, node U16x, µfloat32)"
        );
    }

    /// Another engine may run models that the library does not support.
    #[test]
    fn what_is_not_supported_still_says_so() {
        for (phrase, instead) in PHRASES {
            let was = reports_unsupported(phrase) && !phrase.starts_with("Node ");
            assert!(!was || reports_unsupported(instead), "{phrase}: {instead}");
        }
    }
}
