//! Builds small ONNX models, most of them with a single node.

pub(crate) use pkgtool_testing::onnx::model;
use pkgtool_testing::onnx::{int, part};

/// `y = Identity(x)`. Without a shape the file does not declare the rank.
#[cfg(feature = "ort")]
pub(crate) fn identity(dtype: &str, shape: Option<&[u64]>) -> Vec<u8> {
    unary("Identity", dtype, shape)
}

/// `y = operator(x)`. Without a shape the file does not declare the rank.
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

/// `y = x · w` on `float32[1, rows]`, with a weight of `float32[rows, columns]`.
pub(crate) fn product(rows: u64, columns: u64) -> Vec<u8> {
    let bytes = usize::try_from(rows * columns * 4).expect("it is small");
    // Each element is 0.0115.
    let weight = [
        int(1, rows),
        int(1, columns),
        int(2, element("float32")),
        part(8, &[b"w"]),
        part(9, &[&vec![0x3c; bytes]]),
    ];
    model(&[
        &node("MatMul", &["x", "w"]),
        &part(5, &[&weight.concat()]),
        &value(11, "x", "float32", Some(&[1, rows])),
        &value(12, "y", "float32", Some(&[1, columns])),
    ])
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

/// Returns the ONNX number of an element type.
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
        other => panic!("unknown dtype: {other}"),
    }
}

/// Encodes a node of a graph.
pub(crate) fn graph_node(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, u64)],
) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = inputs
        .iter()
        .map(|name| part(1, &[name.as_bytes()]))
        .collect();
    parts.push(part(2, &[output.as_bytes()]));
    parts.push(part(4, &[operator.as_bytes()]));
    for (name, number) in attributes {
        parts.push(part(
            5,
            &[&part(1, &[name.as_bytes()]), &int(3, *number), &int(20, 2)],
        ));
    }
    part(1, &[&parts.concat()])
}

/// Encodes an input or output whose dimensions are numbers or symbols.
pub(crate) fn graph_value(field: u64, name: &str, dtype: &str, dims: &[&str]) -> Vec<u8> {
    let mut tensor = int(1, element(dtype));
    let sizes: Vec<Vec<u8>> = dims
        .iter()
        .map(|size| match size.parse() {
            Ok(size) => part(1, &[&int(1, size)]),
            Err(_) => part(1, &[&part(2, &[size.as_bytes()])]),
        })
        .collect();
    tensor.extend(part(2, &[&sizes.concat()]));
    let kind = part(2, &[&part(1, &[&tensor])]);
    part(field, &[&part(1, &[name.as_bytes()]), &kind])
}

/// Encodes an initializer.
pub(crate) fn initializer(name: &str, dtype: &str, dims: &[u64], raw: &[u8]) -> Vec<u8> {
    let dims: Vec<Vec<u8>> = dims.iter().map(|size| int(1, *size)).collect();
    let content = [
        dims.concat(),
        int(2, element(dtype)),
        part(8, &[name.as_bytes()]),
        part(9, &[raw]),
    ];
    part(5, &[&content.concat()])
}

/// A decoder with one layer, in the form that exporters write.
///
/// `present` is the past followed by the new tokens; `logits` is the sum of all elements that the
/// mask selects.
pub(crate) fn decoder() -> Vec<u8> {
    let all = "past_sequence_length + sequence_length";
    model(&[
        &graph_node("Cast", &["input_ids"], "new", &[("to", 1)]),
        &graph_node("Cast", &["attention_mask"], "mask", &[("to", 1)]),
        &graph_node(
            "Concat",
            &["past_key_values.0.key", "new"],
            "present.0.key",
            &[("axis", 1)],
        ),
        &graph_node("Mul", &["present.0.key", "mask"], "seen", &[]),
        &graph_node("Transpose", &["mask"], "column", &[]),
        &graph_node("MatMul", &["seen", "column"], "logits", &[]),
        &graph_value(11, "input_ids", "int64", &["batch_size", "sequence_length"]),
        &graph_value(11, "attention_mask", "int64", &["batch_size", all]),
        &graph_value(
            11,
            "past_key_values.0.key",
            "float32",
            &["batch_size", "past_sequence_length"],
        ),
        &graph_value(12, "logits", "float32", &["batch_size", "batch_size"]),
        &graph_value(12, "present.0.key", "float32", &["batch_size", all]),
    ])
}

/// `y = x` on a vector of size `size`, with 8-bit integers in between.
pub(crate) fn quantized(size: &str) -> Vec<u8> {
    model(&[
        &graph_node("QuantizeLinear", &["x", "scale", "zero"], "q", &[]),
        &graph_node("DequantizeLinear", &["q", "scale", "zero"], "y", &[]),
        &initializer("scale", "float32", &[], &0.01_f32.to_le_bytes()),
        &initializer("zero", "int8", &[], &[0]),
        &graph_value(11, "x", "float32", &[size]),
        &graph_value(12, "y", "float32", &[size]),
    ])
}

/// `y = x + 0` on two numbers, with half precision in between.
pub(crate) fn half_inside() -> Vec<u8> {
    model(&[
        &graph_node("Cast", &["x"], "h", &[("to", 10)]),
        &graph_node("Add", &["h", "zeros"], "sum", &[]),
        &graph_node("Cast", &["sum"], "y", &[("to", 1)]),
        &initializer("zeros", "float16", &[2], &[0; 4]),
        &graph_value(11, "x", "float32", &["2"]),
        &graph_value(12, "y", "float32", &["2"]),
    ])
}

/// A model that loads but fails on every input: it reshapes `[n, 2]` to a vector of seven.
#[cfg(feature = "serve")]
pub(crate) fn failing() -> Vec<u8> {
    model(&[
        &graph_node("Reshape", &["x", "seven"], "y", &[]),
        &initializer("seven", "int64", &[1], &7_i64.to_le_bytes()),
        &graph_value(11, "x", "float32", &["n", "2"]),
        &graph_value(12, "y", "float32", &["7"]),
    ])
}

/// A decoder with a vocabulary of 384 that always predicts `token`. It fails beyond `positions`
/// tokens, a limit that its file does not declare.
#[cfg(feature = "serve")]
pub(crate) fn forgetful(token: usize, positions: usize) -> Vec<u8> {
    let row = (0..384).map(|it| if it == token { 9.0_f32 } else { 0.0 });
    let row: Vec<u8> = row.flat_map(f32::to_le_bytes).collect();
    let rows = u64::try_from(positions).expect("the number fits");
    let scalar = |name: &str, number: i64| initializer(name, "int64", &[], &number.to_le_bytes());
    model(&[
        &graph_node("Shape", &["input_ids"], "shape", &[]),
        &graph_node("Gather", &["shape", "one"], "count", &[]),
        &graph_node("Range", &["zero", "count", "one"], "range", &[]),
        // ONNX Runtime turns a gather by a plain range into a slice, which never fails on its
        // bounds; `Abs` prevents that.
        &graph_node("Abs", &["range"], "places", &[]),
        &graph_node("Gather", &["rows", "places"], "said", &[]),
        &graph_node("Unsqueeze", &["said", "axis"], "logits", &[]),
        &scalar("zero", 0),
        &scalar("one", 1),
        &initializer("axis", "int64", &[1], &0_i64.to_le_bytes()),
        &initializer("rows", "float32", &[rows, 384], &row.repeat(positions)),
        &graph_value(11, "input_ids", "int64", &["b", "n"]),
        &graph_value(12, "logits", "float32", &["b", "n", "384"]),
    ])
}

/// An image model whose input height and width must be multiples of 32.
#[cfg(feature = "serve")]
pub(crate) fn of_blocks() -> Vec<u8> {
    model(&[
        &graph_node("SpaceToDepth", &["x"], "b", &[("blocksize", 32)]),
        &graph_node("DepthToSpace", &["b"], "y", &[("blocksize", 32)]),
        &graph_value(11, "x", "float32", &["1", "3", "h", "w"]),
        &graph_value(12, "y", "float32", &["1", "3", "h", "w"]),
    ])
}
