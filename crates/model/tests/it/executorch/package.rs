//! Builder of Core ML packages that no exporter produces: protobuf messages inside the payload's
//! own file system.

/// The value of a protobuf field.
pub(super) enum Value {
    /// A varint.
    Number(u64),
    /// Bytes: a message or a string.
    Bytes(Vec<u8>),
}

pub(super) fn number(field: u64, value: u64) -> (u64, Value) {
    (field, Value::Number(value))
}

pub(super) fn text(field: u64, value: &str) -> (u64, Value) {
    (field, Value::Bytes(value.as_bytes().to_vec()))
}

pub(super) fn inside(field: u64, value: Vec<u8>) -> (u64, Value) {
    (field, Value::Bytes(value))
}

pub(super) fn message(fields: Vec<(u64, Value)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, value) in fields {
        match value {
            Value::Number(value) => {
                varint(&mut out, field << 3);
                varint(&mut out, value);
            }
            Value::Bytes(bytes) => {
                varint(&mut out, field << 3 | 2);
                varint(&mut out, bytes.len() as u64);
                out.extend(bytes);
            }
        }
    }
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

fn entry(key: &str, value: Vec<u8>) -> Vec<u8> {
    message(vec![text(1, key), inside(2, value)])
}

/// The type of a float32 tensor. `None` is an unknown size.
pub(super) fn ty(dims: &[Option<u64>]) -> Vec<u8> {
    let mut fields = vec![number(1, 11), number(2, dims.len() as u64)];
    fields.extend(dims.iter().map(|dim| {
        let dim = match dim {
            Some(size) => inside(1, message(vec![number(1, *size)])),
            None => inside(2, Vec::new()),
        };
        inside(3, message(vec![dim]))
    }));
    message(vec![inside(1, message(fields))])
}

pub(super) fn named(name: &str, ty: Vec<u8>) -> Vec<u8> {
    message(vec![text(1, name), inside(2, ty)])
}

/// An operation with named arguments and one result.
pub(super) fn operation(kind: &str, args: &[(&str, &str)], result: Vec<u8>) -> Vec<u8> {
    let mut fields = vec![text(1, kind), inside(3, result)];
    fields.extend(args.iter().map(|(key, name)| {
        let binding = message(vec![text(1, name)]);
        inside(2, entry(key, message(vec![inside(1, binding)])))
    }));
    message(fields)
}

/// A constant whose elements are stored inline in the program.
pub(super) fn immediate(name: &str, dims: &[Option<u64>], elements: Vec<u8>) -> Vec<u8> {
    let floats = message(vec![inside(1, message(vec![inside(1, elements)]))]);
    let value = message(vec![
        inside(2, ty(dims)),
        inside(3, message(vec![inside(1, floats)])),
    ]);
    message(vec![
        text(1, "const"),
        inside(3, named(name, ty(dims))),
        inside(5, entry("val", value)),
    ])
}

/// An array type with size ranges: minimum and maximum of each dimension.
pub(super) fn ranges(sizes: &[(u64, u64)]) -> Vec<u8> {
    let ranges = sizes.iter().map(|(least, most)| {
        let range = message(vec![number(1, *least), number(2, *most)]);
        inside(1, range)
    });
    message(vec![inside(31, message(ranges.collect()))])
}

/// An array type with enumerated shapes.
pub(super) fn shapes(shapes: &[&[u64]]) -> Vec<u8> {
    let shapes = shapes.iter().map(|shape| {
        let sizes = shape.iter().map(|size| number(1, *size));
        inside(1, message(sizes.collect()))
    });
    message(vec![inside(21, message(shapes.collect()))])
}

/// A model with a function `main` from `x` to `y`. `array` is the description of `x`, `x` its type
/// in the function.
pub(super) fn model(array: Option<Vec<u8>>, x: Vec<u8>, operations: Vec<Vec<u8>>) -> Vec<u8> {
    let mut block = vec![text(2, "y")];
    block.extend(operations.into_iter().map(|operation| inside(3, operation)));
    let function = message(vec![
        inside(1, named("x", x)),
        text(2, "CoreML7"),
        inside(3, entry("CoreML7", message(block))),
    ]);
    let feature = array.map(|array| {
        let kind = message(vec![inside(5, array)]);
        inside(1, message(vec![text(1, "x"), inside(3, kind)]))
    });
    let program = message(vec![number(1, 1), inside(2, entry("main", function))]);
    message(vec![
        number(1, 8),
        inside(2, message(feature.into_iter().collect())),
        inside(502, program),
    ])
}

/// The payload that contains a model.
pub(super) fn payload(model: &[u8]) -> Vec<u8> {
    let metadata = br#"{"inputNames":["x"],"outputNames":["y"],"identifier":"i"}"#;
    let (said, size) = (metadata.len(), model.len());
    let listing = format!(
        r#"{{"nodes":[
        {{"name":"metadata.json","kind":0,"dataRegion":{{"offset":0,"size":{said}}},"children":{{}}}},
        {{"name":"model.mlmodel","kind":0,"dataRegion":{{"offset":{said},"size":{size}}},"children":{{}}}},
        {{"name":"com.apple.CoreML","kind":1,"children":{{"model.mlmodel":1}}}},
        {{"name":"Data","kind":1,"children":{{"com.apple.CoreML":2}}}},
        {{"name":"model.mlpackage","kind":1,"children":{{"Data":3}}}},
        {{"name":"root","kind":1,"children":{{"metadata.json":0,"model.mlpackage":4}}}}]}}"#
    );
    let mut payload = metadata.to_vec();
    payload.extend(model);
    payload.extend(listing.bytes().rev());
    payload
}
