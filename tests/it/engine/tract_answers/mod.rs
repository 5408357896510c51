//! Answers that the tract library gets wrong by itself and that the tract engine corrects.
//!
//! Each test computes its answers three times in one session, with other inputs in between.

mod contrib;
mod halves;
mod known;
mod numbers;
mod products;
mod quantized;
mod reductions;
mod refused;
mod scalars;
mod shapes;

use std::fs;
use std::path::PathBuf;

use pkgtool_base::source::FileSource;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Session, engine};
use pkgtool_model as model;
use tempfile::TempDir;

use pkgtool_testing::onnx::{int, model_of_opset, part};

/// An attribute of a node.
#[derive(Clone, Copy)]
enum Attribute<'a> {
    Int(i64),
    Float(f32),
    Ints(&'a [i64]),
    Text(&'a str),
}

fn attribute((name, value): &(&str, Attribute<'_>)) -> Vec<u8> {
    let unsigned = i64::cast_unsigned;
    let content = match value {
        Attribute::Int(value) => [int(3, unsigned(*value)), int(20, 2)].concat(),
        Attribute::Float(value) => {
            let bits = [&[0x15][..], &value.to_le_bytes()].concat();
            [bits, int(20, 1)].concat()
        }
        Attribute::Ints(values) => {
            let values = values.iter().flat_map(|value| int(8, unsigned(*value)));
            values.chain(int(20, 7)).collect()
        }
        Attribute::Text(text) => [part(4, &[text.as_bytes()]), int(20, 3)].concat(),
    };
    part(5, &[&part(1, &[name.as_bytes()]), &content])
}

fn node(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, Attribute<'_>)],
) -> Vec<u8> {
    whole_node("", operator, inputs, &[output], attributes)
}

/// A node of this domain with these outputs.
fn whole_node(
    domain: &str,
    operator: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[(&str, Attribute<'_>)],
) -> Vec<u8> {
    let names = |field, names: &[&str]| -> Vec<u8> {
        let parts = names
            .iter()
            .flat_map(|name| part(field, &[name.as_bytes()]));
        parts.collect()
    };
    let mut content = names(1, inputs);
    content.extend(names(2, outputs));
    content.extend(part(4, &[operator.as_bytes()]));
    content.extend(attributes.iter().flat_map(attribute));
    content.extend(part(7, &[domain.as_bytes()]));
    part(1, &[&content])
}

/// The domain of ONNX Runtime's contributed operators.
const CONTRIB: &str = "com.microsoft";

/// Converts numbers to the bytes of float16.
fn halves(values: &[f32]) -> Vec<u8> {
    let halves = values.iter().map(|value| half::f16::from_f32(*value));
    halves.flat_map(half::f16::to_le_bytes).collect()
}

const FLOAT: u64 = 1;
const UINT8: u64 = 2;
const INT8: u64 = 3;
const INT32: u64 = 6;
const INT64: u64 = 7;
const FLOAT16: u64 = 10;
const DOUBLE: u64 = 11;
const BOOL: u64 = 9;
const UINT64: u64 = 13;

/// Encodes an input (field 11) or an output (field 12); a negative size is a symbolic dimension.
fn value(field: u64, name: &str, element: u64, shape: Option<&[i64]>) -> Vec<u8> {
    let mut tensor = int(1, element);
    if let Some(shape) = shape {
        let dims: Vec<u8> = shape
            .iter()
            .enumerate()
            .flat_map(|(axis, size)| match u64::try_from(*size) {
                Ok(size) => part(1, &[&int(1, size)]),
                Err(_) => part(1, &[&part(2, &[format!("n{axis}").as_bytes()])]),
            })
            .collect();
        tensor.extend(part(2, &[&dims]));
    }
    part(
        field,
        &[
            &part(1, &[name.as_bytes()]),
            &part(2, &[&part(1, &[&tensor])]),
        ],
    )
}

fn numbers(name: &str, values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let dims = int(1, values.len() as u64);
    part(
        5,
        &[
            &dims,
            &int(2, INT64),
            &part(8, &[name.as_bytes()]),
            &part(9, &[&bytes]),
        ],
    )
}

/// Encodes an initializer of this element type from its bytes.
fn bytes(name: &str, element: u64, shape: &[u64], values: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = shape.iter().flat_map(|size| int(1, *size)).collect();
    part(
        5,
        &[
            &dims,
            &int(2, element),
            &part(8, &[name.as_bytes()]),
            &part(9, &[values]),
        ],
    )
}

fn floats(name: &str, shape: &[u64], values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let dims: Vec<u8> = shape.iter().flat_map(|size| int(1, *size)).collect();
    part(
        5,
        &[
            &dims,
            &int(2, FLOAT),
            &part(8, &[name.as_bytes()]),
            &part(9, &[&bytes]),
        ],
    )
}

fn load(graph: &[Vec<u8>]) -> Result<Box<dyn Session>, EngineError> {
    load_on("tract", None, graph)
}

fn load_on(
    name: &str,
    library: Option<PathBuf>,
    graph: &[Vec<u8>],
) -> Result<Box<dyn Session>, EngineError> {
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("model.onnx");
    let parts: Vec<&[u8]> = graph.iter().map(Vec::as_slice).collect();
    // `Gelu` came with opset 20 and dilations of average pools with opset 19. Bounds of slices were
    // attributes until opset 9.
    let names = |name: &[u8]| {
        parts
            .iter()
            .any(|part| part.windows(name.len()).any(|it| it == name))
    };
    let opset = if names(b"Gelu") || names(b"dilations") {
        20
    } else if names(b"starts") {
        9
    } else {
        18
    };
    fs::write(&path, model_of_opset(opset, &parts)).expect("the file is written");
    let source = FileSource::open(&path).expect("the file exists");
    let info = model::inspect(&path, &source).expect("the file is readable");
    let info = info.expect("the file is a model");
    let request = LoadRequest {
        signature: Signature::of(&info.methods[0], None).expect("a signature"),
        model: path,
        options: LoadOptions {
            library,
            ..LoadOptions::default()
        },
    };
    engine(name).expect("the engine exists").load(&request)
}

fn tensor(dtype: DType, shape: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, shape.to_vec(), values.iter().copied()).expect("the tensor is valid")
}

fn float(shape: &[u64], values: &[f64]) -> Tensor {
    tensor(DType::Float32, shape, values)
}

/// Runs each of the inputs three times, in turns, and compares the first output with the expected
/// one.
fn assert_answers(graph: &[Vec<u8>], runs: &[(Vec<Tensor>, Vec<u64>, Vec<f64>)]) {
    let mut session = load(graph).expect("the model loads");
    for round in 0..3 {
        for (inputs, shape, expected) in runs {
            let answer = session
                .run(inputs)
                .unwrap_or_else(|error| panic!("{error}"));
            let found = &answer.outputs[0];
            assert_eq!(found.shape(), shape, "round {round}");
            for (place, (found, expected)) in found.to_f64().zip(expected).enumerate() {
                let same = found.to_bits() == expected.to_bits()
                    || found.is_nan() && expected.is_nan()
                    || (found - expected).abs() <= 1e-5 * expected.abs();
                assert!(
                    same,
                    "round {round}, place {place}: {found}, not {expected}"
                );
            }
        }
    }
}
