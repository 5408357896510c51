//! Protobuf bytes by hand: what no ONNX library would write.

/// A varint.
pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// A field with a number as its value.
pub(crate) fn int(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field with a length: text or a message, given in parts.
pub(crate) fn part(field: u64, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [head(field, content.len() as u64), content].concat()
}

/// The tag and length of such a field alone.
pub(crate) fn head(field: u64, length: u64) -> Vec<u8> {
    [varint(field << 3 | 2), varint(length)].concat()
}

/// A value without a type: an input or output.
pub(crate) fn value(field: u64, name: &str) -> Vec<u8> {
    part(field, &[&part(1, &[name.as_bytes()])])
}

/// A value that is a tensor: an input.
pub(crate) fn typed(field: u64, name: &str) -> Vec<u8> {
    let tensor = part(1, &[&int(1, 1)]);
    part(field, &[&part(1, &[name.as_bytes()]), &part(2, &[&tensor])])
}

/// A model of one graph.
pub(crate) fn model(graph: &[&[u8]]) -> Vec<u8> {
    model_of_opset(18, graph)
}

/// A model of one graph that imports this version of ONNX's operators.
pub(crate) fn model_of_opset(version: u64, graph: &[&[u8]]) -> Vec<u8> {
    [int(1, 10), part(7, graph), part(8, &[&int(2, version)])].concat()
}

/// An external tensor with these entries.
pub(crate) fn external(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut tensor = int(14, 1);
    for (key, value) in entries {
        tensor.extend(part(
            13,
            &[&part(1, &[key.as_bytes()]), &part(2, &[value.as_bytes()])],
        ));
    }
    part(5, &[&tensor])
}
