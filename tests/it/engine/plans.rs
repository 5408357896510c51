//! A session that is run with one batch size after another keeps some of their plans: within a bound of
//! memory, right when a size comes back, and without losing what a program keeps from run to run.
//!
//! The models here have two inputs whose first dimensions are equal without saying so. So no plan for all
//! sizes can be made, and there is one for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool::engine::{Answer, EngineError, LoadOptions, LoadRequest, Session};
use pkgtool::model;
use pkgtool::runtime::worker::{Launcher, Worker};
use pkgtool::tensor::{DType, Signature, Tensor};
use tempfile::TempDir;

use crate::model::executorch::builder::{
    Field, Node, Plan, file, int as number, integer, ints, tables, tensor, value as evalue,
};
use crate::model::onnx::build::{head, int, model as onnx, part};

/// Elements of a row of `x` and of `y`: the weights have as many as both together say. So many that workers
/// get them from the system by themselves (blocks of 32 MiB and more): smaller ones leave holes between
/// others when they go, and what is held at most hangs on chance.
const ROW: u32 = 2944;
const COLUMNS: u32 = 2944;
/// Bytes of the weights.
const WEIGHTS: u64 = 2944 * 2944 * 4;
/// Batch sizes that are run. All their plans would take ten times the weights, or more.
const SIZES: u64 = 10;
/// The bound: four copies of the weights. Beside them there are a graph's weights to make plans of, and a
/// plan that is being made, which holds weights twice while they are packed.
const BOUND: u64 = (4 + 3) * WEIGHTS;

/// The weight at this place: few rows differ, so that an answer is a short sum.
fn weight(row: u32, column: u32) -> f32 {
    if row < 4 {
        f32::from(u8::try_from((row * 7 + column) % 64).expect("it is small")) / 8.0
    } else {
        0.0
    }
}

fn weights() -> Vec<u8> {
    let rows = (0..ROW).flat_map(|row| (0..COLUMNS).map(move |column| weight(row, column)));
    rows.flat_map(f32::to_le_bytes).collect()
}

fn inputs(size: u64) -> [Tensor; 2] {
    let wave = |columns: u32, period: u32| {
        let count = u32::try_from(size).expect("it is small") * columns;
        let values = (0..count).map(|at| f64::from(at % period) / 4.0);
        let shape = vec![size, u64::from(columns)];
        Tensor::from_f64(DType::Float32, shape, values).expect("it is small")
    };
    [wave(ROW, 13), wave(COLUMNS, 5)]
}

/// `x` times the weights, and `y`, and so much more. All sums are exact.
fn expected(inputs: &[Tensor; 2], more: f64) -> Vec<f64> {
    let [x, y]: [Vec<f64>; 2] = [0, 1].map(|at: usize| inputs[at].to_f64().collect());
    let y = y.chunks(COLUMNS as usize);
    let rows = x.chunks(ROW as usize).zip(y);
    rows.flat_map(|(x, y)| {
        (0..COLUMNS).zip(y).map(move |(column, y)| {
            let products = (0..4)
                .zip(x)
                .map(|(row, x)| x * f64::from(weight(row, column)));
            products.sum::<f64>() + y + more
        })
    })
    .collect()
}

/// A node of an ONNX graph, with one attribute that is a number.
fn node(operator: &str, inputs: [&str; 2], output: &str, attribute: (&str, u64)) -> Vec<u8> {
    let named = |field, name: &str| part(field, &[name.as_bytes()]);
    let inputs = inputs.map(|name| named(1, name)).concat();
    let (name, number) = attribute;
    let attribute = match name {
        "" => Vec::new(),
        name => part(5, &[&named(1, name), &int(3, number), &int(20, 2)]),
    };
    let fields = [inputs, named(2, output), named(4, operator), attribute];
    part(1, &[&fields.concat()])
}

/// Stored integers of 64 bits, one dimension.
fn numbers(name: &str, values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let length = int(1, values.len() as u64);
    part(
        5,
        &[
            &length,
            &int(2, 7),
            &part(8, &[name.as_bytes()]),
            &part(9, &[&bytes]),
        ],
    )
}

/// `x[?, ROW]` times weights, and `y[?, COLUMNS]`: put side by side, which needs as many rows of both, and
/// added.
fn onnx_model() -> Vec<u8> {
    let value = |field, name: &str, columns: u32| {
        let sizes = [part(1, &[]), part(1, &[&int(1, columns.into())])].concat();
        let tensor = [int(1, 1), part(2, &[&sizes])].concat();
        let kind = part(2, &[&part(1, &[&tensor])]);
        part(field, &[&part(1, &[name.as_bytes()]), &kind])
    };
    let bytes = weights();
    let header = [
        int(1, ROW.into()),
        int(1, COLUMNS.into()),
        int(2, 1),
        part(8, &[b"w"]),
        head(9, bytes.len() as u64),
    ]
    .concat();
    onnx(&[
        &node("MatMul", ["x", "w"], "p", ("", 0)),
        &node("Concat", ["p", "y"], "c", ("axis", 1)),
        &node("Reshape", ["c", "pairs"], "d", ("", 0)),
        &node("ReduceSum", ["d", "axes"], "z", ("keepdims", 0)),
        &part(5, &[&header, &bytes]),
        &numbers("pairs", &[-1, 2, COLUMNS.into()]),
        &numbers("axes", &[1]),
        &value(11, "x", ROW),
        &value(11, "y", COLUMNS),
        &value(12, "z", COLUMNS),
    ])
}

/// The same as a program, which adds a count of its runs.
fn program() -> Vec<u8> {
    let sizes = |rows: i32, columns: u32| [rows, i32::try_from(columns).expect("it is small")];
    let stored = evalue(
        5,
        vec![
            (0, Field::Scalar(vec![6])),
            (2, ints(&sizes(2944, COLUMNS))),
            (5, number(1)),
        ],
    );
    let plan = Plan {
        name: "forward",
        values: vec![
            tensor(&sizes(16, ROW), 1),
            tensor(&sizes(32, COLUMNS), 1),
            stored,
            tensor(&sizes(16, COLUMNS), 1),
            tensor(&sizes(16, COLUMNS), 1),
            tensor(&[1], 0),
            integer(1),
            tensor(&sizes(16, COLUMNS), 1),
        ],
        inputs: vec![0, 1],
        outputs: vec![7],
        operators: vec!["aten::mm.out", "aten::add.out", "aten::add.Scalar_out"],
        calls: vec![
            (0, vec![0, 2, 3, 3]),
            (1, vec![3, 1, 6, 4, 4]),
            (2, vec![5, 6, 6, 5, 5]),
            (1, vec![4, 5, 6, 7, 7]),
        ],
    };
    let buffer = |bytes| Node::Table(vec![(0, Field::To(Node::Bytes(bytes)))]);
    let buffers = vec![buffer(Vec::new()), buffer(weights())];
    file(&Node::Table(vec![
        (1, tables(vec![plan.node()])),
        (2, tables(buffers)),
    ]))
}

struct Model {
    _directory: TempDir,
    path: PathBuf,
}

fn written(name: &str, bytes: &[u8]) -> Model {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("a file");
    Model {
        _directory: directory,
        path,
    }
}

/// The model in a process of its own, whose memory can be measured.
fn load(path: &Path) -> Worker {
    let launcher = Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(Duration::from_mins(5)),
        memory_limit: None,
    };
    let (info, _) = model::open(path).expect("it is a model");
    let request = LoadRequest {
        model: path.to_owned(),
        signature: Signature::of(&info.methods[0], None).expect("it takes tensors"),
        options: LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        },
    };
    launcher.load("tract", &request).expect("it loads")
}

fn values(answer: Result<Answer, EngineError>) -> Vec<f64> {
    answer.expect("it runs").outputs[0].to_f64().collect()
}

/// Runs all sizes, then some again and again that have lost their plans, and that many times what a run
/// adds; says how many bytes more were held at most than after the first run.
fn grown(worker: &mut Worker, added: f64) -> u64 {
    let mut first = None;
    let mut runs = 0;
    for size in (1..=SIZES).chain([1, 2, 1, SIZES, 1]) {
        let inputs = inputs(size);
        let found = values(worker.run(&inputs));
        runs += 1;
        assert_eq!(
            found,
            expected(&inputs, added * f64::from(runs)),
            "batch {size}, run {runs}"
        );
        if first.is_none() {
            first = worker.peak_memory();
        }
    }
    let last = worker.peak_memory().expect("it is told");
    last - first.expect("it is told")
}

#[test]
fn plans_of_a_model_stay_within_their_bound() {
    let model = written("m.onnx", &onnx_model());
    let grown = grown(&mut load(&model.path), 0.0);
    assert!(grown < BOUND, "{grown} bytes more, {BOUND} are allowed");
}

#[test]
fn plans_of_a_program_stay_within_their_bound_and_its_state_is_kept() {
    let model = written("m.pte", &program());
    let grown = grown(&mut load(&model.path), 1.0);
    assert!(grown < BOUND, "{grown} bytes more, {BOUND} are allowed");
}
