//! Operators that the tract engine implements itself, compared with outputs of ONNX Runtime.
//!
//! They include recurrences with all attributes, attention with its masks and caches, branches, loops, functions, negative indices and
//! operators that stand for several.
//! `tests/operators/golden.py` generates the cases. Each case runs repeatedly in one session, with
//! other inputs in between, to detect state that leaks from run to run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use pkgtool_base::source::FileSource;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{Engine, LoadOptions, LoadRequest, engine};
use pkgtool_model as model;
use serde_json::Value;

/// Maximum difference relative to the largest magnitude.
const TOLERANCE: f64 = 1e-5;

/// Inputs and outputs of one run.
type Run = [Vec<Tensor>; 2];

#[test]
fn simple_recurrences_are_right_in_every_run() {
    assert_eq!(check("rnn"), 38);
}

#[test]
fn gated_recurrences_are_right_in_every_run() {
    assert_eq!(check("gru"), 44);
}

#[test]
fn recurrences_with_memory_are_right_in_every_run() {
    assert_eq!(check("lstm"), 45);
}

#[test]
fn branches_loops_functions_and_indices_are_right_in_every_run() {
    assert_eq!(check("constructs"), 28);
}

#[test]
fn fused_operators_are_right_in_every_run() {
    assert_eq!(check("fused"), 23);
}

#[test]
fn attention_is_right_in_every_run() {
    assert_eq!(check("attention"), 30);
}

#[test]
fn attention_with_groups_of_heads_is_right_in_every_run() {
    assert_eq!(check("grouped"), 22);
}

#[test]
fn resized_images_are_right_in_every_run() {
    assert_eq!(check("images"), 41);
}

#[test]
fn sequences_are_right_in_every_run() {
    assert_eq!(check("sequences"), 27);
}

#[test]
fn numbers_of_few_bits_are_right_in_every_run() {
    assert_eq!(check("narrow"), 35);
}

#[test]
fn other_operators_of_onnx_runtime_are_right_in_every_run() {
    assert_eq!(check("contributed"), 29);
}

/// Runs all cases of an archive and returns their number.
fn check(archive: &str) -> usize {
    let folder = tempfile::tempdir().expect("a directory");
    let mut models = 0;
    let mut wrong = Vec::new();
    for (name, (bytes, runs)) in cases(archive) {
        models += 1;
        let path = folder.path().join("model.onnx");
        fs::write(&path, bytes).expect("the file is written");
        if let Err(reason) = check_model(&path, &runs) {
            wrong.push(format!("{name}: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{archive}:\n{}", wrong.join("\n"));
    models
}

fn check_model(path: &Path, runs: &[Run]) -> Result<(), String> {
    let source = FileSource::open(path).map_err(|error| error.to_string())?;
    let info = model::inspect(path, &source).map_err(|error| error.to_string())?;
    let info = info.ok_or("it is no model")?;
    let request = LoadRequest {
        model: path.to_owned(),
        signature: Signature::of(&info.methods[0], None).map_err(|error| error.to_string())?,
        options: LoadOptions::default(),
    };
    let tract: &dyn Engine = engine("tract").expect("the engine is always available");
    let mut session = tract.load(&request).map_err(|error| error.to_string())?;
    let again = [0, 1, 2, 0, 2, 1];
    for (count, at) in again.into_iter().enumerate() {
        let [inputs, expected] = &runs[at];
        let answer = session.run(inputs);
        let answer = answer.map_err(|error| format!("run {count}: {error}"))?;
        if answer.outputs.len() != expected.len() {
            return Err(format!("run {count}: {} outputs", answer.outputs.len()));
        }
        for (place, (output, expected)) in answer.outputs.iter().zip(expected).enumerate() {
            near(output, expected)
                .map_err(|reason| format!("run {count}, output {place}: {reason}"))?;
        }
    }
    Ok(())
}

fn near(output: &Tensor, expected: &Tensor) -> Result<(), String> {
    if (output.dtype(), output.shape()) != (expected.dtype(), expected.shape()) {
        return Err(format!(
            "{} {:?} is not {} {:?}",
            output.dtype(),
            output.shape(),
            expected.dtype(),
            expected.shape()
        ));
    }
    let magnitude = expected
        .to_f64()
        .fold(0.0, |most: f64, value| most.max(value.abs()));
    for (at, (output, expected)) in output.to_f64().zip(expected.to_f64()).enumerate() {
        let is_near = (output - expected).abs() <= TOLERANCE * magnitude.max(1e-3);
        if !is_near {
            return Err(format!("element {at} is {output}, not {expected}"));
        }
    }
    Ok(())
}

/// Returns the models of an archive with their runs.
fn cases(archive: &str) -> BTreeMap<String, (Vec<u8>, Vec<Run>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/operators");
    let file = File::open(path.join(format!("{archive}.zip"))).expect("the file exists");
    let mut archive = zip::ZipArchive::new(file).expect("the file is an archive");
    let mut cases: BTreeMap<String, (Vec<u8>, Vec<Run>)> = BTreeMap::new();
    for at in 0..archive.len() {
        let mut entry = archive
            .by_index(at)
            .expect("the archive contains the array");
        let name = entry.name().expect("a name").into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("the file is readable");
        if let Some(name) = name.strip_suffix(".onnx") {
            cases.entry(name.to_owned()).or_default().0 = bytes;
        } else if let Some(name) = name.strip_suffix(".json") {
            let runs: Vec<Value> = serde_json::from_slice(&bytes).expect("the text is JSON");
            let runs = runs
                .iter()
                .map(|run| [tensors(&run["inputs"]), tensors(&run["outputs"])]);
            cases.entry(name.to_owned()).or_default().1 = runs.collect();
        }
    }
    cases
}

fn tensors(list: &Value) -> Vec<Tensor> {
    let list = list.as_array().expect("a list of tensors");
    list.iter().map(tensor).collect()
}

fn tensor(value: &Value) -> Tensor {
    let dtype: DType = value["dtype"]
        .as_str()
        .and_then(DType::from_name)
        .expect("a dtype");
    let numbers = |key: &str| value[key].as_array().expect("a list of numbers").iter();
    let shape = numbers("shape")
        .map(|size| size.as_u64().expect("a size"))
        .collect();
    let data = numbers("data").map(|number| number.as_f64().expect("a number"));
    Tensor::from_f64(dtype, shape, data).expect("the tensor is valid")
}
