//! Recurrent models keep no state between runs.
//!
//! On every engine, the third run of a session gives the same answer as the first, whatever ran in
//! between. A nested recurrence starts anew at every outer step.

use std::path::Path;

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{Engine, Session, engine};

use crate::support::environment::EnvironmentPiece;
use crate::support::loading::{request, written};
use pkgtool_testing::onnx::{int, model as onnx, part};

const FLOAT: u64 = 1;

/// Number of steps, batch size, and the sizes of an input and of a state.
const STEPS: u64 = 5;
const BATCH: u64 = 2;
const SIZE: u64 = 3;

fn named(field: u64, name: &str) -> Vec<u8> {
    part(field, &[name.as_bytes()])
}

fn number(name: &str, value: u64) -> Vec<u8> {
    part(5, &[&named(1, name), &int(3, value), &int(20, 2)])
}

fn graph_attribute(name: &str, graph: &[&[u8]]) -> Vec<u8> {
    part(
        5,
        &[
            &named(1, name),
            &part(6, &[&named(2, "inner"), &graph.concat()]),
            &int(20, 5),
        ],
    )
}

fn node(operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[&[u8]]) -> Vec<u8> {
    let mut fields: Vec<Vec<u8>> = inputs.iter().map(|name| named(1, name)).collect();
    fields.extend(outputs.iter().map(|name| named(2, name)));
    fields.push(named(4, operator));
    fields.push(attributes.concat());
    part(1, &[&fields.concat()])
}

/// Encodes an input (field 11) or output (field 12).
fn value(field: u64, name: &str, shape: &[u64]) -> Vec<u8> {
    let sizes: Vec<Vec<u8>> = shape.iter().map(|it| part(1, &[&int(1, *it)])).collect();
    let tensor = [int(1, FLOAT), part(2, &[&sizes.concat()])].concat();
    let kind = part(2, &[&part(1, &[&tensor])]);
    part(field, &[&named(1, name), &kind])
}

/// A stored tensor with values between -0.5 and 0.5.
fn weights(name: &str, shape: &[u64]) -> Vec<u8> {
    let count = u32::try_from(shape.iter().product::<u64>()).expect("the number fits");
    let values = (0..count).map(|at| (f64::from(at) * 0.83).sin() / 2.0);
    #[expect(clippy::cast_possible_truncation, reason = "any float32 suffices")]
    let bytes: Vec<u8> = values.flat_map(|it| (it as f32).to_le_bytes()).collect();
    let sizes: Vec<u8> = shape.iter().flat_map(|size| int(1, *size)).collect();
    part(
        5,
        &[&sizes, &int(2, FLOAT), &named(8, name), &part(9, &[&bytes])],
    )
}

/// `x[steps, batch, size]` through a recurrence with this number of gates.
fn recurrence(operator: &str, gates: u64, attributes: &[&[u8]]) -> Vec<u8> {
    onnx(&[
        &node(
            operator,
            &["x", "w", "r", "b"],
            &["all", "last"],
            &[&number("hidden_size", SIZE), &attributes.concat()],
        ),
        &weights("w", &[1, gates * SIZE, SIZE]),
        &weights("r", &[1, gates * SIZE, SIZE]),
        &weights("b", &[1, 2 * gates * SIZE]),
        &value(11, "x", &[STEPS, BATCH, SIZE]),
        &value(12, "all", &[STEPS, 1, BATCH, SIZE]),
        &value(12, "last", &[1, BATCH, SIZE]),
    ])
}

/// The running sum of `x[steps, batch, size]` along its steps, as a Scan.
fn running_sum() -> Vec<u8> {
    let body = [
        node("Add", &["sum", "step"], &["next"], &[]),
        node("Identity", &["next"], &["out"], &[]),
        value(11, "sum", &[BATCH, SIZE]),
        value(11, "step", &[BATCH, SIZE]),
        value(12, "next", &[BATCH, SIZE]),
        value(12, "out", &[BATCH, SIZE]),
    ]
    .concat();
    onnx(&[
        &node(
            "Scan",
            &["zero", "x"],
            &["last", "all"],
            &[
                &graph_attribute("body", &[&body]),
                &number("num_scan_inputs", 1),
            ],
        ),
        &weights("zero", &[BATCH, SIZE]),
        &value(11, "x", &[STEPS, BATCH, SIZE]),
        &value(12, "all", &[STEPS, BATCH, SIZE]),
        &value(12, "last", &[BATCH, SIZE]),
    ])
}

/// An RNN along the inner steps, for each outer step of `x[steps, inner, batch, size]`.
fn nested() -> Vec<u8> {
    let body = [
        node(
            "RNN",
            &["step", "w", "r"],
            &["out"],
            &[&number("hidden_size", SIZE)],
        ),
        value(11, "step", &[2, BATCH, SIZE]),
        weights("w", &[1, SIZE, SIZE]),
        weights("r", &[1, SIZE, SIZE]),
        value(12, "out", &[2, 1, BATCH, SIZE]),
    ]
    .concat();
    onnx(&[
        &node(
            "Scan",
            &["x"],
            &["all"],
            &[
                &graph_attribute("body", &[&body]),
                &number("num_scan_inputs", 1),
            ],
        ),
        &value(11, "x", &[STEPS, 2, BATCH, SIZE]),
        &value(12, "all", &[STEPS, 2, 1, BATCH, SIZE]),
    ])
}

/// A recurrence with NaN in its input, weights or bias.
fn with_nan(operator: &str, gates: u64, place: &str) -> Vec<u8> {
    let with_nan = |name: &str, shape: &[u64]| {
        let mut tensor = weights(name, shape);
        if name == place {
            // The last number of the raw bytes, which are the end of the tensor.
            let end = tensor.len() - 4;
            tensor[end..].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        tensor
    };
    onnx(&[
        &node(
            operator,
            &["x", "w", "r", "b"],
            &["all", "last"],
            &[&number("hidden_size", SIZE)],
        ),
        &with_nan("w", &[1, gates * SIZE, SIZE]),
        &with_nan("r", &[1, gates * SIZE, SIZE]),
        &with_nan("b", &[1, 2 * gates * SIZE]),
        &value(11, "x", &[STEPS, BATCH, SIZE]),
        &value(12, "all", &[STEPS, 1, BATCH, SIZE]),
        &value(12, "last", &[1, BATCH, SIZE]),
    ])
}

#[test]
fn nan_stays_in_recurrences() {
    for (operator, gates) in [("LSTM", 4), ("GRU", 3), ("RNN", 1)] {
        for place in ["w", "r", "b", "x"] {
            let model = written("m.onnx", &with_nan(operator, gates, place));
            let mut session = load(engine("tract").expect("the engine exists"), &model.path);
            let count = usize::try_from(STEPS * BATCH * SIZE).expect("the number fits");
            let mut x = vec![0.5; count];
            if place == "x" {
                x[0] = f64::NAN;
            }
            let x = Tensor::from_f64(DType::Float32, vec![STEPS, BATCH, SIZE], x);
            let answer = session
                .run(&[x.expect("the tensor is valid")])
                .expect("the run succeeds");
            let last = &answer.outputs[1];
            assert!(
                last.to_f64().any(f64::is_nan),
                "{operator} with NaN in {place}: {:?}",
                last.to_f64().collect::<Vec<_>>()
            );
        }
    }
}

fn engines() -> Vec<&'static dyn Engine> {
    let tract = engine("tract").expect("the engine is always available");
    let ort = engine("ort").filter(|_| EnvironmentPiece::Ort.path().is_some());
    [Some(tract), ort].into_iter().flatten().collect()
}

fn load(engine: &dyn Engine, path: &Path) -> Box<dyn Session> {
    let session = engine.load(&request(path));
    session.unwrap_or_else(|error| panic!("{}: {error}", engine.name()))
}

/// A tensor of scaled values that repeat after `period` elements.
fn input(shape: &[u64], period: usize, scale: f64) -> Tensor {
    let count = usize::try_from(shape.iter().product::<u64>()).expect("the number fits");
    let values = (0..count).map(|at| {
        let at = u32::try_from(at % period).expect("the number fits");
        (f64::from(at) * 0.37).cos() * scale
    });
    Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("the tensor is valid")
}

#[test]
fn a_recurrence_begins_anew_in_every_run() {
    let models = [
        ("RNN", recurrence("RNN", 1, &[])),
        ("GRU", recurrence("GRU", 3, &[])),
        // Tract uses a different operator of its own here.
        (
            "GRU, reset after",
            recurrence("GRU", 3, &[&number("linear_before_reset", 1)]),
        ),
        ("LSTM", recurrence("LSTM", 4, &[])),
        ("Scan", running_sum()),
    ];
    let shape = [STEPS, BATCH, SIZE];
    let (input, other) = (input(&shape, 1000, 1.0), input(&shape, 1000, -3.0));
    let misfit = Tensor::zeros(DType::Float32, vec![7]).expect("the tensor is valid");
    for (name, bytes) in &models {
        let model = written("m.onnx", bytes);
        for engine in engines() {
            let mut session = load(engine, &model.path);
            let mut run = |input: &Tensor| {
                let answer = session.run(std::slice::from_ref(input));
                answer.map(|answer| answer.outputs)
            };
            let first = run(&input).expect("the run succeeds");
            for round in 2..=4 {
                let another = run(&other).expect("the run succeeds");
                assert_ne!(
                    another, first,
                    "{name}: different inputs give the same answer"
                );
                run(&misfit).expect_err("the input is not a sequence");
                let again = run(&input).expect("the run succeeds");
                assert_eq!(again, first, "{name} on {}, run {round}", engine.name());
            }
        }
    }
}

/// All outer steps have the same values, so their results must be equal.
#[test]
fn an_inner_recurrence_begins_anew_at_every_outer_step() {
    let model = written("m.onnx", &nested());
    let step = usize::try_from(2 * BATCH * SIZE).expect("the number fits");
    let input = input(&[STEPS, 2, BATCH, SIZE], step, 1.0);
    for engine in engines() {
        let mut session = load(engine, &model.path);
        for _ in 0..3 {
            let answer = session
                .run(std::slice::from_ref(&input))
                .expect("the run succeeds");
            let values: Vec<f64> = answer.outputs[0].to_f64().collect();
            let mut steps = values.chunks(step);
            let first = steps.next().expect("the list is not empty");
            assert!(first.iter().any(|value| *value != 0.0));
            for step in steps {
                assert_eq!(step, first, "on {}", engine.name());
            }
        }
    }
}
