//! Detects an ONNX model by its first bytes.
//!
//! Protobuf has no magic number. The detection claims only files that begin like those of common
//! writers: `ir_version`, then `producer_name` in printable text, `opset_import` or `graph`. Other
//! models need the extension `.onnx`.

/// Tag of `ir_version`; the value follows as one byte.
const IR_VERSION: u8 = 0x08;
const PRODUCER_NAME: u8 = 0x12;
const GRAPH: u8 = 0x3a;
const OPSET_IMPORT: u8 = 0x42;

/// Returns whether these first bytes (up to 64) almost certainly begin a `ModelProto`.
pub(super) fn matches(bytes: &[u8]) -> bool {
    let [IR_VERSION, 1..=31, rest @ ..] = bytes else {
        return false;
    };
    match rest {
        [PRODUCER_NAME, rest @ ..] => text(rest).is_some_and(begins_model_field),
        [OPSET_IMPORT, 2, 0x10, 1..=127, rest @ ..]
        | [OPSET_IMPORT, 4, 0x0a, 0, 0x10, 1..=127, rest @ ..] => begins_model_field(rest),
        [GRAPH, rest @ ..] => begins_graph(rest),
        _ => false,
    }
}

/// Returns whether a graph begins with a node that begins with the name of an input or output.
fn begins_graph(bytes: &[u8]) -> bool {
    let Some((graph, [0x0a, rest @ ..])) = varint(bytes) else {
        return false;
    };
    let Some((node, [0x0a | 0x12, rest @ ..])) = varint(rest) else {
        return false;
    };
    node < graph && text(rest).is_some_and(|rest| matches!(rest, [0x0a | 0x12 | 0x1a | 0x22, ..]))
}

/// Returns whether a field of `ModelProto` from `producer_name` to `opset_import` begins here; all
/// have one-byte tags.
fn begins_model_field(rest: &[u8]) -> bool {
    matches!(
        rest,
        [0x12 | 0x1a | 0x22 | 0x28 | 0x32 | GRAPH | OPSET_IMPORT, ..]
    )
}

/// Skips a short printable text with its length; returns the remaining bytes.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(length))?;
    let printable = !text.is_empty() && text.iter().all(|&byte| (b' '..=b'~').contains(&byte));
    printable.then_some(rest)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let size = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)? + 1;
    let value = bytes[..size]
        .iter()
        .rev()
        .fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, &bytes[size..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn claims_what_common_writers_write() {
        assert!(matches(b"\x08\x0a\x12\x07pytorch\x1a\x052.5.1:\x80\x01"));
        assert!(matches(b"\x08\x0a\x42\x04\x0a\x00\x10\x12\x3a\x80\x01"));
        assert!(matches(b"\x08\x0a\x42\x02\x10\x12\x3a\x80\x01"));
        assert!(matches(
            b"\x08\x0a\x3a\xf9\x03\x0a\x19\x0a\x01x\x12\x01y\"\x04Relu"
        ));
    }

    #[test]
    fn claims_nothing_else() {
        // A Core ML model begins with the same two tags; its second field is a message.
        assert!(!matches(b"\x08\x06\x12\x14\x0a\x07input_1\x1a\x09\x2a\x07"));
        assert!(!matches(b"\x08\x0a"));
        assert!(!matches(b"\x08\x0a\x12\x07pytorch"));
        assert!(!matches(b"{\"name\": 1}"));
        assert!(!matches(
            b"\x08\x0a\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        ));
        assert!(!matches(b""));
    }
}
