//! Programs for Core ML, MLX and Vulkan, run without these backends.
//!
//! The outputs in `tests/fixtures/payloads` are those of the original networks
//! (`tests/programs/payloads.py`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{Rounding, Session};
use serde_json::Value;

use super::program::{Arrays, load, load_rounding};

/// Returns the directory of programs: the fixtures, or others exported in the same form.
fn fixtures() -> PathBuf {
    match std::env::var_os("PKGTOOL_TEST_PAYLOADS") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/payloads"),
    }
}

/// Returns the minimum number of programs per backend: many for the fixtures, few for other
/// directories.
fn least() -> usize {
    if std::env::var_os("PKGTOOL_TEST_PAYLOADS").is_some() {
        1
    } else {
        20
    }
}

fn cases() -> Value {
    let text = std::fs::read_to_string(fixtures().join("cases.json"));
    serde_json::from_str(&text.expect("fixtures can be read")).expect("the text is JSON")
}

/// Returns the maximum difference relative to the largest magnitude of the output, by the precision
/// of a variant.
fn tolerance(variant: &str) -> f64 {
    match variant.split_once('_').map(|(_, precision)| precision) {
        Some("bf16") => 2e-2,
        // A difference in the last bit may move a number by one of 255 steps, 127 to either side.
        Some("int8") => 8e-3,
        Some("fp16" | "8da4w") => 5e-3,
        _ => 1e-5,
    }
}

/// Outputs for which an exporter writes something else than the network computes, with the size of
/// the error.
///
/// The Core ML exporter replaces exact gelu with its tanh approximation, and adds 1e-4 to a
/// divisor.
const EXPORTED_OTHERWISE: [(&str, &str, f64); 2] = [
    ("unary_coreml_fp32", "gelu tanh", 5e-4),
    ("unary_coreml_fp32", "reciprocal", 5e-4),
];

fn allowed(name: &str, variant: &str, label: &str) -> f64 {
    let mut otherwise = EXPORTED_OTHERWISE.iter();
    let found = otherwise.find(|(program, output, _)| *program == name && *output == label);
    found.map_or(tolerance(variant), |(.., allowed)| *allowed)
}

/// A case, the labels of its outputs, and the tolerance of each output.
type Asked<'c> = (&'c Value, &'c [Value], &'c dyn Fn(&str) -> f64);

/// Returns the largest difference of two tensors of the same shape, relative to the largest
/// magnitude.
pub(super) fn difference(found: &Tensor, expected: &Tensor) -> Result<f64, String> {
    if found.shape() != expected.shape() {
        return Err(format!("{found:?} instead of {expected:?}"));
    }
    let finite = expected.to_f64().filter(|value| value.is_finite());
    let magnitude = finite.fold(1e-6, |most: f64, value| most.max(value.abs()));
    let pairs = found.to_f64().zip(expected.to_f64());
    let apart = pairs.map(|(found, expected)| {
        if found.total_cmp(&expected).is_eq() || (found.is_nan() && expected.is_nan()) {
            0.0
        } else {
            (found - expected).abs()
        }
    });
    let worst = apart.fold(0.0, |most: f64, apart| {
        if apart.is_nan() {
            apart
        } else {
            most.max(apart)
        }
    });
    if !expected.dtype().is_float() && worst > 0.0 {
        return Err(format!("whole numbers differ by {worst}"));
    }
    Ok(worst / magnitude)
}

/// Converts a tensor to the type that a program takes.
pub(super) fn fitted(tensor: Tensor, dtype: DType) -> Tensor {
    if tensor.dtype() == dtype {
        return tensor;
    }
    let shape = tensor.shape().to_vec();
    Tensor::from_f64(dtype, shape, tensor.to_f64()).expect("the same number of elements")
}

/// Runs a case once and returns the differing outputs and the largest difference.
fn run_case(
    session: &mut dyn Session,
    signature: &Signature,
    arrays: &mut Arrays,
    (case, labels, allowed): Asked<'_>,
    report: &mut String,
) -> f64 {
    let inputs = case["inputs"].as_array().expect("inputs");
    let inputs = inputs.iter().zip(&signature.inputs);
    let inputs: Vec<Tensor> = inputs
        .map(|(described, spec)| fitted(arrays.tensor(described), spec.dtype))
        .collect();
    let answer = match session.run(&inputs) {
        Ok(answer) => answer,
        Err(error) => {
            let _ = writeln!(report, "  does not run: {error}");
            return f64::NAN;
        }
    };
    let mut worst = 0.0_f64;
    let outputs = case["outputs"].as_array().expect("outputs");
    assert_eq!(answer.outputs.len(), outputs.len(), "outputs");
    for (at, (found, described)) in answer.outputs.iter().zip(outputs).enumerate() {
        let label = labels.get(at).and_then(Value::as_str).unwrap_or("output");
        match difference(found, &arrays.tensor(described)) {
            Ok(apart) if apart <= allowed(label) => worst = worst.max(apart),
            Ok(apart) => {
                let _ = writeln!(report, "  {label} (output {at}) differs by {apart:.1e}");
            }
            Err(what) => {
                let _ = writeln!(report, "  {label} (output {at}): {what}");
            }
        }
    }
    worst
}

/// Runs all methods of a variant and returns a report and the largest difference.
fn run_variant(program: &Value, variant: &str) -> (String, f64) {
    let program_name = program["name"].as_str().expect("a name");
    let path = fixtures().join(format!("{program_name}_{variant}.pte"));
    let mut arrays = Arrays::open(&fixtures().join(format!("{program_name}.npz")));
    let (mut report, mut worst) = (String::new(), 0.0_f64);
    for (name, method) in program["methods"].as_object().expect("methods") {
        let (mut session, signature) = match load("tract", &path, name) {
            Ok(loaded) => loaded,
            Err(error) => {
                let _ = writeln!(report, "  is not loaded: {error}");
                continue;
            }
        };
        let none = Vec::new();
        let labels = method["labels"].as_array().unwrap_or(&none);
        // State persists within a round and is reset after it.
        for _ in 0..3 {
            for case in method["cases"].as_array().expect("cases") {
                let full = format!("{program_name}_{variant}");
                let allowed = |label: &str| allowed(&full, variant, label);
                let what: Asked<'_> = (case, labels.as_slice(), &allowed);
                let apart = run_case(&mut *session, &signature, &mut arrays, what, &mut report);
                worst = worst.max(apart);
            }
            session.reset_state().expect("the state is reset");
        }
    }
    (report, worst)
}

/// Runs every program of a backend and returns their number.
fn run_all(backend: &str) -> usize {
    let (mut ran, mut failures) = (0, String::new());
    for program in cases()["programs"].as_array().expect("programs") {
        for (variant, _) in program["variants"].as_object().expect("variants") {
            if !variant.starts_with(backend) || program["refused"].is_array() {
                continue;
            }
            let name = format!("{}_{variant}", program["name"].as_str().expect("a name"));
            if std::env::var("PKGTOOL_TEST_ONLY").is_ok_and(|only| !name.contains(&only)) {
                continue;
            }
            let (report, worst) = run_variant(program, variant);
            ran += 1;
            if !report.is_empty() {
                let _ = writeln!(failures, "{name}:\n{report}");
            }
            assert!(worst.is_finite() || !report.is_empty());
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    ran
}

#[test]
fn vulkan_programs_answer_as_their_networks() {
    assert!(run_all("vulkan") >= least());
}

#[test]
fn core_ml_programs_answer_as_their_networks() {
    assert!(run_all("coreml") >= least());
}

#[test]
fn mlx_programs_answer_as_their_networks() {
    assert!(run_all("mlx") >= least());
}

/// float16 programs whose expected outputs assume rounding after every operation, with their
/// tolerances.
///
/// Sums are exact. Products are accumulated in an unspecified order before they are rounded.
const ROUNDED: [(&str, f64); 2] = [("mil_half_sums", 0.0), ("mil_half_layers", 1e-3)];

/// Returns true if float16 represents all elements of a tensor exactly.
fn is_half(tensor: &Tensor) -> bool {
    let half = fitted(tensor.clone(), DType::Float16);
    let mut pairs = half.to_f64().zip(tensor.to_f64());
    pairs.all(|(half, value)| half.total_cmp(&value).is_eq())
}

#[test]
fn every_result_of_a_half_precision_program_is_rounded_where_that_is_asked_for() {
    let listed = cases();
    for (name, allowed) in ROUNDED {
        let mut programs = listed["programs"].as_array().expect("programs").iter();
        let program = programs.find(|program| program["name"] == name);
        let program = program.expect("the program is listed");
        let path = fixtures().join(format!("{name}_coreml_fp16.pte"));
        let mut arrays = Arrays::open(&fixtures().join(format!("{name}.npz")));
        let cases = program["methods"]["forward"]["cases"].as_array();
        for case in cases.expect("cases") {
            let mut run = |rounding: Rounding| {
                let loaded = load_rounding("tract", &path, "forward", rounding);
                let (mut session, signature) = loaded.expect("the model loads");
                let inputs = case["inputs"].as_array().expect("inputs").iter();
                let inputs: Vec<Tensor> = inputs
                    .zip(&signature.inputs)
                    .map(|(described, spec)| fitted(arrays.tensor(described), spec.dtype))
                    .collect();
                session.run(&inputs).expect("the run succeeds").outputs
            };
            let (wide, rounded) = (run(Rounding::Wide), run(Rounding::Half));
            let halves = case["halves"].as_array().expect("rounded outputs");
            assert_eq!(rounded.len(), halves.len(), "{name}");
            for (found, described) in rounded.iter().zip(halves) {
                let expected = arrays.tensor(described);
                let apart = difference(found, &expected).expect("the same shape");
                assert!(apart <= allowed, "{name}: {found:?} is off by {apart}");
                assert!(is_half(found), "{name}: {found:?} is not rounded");
            }
            assert!(
                !wide.iter().all(is_half),
                "{name}: the wide reading is rounded"
            );
            let apart = wide.iter().zip(&rounded);
            let apart =
                apart.map(|(wide, rounded)| difference(wide, rounded).expect("the same shape"));
            assert!(
                apart.fold(0.0, f64::max) > 1e-4,
                "{name}: both readings are equal"
            );
        }
    }
}

#[test]
fn indices_outside_of_a_tensor_are_refused() {
    let path = fixtures().join("mil_scatter_coreml_fp32.pte");
    let (mut session, signature) = load("tract", &path, "forward").expect("the model loads");
    let listed = cases();
    let mut programs = listed["programs"].as_array().expect("programs").iter();
    let program = programs.find(|program| program["name"] == "mil_scatter");
    let case = &program.expect("the program is listed")["methods"]["forward"]["cases"][0];
    let mut arrays = Arrays::open(&fixtures().join("mil_scatter.npz"));
    let inputs = case["inputs"].as_array().expect("inputs").iter();
    let mut inputs: Vec<Tensor> = inputs
        .zip(&signature.inputs)
        .map(|(described, spec)| fitted(arrays.tensor(described), spec.dtype))
        .collect();
    session.run(&inputs).expect("the run succeeds");
    let indices = Tensor::from_f64(inputs[1].dtype(), vec![3], [0.0, 9.0, 1.0]);
    inputs[1] = indices.expect("three indices");
    let error = session
        .run(&inputs)
        .expect_err("the index exceeds the four rows");
    let error = error.to_string();
    assert!(
        error.contains("index 9 of a dimension of 4; -4 to 3 are valid"),
        "{error}"
    );
}

#[test]
fn what_is_not_lowered_is_refused_by_its_name() {
    let mut refused = 0;
    for program in cases()["programs"].as_array().expect("programs") {
        let Some(names) = program["refused"].as_array() else {
            continue;
        };
        for (variant, _) in program["variants"].as_object().expect("variants") {
            let name = program["name"].as_str().expect("a name");
            let path = fixtures().join(format!("{name}_{variant}.pte"));
            let error = match load("tract", &path, "forward") {
                Ok(_) => panic!("{name} was loaded"),
                Err(error) => error.to_string(),
            };
            for what in names {
                let what = what.as_str().expect("a name");
                assert!(error.contains(&format!("`{what}`")), "{what}: {error}");
            }
            assert!(
                !error.contains("Contiguous") && !error.contains("clone"),
                "{error}"
            );
            assert!(error.contains("ExecuTorch with"), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 2);
}
