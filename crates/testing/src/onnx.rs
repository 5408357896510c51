//! Writes protobuf bytes by hand, for messages that no ONNX library produces.

/// Encodes a varint.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// Encodes a varint field.
pub fn int(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// Encodes a length-delimited field (a string or a message) from parts.
pub fn part(field: u64, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [head(field, content.len() as u64), content].concat()
}

/// Encodes only the tag and length of a length-delimited field.
pub fn head(field: u64, length: u64) -> Vec<u8> {
    [varint(field << 3 | 2), varint(length)].concat()
}

/// Encodes an input or output without a type.
pub fn value(field: u64, name: &str) -> Vec<u8> {
    part(field, &[&part(1, &[name.as_bytes()])])
}

/// Encodes an input or output that is a tensor.
pub fn typed(field: u64, name: &str) -> Vec<u8> {
    let tensor = part(1, &[&int(1, 1)]);
    part(field, &[&part(1, &[name.as_bytes()]), &part(2, &[&tensor])])
}

/// Encodes a model with one graph.
pub fn model(graph: &[&[u8]]) -> Vec<u8> {
    model_of_opset(18, graph)
}

/// Encodes a model with one graph and this version of the default operator set.
pub fn model_of_opset(version: u64, graph: &[&[u8]]) -> Vec<u8> {
    [int(1, 10), part(7, graph), part(8, &[&int(2, version)])].concat()
}

/// Encodes a tensor with external data and these entries.
pub fn external(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut tensor = int(14, 1);
    for (key, value) in entries {
        tensor.extend(part(
            13,
            &[&part(1, &[key.as_bytes()]), &part(2, &[value.as_bytes()])],
        ));
    }
    part(5, &[&tensor])
}
