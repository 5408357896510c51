//! ONNX models of one node, small enough to be written here.

use crate::model::onnx::build::{int, model, part};

/// `y = Identity(x)`; without a shape the file does not say the rank.
#[cfg(feature = "ort")]
pub(crate) fn identity(dtype: &str, shape: Option<&[u64]>) -> Vec<u8> {
    unary("Identity", dtype, shape)
}

/// `y = operator(x)`; without a shape the file does not say the rank.
pub(crate) fn unary(operator: &str, dtype: &str, shape: Option<&[u64]>) -> Vec<u8> {
    model(&[
        &node(operator, &["x"]),
        &value(11, "x", dtype, shape),
        &value(12, "y", dtype, shape),
    ])
}

/// `y = operator(a, b)` on vectors.
#[cfg(feature = "ort")]
pub(crate) fn binary(operator: &str, dtype: &str) -> Vec<u8> {
    model(&[
        &node(operator, &["a", "b"]),
        &value(11, "a", dtype, None),
        &value(11, "b", dtype, None),
        &value(12, "y", dtype, None),
    ])
}

/// `y = [1.5]`, without inputs.
#[cfg(feature = "ort")]
pub(crate) fn constant() -> Vec<u8> {
    let tensor = [
        int(1, 1),
        int(2, element("float32")),
        part(4, &[&1.5_f32.to_le_bytes()]),
    ];
    let attribute = part(
        5,
        &[
            &part(1, &[b"value"]),
            &part(5, &[&tensor.concat()]),
            &int(20, 4),
        ],
    );
    let node = part(
        1,
        &[&part(2, &[b"y"]), &part(4, &[b"Constant"]), &attribute],
    );
    model(&[&node, &value(12, "y", "float32", Some(&[1]))])
}

fn node(operator: &str, inputs: &[&str]) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = inputs
        .iter()
        .map(|name| part(1, &[name.as_bytes()]))
        .collect();
    parts.push(part(2, &[b"y"]));
    parts.push(part(4, &[operator.as_bytes()]));
    part(1, &[&parts.concat()])
}

fn value(field: u64, name: &str, dtype: &str, shape: Option<&[u64]>) -> Vec<u8> {
    let mut tensor = int(1, element(dtype));
    if let Some(shape) = shape {
        let sizes: Vec<Vec<u8>> = shape.iter().map(|it| part(1, &[&int(1, *it)])).collect();
        tensor.extend(part(2, &[&sizes.concat()]));
    }
    let kind = part(2, &[&part(1, &[&tensor])]);
    part(field, &[&part(1, &[name.as_bytes()]), &kind])
}

/// The number of an element type in ONNX.
fn element(dtype: &str) -> u64 {
    match dtype {
        "float32" => 1,
        "uint8" => 2,
        "int8" => 3,
        "uint16" => 4,
        "int16" => 5,
        "int32" => 6,
        "int64" => 7,
        "bool" => 9,
        "float16" => 10,
        "float64" => 11,
        "uint32" => 12,
        "uint64" => 13,
        "bfloat16" => 16,
        other => panic!("no dtype: {other}"),
    }
}
