//! A session that runs with many batch sizes keeps some of their plans.
//!
//! The plans stay within a memory bound, give right answers when a size returns, and preserve the
//! state of a program between runs. The models in this file have two inputs whose first dimensions
//! must be equal, without declaring it. So a common plan for all sizes is impossible, and each size
//! needs its own.

use std::path::Path;
use std::time::Duration;

use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{EngineError, RunAnswer, Session};

use crate::support::loading::{launcher, request, written};
use pkgtool_testing::onnx::{head, int, model as onnx, part};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, ProgramPlan, file, int as number, integer, ints, tables, tensor,
    value as evalue,
};

/// Elements in a row of `x`, and in a row of `y` (`COLUMNS`). The weights have `ROW` times
/// `COLUMNS` elements.
///
/// The size ensures that the allocator maps each copy of the weights separately (blocks of 32 MiB
/// and more). Smaller blocks leave holes when they are freed, which makes peak memory
/// unpredictable.
const ROW: u32 = 2944;
const COLUMNS: u32 = 2944;
/// Size of the weights, in bytes.
const WEIGHTS: u64 = 2944 * 2944 * 4;
/// Number of batch sizes to run. All their plans together would take at least ten times the
/// weights.
const SIZES: u64 = 10;
/// Memory bound in bytes: four copies of the weights in plans, and three more.
///
/// The three are the graph's own weights and a plan in the making, which holds the weights twice
/// while they are packed.
const BOUND: u64 = (4 + 3) * WEIGHTS;

/// Returns a weight. Few rows differ, so that an answer is a short sum.
fn weight(row: u32, column: u32) -> f32 {
    if row < 4 {
        f32::from(u8::try_from((row * 7 + column) % 64).expect("the number fits")) / 8.0
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
        let count = u32::try_from(size).expect("the number fits") * columns;
        let values = (0..count).map(|at| f64::from(at % period) / 4.0);
        let shape = vec![size, u64::from(columns)];
        Tensor::from_f64(DType::Float32, shape, values).expect("the tensor is valid")
    };
    [wave(ROW, 13), wave(COLUMNS, 5)]
}

/// Returns `x` times the weights, and `y`, both plus `more`. All sums are exact.
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

/// A node of an ONNX graph with one integer attribute.
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

/// A stored vector of int64.
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

/// `x[?, ROW]` times weights, concatenated with `y[?, COLUMNS]`, which requires equal numbers of
/// rows.
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

/// The same model as an ExecuTorch program that also adds a count of its runs.
fn program() -> Vec<u8> {
    let sizes = |rows: i32, columns: u32| [rows, i32::try_from(columns).expect("the number fits")];
    let stored = evalue(
        5,
        vec![
            (0, ProgramField::Scalar(vec![6])),
            (2, ints(&sizes(2944, COLUMNS))),
            (5, number(1)),
        ],
    );
    let plan = ProgramPlan {
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
    let buffer =
        |bytes| OffsetTarget::Table(vec![(0, ProgramField::To(OffsetTarget::Bytes(bytes)))]);
    let buffers = vec![buffer(Vec::new()), buffer(weights())];
    file(&OffsetTarget::Table(vec![
        (1, tables(vec![plan.node()])),
        (2, tables(buffers)),
    ]))
}

/// Loads the model in a worker process whose memory can be measured.
fn load(path: &Path) -> Worker {
    let worker = launcher(Some(Duration::from_mins(5))).load("tract", &request(path));
    worker.expect("the model loads")
}

fn values(answer: Result<RunAnswer, EngineError>) -> Vec<f64> {
    answer.expect("the run succeeds").outputs[0]
        .to_f64()
        .collect()
}

/// Runs all sizes, then repeats some whose plans were evicted. `added` is the amount that each run
/// adds to the answers.
///
/// Returns the growth of peak memory since the first run, in bytes.
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
    let last = worker.peak_memory().expect("the worker reports its memory");
    last - first.expect("the worker reports its memory")
}

#[test]
fn plans_of_a_model_stay_within_their_bound() {
    let model = written("m.onnx", &onnx_model());
    let grown = grown(&mut load(&model.path), 0.0);
    assert!(
        grown < BOUND,
        "memory grew by {grown} bytes, at most {BOUND} are allowed"
    );
}

#[test]
fn plans_of_a_program_stay_within_their_bound_and_its_state_is_kept() {
    let model = written("m.pte", &program());
    let grown = grown(&mut load(&model.path), 1.0);
    assert!(
        grown < BOUND,
        "memory grew by {grown} bytes, at most {BOUND} are allowed"
    );
}
