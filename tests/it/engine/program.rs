//! ExecuTorch programs on all engines, compared with the answers of ExecuTorch's own runtime in
//! `tests/fixtures/programs`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pkgtool_base::source::FileSource;
use pkgtool_engine::tensor::{DType, Signature, Tensor, npy};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Rounding, Session, engine};
use pkgtool_model as model;
use pkgtool_model::executorch::body::{ProgramBody, known_defects};
use serde_json::Value;

use crate::support::other_inputs::disturbed;
use crate::support::run::pkgtool;

#[cfg(feature = "executorch")]
use crate::support::environment::EnvironmentPiece;
#[cfg(feature = "executorch")]
use pkgtool_engine::tensor::input::{self, Generator, InputArgs};

/// Maximum difference of floats relative to the largest magnitude of the output.
const TOLERANCE: f64 = 1e-4;

/// Number of runs of each case in a session, with other inputs in between.
const ROUNDS: usize = 3;

/// Programs that an engine rejects, with the names of the unsupported operators.
const REFUSED: [(&str, &str, &[&str]); 3] = [
    (
        "tract",
        "fourier",
        &[
            "aten::_fft_c2r.out",
            "aten::_fft_r2c.out",
            "aten::view_as_real_copy.out",
        ],
    ),
    // Loops.
    (
        "tract",
        "mapped",
        &["executorch_prim::et_copy_index.tensor"],
    ),
    (
        "tract",
        "scanned",
        &["executorch_prim::et_copy_index.tensor"],
    ),
];

/// Prefix of operators that are missing from the libraries of ExecuTorch's Python package.
const MISSING_NATIVELY: &str = "llama::";

/// Returns the operators of a method for which an engine rejects it.
fn refused(engine: &str, program: &Value, method: &Value) -> Vec<String> {
    let known = REFUSED
        .iter()
        .find(|(by, refused, _)| *by == engine && program["name"] == *refused);
    if let Some((.., operators)) = known {
        return operators.iter().map(|name| (*name).to_owned()).collect();
    }
    let operators = method["operators"].as_array().into_iter().flatten();
    let operators = operators.filter_map(Value::as_str);
    let missing =
        operators.filter(|name| engine == "executorch" && name.starts_with(MISSING_NATIVELY));
    missing.map(str::to_owned).collect()
}

/// Outputs (by program and label) that the runtime itself computes wrongly, with the operator as
/// listed in `src`.
const WRONG_IN_THE_RUNTIME: [(&str, &str, &str); 3] = [
    ("integers_64", "sum", "aten::sum.IntList_out"),
    ("unknown_sizes", "nonzero", "aten::nonzero.out"),
    ("dynamic_int8_convolution", "", "XNNConv2d"),
];

/// Returns the directory of programs: the fixtures, or others exported in the same form
/// (`PKGTOOL_TEST_PROGRAMS`, see `tests/programs`).
fn fixtures() -> PathBuf {
    match std::env::var_os("PKGTOOL_TEST_PROGRAMS") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs"),
    }
}

/// Loads a method of a program.
pub(super) fn load(
    engine_name: &str,
    path: &Path,
    method: &str,
) -> Result<(Box<dyn Session>, Signature), EngineError> {
    load_rounding(engine_name, path, method, Rounding::Wide)
}

/// Like [`load`], with the choice of how half precision is rounded.
pub(super) fn load_rounding(
    engine_name: &str,
    path: &Path,
    method: &str,
    rounding: Rounding,
) -> Result<(Box<dyn Session>, Signature), EngineError> {
    let (info, _) = model::open(path).expect("fixtures can be read");
    let method = info.method(method).expect("the method is there");
    let signature = Signature::of(method, None).expect("all values are tensors or numbers");
    let engine = engine(engine_name).expect("the engine is part of this build");
    let request = LoadRequest {
        model: path.to_owned(),
        signature: signature.clone(),
        options: LoadOptions {
            threads: Some(1),
            rounding,
            ..LoadOptions::default()
        },
    };
    Ok((engine.load(&request)?, signature))
}

/// The arrays of a program's test cases.
pub(crate) struct Arrays(zip::ZipArchive<File>);

impl Arrays {
    pub(crate) fn open(path: &Path) -> Self {
        let file = File::open(path).expect("fixtures can be read");
        Self(zip::ZipArchive::new(file).expect("the file is an archive"))
    }

    /// Returns the tensor that a case describes.
    pub(crate) fn tensor(&mut self, described: &Value) -> Tensor {
        let Some(name) = described["array"].as_str() else {
            return number(&described["value"]);
        };
        let dtype = described["dtype"].as_str().unwrap_or("float32");
        let dtype = DType::ALL
            .into_iter()
            .find(|known| known.to_string() == dtype)
            .expect("a known dtype");
        let mut entry = self
            .0
            .by_name(&format!("{name}.npy"))
            .expect("the array is there");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("the archive is whole");
        let array = npy::read(&mut bytes.as_slice()).expect("the file is an array");
        let shape = array.shape().to_vec();
        Tensor::new(dtype, shape, array.into_bytes()).expect("the data fits the shape")
    }
}

/// Returns the tensor of a scalar argument.
fn number(value: &Value) -> Tensor {
    let (dtype, value) = match value {
        Value::Bool(value) => (DType::Bool, Some(f64::from(u8::from(*value)))),
        Value::Number(number) if number.is_i64() => (DType::Int64, number.as_f64()),
        other => (DType::Float64, other.as_f64()),
    };
    Tensor::from_f64(dtype, Vec::new(), value).expect("the tensor is valid")
}

/// Describes the difference between an output and the expected one, if there is any.
fn difference(found: &Tensor, expected: &Tensor, step: Option<f64>) -> Option<String> {
    if (found.dtype(), found.shape()) != (expected.dtype(), expected.shape()) {
        return Some(format!("{found:?} instead of {expected:?}"));
    }
    let finite = expected.to_f64().filter(|value| value.is_finite());
    let magnitude = finite.fold(0.0, |most: f64, value| most.max(value.abs()));
    let rounding = match expected.dtype() {
        // XNNPACK accumulates products in float16.
        DType::Float16 => 2e-3,
        DType::Bfloat16 => 8e-3,
        _ => TOLERANCE,
    };
    let allowed = match (step, expected.dtype().is_float()) {
        (Some(step), _) => step * 1.001,
        (None, true) => rounding * magnitude,
        (None, false) => 0.0,
    };
    let pairs = found.to_f64().zip(expected.to_f64()).enumerate();
    let worst = pairs
        .filter(|(_, (found, expected))| {
            found.total_cmp(expected).is_ne() && !(found.is_nan() && expected.is_nan())
        })
        .map(|(at, (found, expected))| ((found - expected).abs(), at, found, expected))
        .filter(|(difference, ..)| difference.is_nan() || *difference > allowed)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    worst.map(|(difference, at, found, expected)| {
        format!("element {at} is {found}, not {expected}: {difference:e} of {magnitude} (allowed {allowed:e})")
    })
}

/// Runs all cases of a program and appends each failure to the report as a line.
fn run_program(engine: &str, program: &Value, report: &mut String) -> usize {
    let file = program["file"].as_str().expect("a file");
    if program["sequence"].is_array() {
        // Skips methods that share a state: a session has one method and its own state.
        return 0;
    }
    let path = fixtures().join(file);
    let mut arrays = Arrays::open(&path.with_extension("npz"));
    let mut ran = 0;
    for (name, method) in program["methods"].as_object().expect("methods") {
        let refused = refused(engine, program, method);
        // Either consecutive calls of one loaded method, or independent cases.
        let sequence = program["sequence"].as_bool() == Some(true)
            || method["sequence"].as_bool() == Some(true);
        let (mut session, signature) = match load(engine, &path, name) {
            Ok(loaded) if refused.is_empty() => loaded,
            Ok(_) => panic!("{file} is no longer rejected"),
            Err(EngineError::Unsupported { operators, .. }) if !refused.is_empty() => {
                assert_eq!(operators, refused);
                continue;
            }
            Err(error) => {
                let _ = writeln!(report, "{file} {name}: {error}");
                continue;
            }
        };
        for round in 1..=ROUNDS {
            session.reset_state().expect("the state is reset");
            for (index, case) in method["cases"]
                .as_array()
                .expect("a list")
                .iter()
                .enumerate()
            {
                let mut list = |side: &str| -> Vec<Tensor> {
                    let described = case[side].as_array().expect("a list").iter();
                    described
                        .map(|described| arrays.tensor(described))
                        .collect()
                };
                let (inputs, expected) = (list("inputs"), list("outputs"));
                assert_eq!(inputs.len(), signature.inputs.len(), "{file} {name}");
                let place = format!("{file} {name} case {index} round {round}");
                if !sequence {
                    session.reset_state().expect("the state is reset");
                }
                match session.run(&inputs) {
                    Ok(answer) => {
                        let labels = &method["labels"];
                        let told = differences(program, labels, case, &answer.outputs, &expected);
                        for told in told {
                            let _ = writeln!(report, "{place} {told}");
                        }
                        ran += 1;
                    }
                    Err(error) => {
                        let _ = writeln!(report, "{place}: {error}");
                    }
                }
                if round < ROUNDS && !sequence {
                    // The engine may reject these inputs.
                    let _ = session.run(&disturbed(&inputs));
                }
            }
        }
    }
    ran
}

/// Describes the differences of a case's outputs, one line per output.
fn differences(
    program: &Value,
    labels: &Value,
    case: &Value,
    found: &[Tensor],
    expected: &[Tensor],
) -> Vec<String> {
    assert_eq!(found.len(), expected.len(), "{}", program["file"]);
    let mut told = Vec::new();
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let label = labels[at].as_str().unwrap_or_default();
        let is_known =
            |(known, of, _): &(&str, &str, &str)| program["name"] == *known && label == *of;
        if WRONG_IN_THE_RUNTIME.iter().any(is_known) {
            assert_eq!(
                found.shape(),
                expected.shape(),
                "{} {label}",
                program["file"]
            );
            continue;
        }
        let step = case["outputs"][at]["step"].as_f64();
        if let Some(difference) = difference(found, expected, step) {
            told.push(format!("output {at} {label}: {difference}"));
        }
    }
    told
}

/// Runs all programs on an engine.
fn agree(engine: &str) {
    let text = std::fs::read_to_string(fixtures().join("cases.json")).expect("the file exists");
    let described: Value = serde_json::from_str(&text).expect("the text is JSON");
    let only = std::env::var("PKGTOOL_TEST_PROGRAM").ok();
    let mut report = String::new();
    let mut ran = 0;
    for program in described["programs"].as_array().expect("a list") {
        let name = program["name"].as_str().expect("a name");
        if only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
        {
            ran += run_program(engine, program, &mut report);
        }
    }
    assert!(ran > 0, "no program ran");
    assert!(report.is_empty(), "of {ran} runs:\n{report}");
}

#[test]
fn lowered_programs_agree_with_the_runtime() {
    agree("tract");
}

#[test]
fn a_bundled_program_is_held_against_its_own_cases() {
    let path = fixtures().join("bundled.bpte");
    let run = |path: &Path, more: &[&str]| {
        let path = path.to_str().expect("the path is UTF-8");
        let arguments = ["run", "--bundled", "--engine", "tract", path];
        pkgtool(arguments.into_iter().chain(more.iter().copied())).run()
    };
    let right = run(&path, &[]);
    assert_eq!(right.code, 0, "{}", right.stderr);
    assert!(
        right.stdout.ends_with("4 of 4 cases agree\n"),
        "{}",
        right.stdout
    );

    // An expectation that no answer can meet.
    let mut arrays = Arrays::open(&path.with_extension("npz"));
    let described = serde_json::json!({"array": "network0o0"});
    let expected = arrays.tensor(&described).bytes()[..4].to_vec();
    let mut bytes = std::fs::read(&path).expect("the file is readable");
    let places = bytes.windows(4).rposition(|four| four == expected);
    let place = places.expect("the program holds what it expects");
    bytes[place..place + 4].copy_from_slice(&9.0_f32.to_le_bytes());
    let folder = tempfile::tempdir().expect("a directory");
    let changed = folder.path().join("changed.bpte");
    std::fs::write(&changed, bytes).expect("the file is written");
    let wrong = run(&changed, &["--json"]);
    assert_eq!(wrong.code, 1, "{}", wrong.stderr);
    let cases = &wrong.json()["cases"];
    let agree = |case: &usize| cases[*case]["agrees"] == true;
    assert_eq!((0..4).filter(agree).count(), 3, "{cases}");

    let plain = run(&fixtures().join("counter.pte"), &[]);
    assert_eq!(plain.code, 2, "{}", plain.stdout);
    assert!(plain.stderr.contains("no test cases"), "{}", plain.stderr);
}

/// Compares the ExecuTorch runtime with its own answers, which tests the calls to it.
#[cfg(feature = "executorch")]
#[test]
fn programs_run_natively() {
    if EnvironmentPiece::ExecuTorch
        .or_skip("programs on ExecuTorch")
        .is_some()
    {
        agree("executorch");
    }
}

/// Runs the example packages on both engines. They combine the operators that the fixtures contain
/// individually.
#[cfg(feature = "executorch")]
#[test]
fn example_programs_agree_between_engines() {
    if EnvironmentPiece::ExecuTorch
        .or_skip("examples on ExecuTorch")
        .is_none()
    {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    let files = walkdir::WalkDir::new(folder).sort_by_file_name();
    let files = files
        .into_iter()
        .map(|entry| entry.expect("examples").into_path());
    let mut report = String::new();
    let mut compared = 0;
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "pte")) {
        let (info, _) = model::open(&path).expect("examples can be read");
        for method in info.methods.iter().filter(|method| !method.constant) {
            let (mut lowered, signature) =
                load("tract", &path, &method.name).expect("every example is lowered");
            let inputs = input::assemble(
                &signature,
                &InputArgs {
                    default: Some(Generator::Random { seed: 3 }),
                    ..InputArgs::default()
                },
            );
            let inputs = inputs.expect("random values fit");
            let found = lowered.run(&inputs).expect("the run succeeds").outputs;
            let elsewhere = |id: &str| {
                ["MLX", "Vulkan", "CoreML"]
                    .iter()
                    .any(|it| id.starts_with(it))
            };
            let mut delegates = method.delegates.iter();
            if delegates.any(|delegate| elsewhere(&delegate.id)) {
                // ExecuTorch lacks this backend here.
                continue;
            }
            let (mut native, _) =
                load("executorch", &path, &method.name).expect("the program loads");
            let expected = native.run(&inputs).expect("the run succeeds").outputs;
            compared += 1;
            for (found, expected) in found.iter().zip(&expected) {
                // Dynamic quantization computes its steps at run time, so some values fall on the
                // other side of a step.
                let dynamic = path.to_string_lossy().contains("8da4w");
                let largest = expected
                    .to_f64()
                    .fold(0.0, |most: f64, value| most.max(value.abs()));
                let step = dynamic.then_some(5e-3 * largest);
                if let Some(difference) = difference(found, expected, step) {
                    let _ = writeln!(report, "{} {}: {difference}", path.display(), method.name);
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(compared >= 15, "only {compared} methods were compared");
}

#[test]
fn what_the_runtime_computes_wrongly_is_told() {
    for (program, _, operator) in WRONG_IN_THE_RUNTIME {
        let path = fixtures().join(program).with_extension("pte");
        let source = FileSource::open(&path).expect("a fixture");
        let body = ProgramBody::read(&source).expect("a sound program");
        let method = body.method("forward").expect("the method exists");
        let known = known_defects(&source, method);
        let known = known.iter().find(|known| known.operator == operator);
        let known = known.unwrap_or_else(|| panic!("{program} shows {operator}"));
        let shown = pkgtool([OsStr::new("inspect"), path.as_os_str()]);
        let shown = shown.run().expect_code(0).stdout;
        let line = format!("wrong in ExecuTorch  {operator} {}", known.what);
        assert!(shown.contains(&line), "{shown}");
        let json = pkgtool([
            OsStr::new("inspect"),
            OsStr::new("--json"),
            path.as_os_str(),
        ]);
        let json = json.run().expect_code(0).json();
        let told = &json["methods"]["forward"]["wrong_in_executorch"];
        let told = told.as_array().expect("a list");
        assert!(told.iter().any(|it| it["operator"] == operator), "{told:?}");
        let arguments = ["run", "--once", "--engine", "tract", "--input", "random"];
        let ran = pkgtool(arguments.iter().map(OsStr::new).chain([path.as_os_str()]));
        let ran = ran.run().expect_code(0);
        let note = format!("note: ExecuTorch's `{operator}` {}", known.what);
        assert_eq!(ran.stderr.contains(&note), !known.is_rare, "{}", ran.stderr);
    }
    let path = fixtures().join("products.pte");
    let shown = pkgtool([OsStr::new("inspect"), path.as_os_str()]).run();
    assert!(!shown.expect_code(0).stdout.contains("wrong in ExecuTorch"));
}

#[test]
fn positions_outside_a_cache_are_refused_and_the_cache_stays() {
    let path = fixtures().join("cache_of_llama.pte");
    let at = |position: i64| {
        let hidden = (0_u8..8).map(|x| f64::from(x) / 8.0 - 0.4);
        let hidden = Tensor::from_f64(DType::Float32, vec![1, 1, 8], hidden);
        let bytes = position.to_le_bytes().to_vec();
        [
            hidden.expect("the tensor is valid"),
            Tensor::new(DType::Int64, vec![1], bytes).expect("the tensor is valid"),
        ]
    };
    let (mut plain, _) = load("tract", &path, "forward").expect("the model loads");
    let expected: Vec<_> = (0..3)
        .map(|position| plain.run(&at(position)).expect("the inputs fit").outputs)
        .collect();
    let (mut session, _) = load("tract", &path, "forward").expect("the model loads");
    for (position, expected) in (0..).zip(&expected) {
        for outside in [-1, 1000] {
            match session.run(&at(outside)) {
                Err(EngineError::Input {
                    operator, reason, ..
                }) => {
                    let operator = operator.expect("an operator");
                    assert!(operator.starts_with("llama::"), "{operator}");
                    let said = format!("position {outside} for 1 values in a cache of ");
                    assert!(reason.starts_with(&said), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        let found = session.run(&at(position)).expect("the inputs fit").outputs;
        assert_eq!(found, *expected, "at {position}");
    }
}

#[test]
fn indices_outside_a_quantized_table_are_refused() {
    for (program, operator) in [
        (
            "embedding_4_bits",
            "quantized_decomposed::embedding_4bit.out",
        ),
        (
            "embedding_2_bits",
            "quantized_decomposed::embedding_2bit.out",
        ),
        (
            "embedding_8_bits",
            "quantized_decomposed::embedding_byte.out",
        ),
    ] {
        let path = fixtures().join(program).with_extension("pte");
        let (mut session, signature) = load("tract", &path, "forward").expect("the model loads");
        let shape: Vec<u64> = signature.inputs[0]
            .dims
            .iter()
            .flatten()
            .map(|dim| u64::try_from(dim.config_size()).expect("fixed sizes"))
            .collect();
        let count = usize::try_from(shape.iter().product::<u64>()).expect("the number fits");
        let with = |index: i64| {
            let mut ids = vec![1_i64; count];
            ids[count - 1] = index;
            let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            Tensor::new(DType::Int64, shape.clone(), bytes).expect("the tensor is valid")
        };
        session.run(&[with(0)]).expect("the index is in range");
        for index in [-1, 1000] {
            let error = session
                .run(&[with(index)])
                .expect_err("the index is out of range");
            let EngineError::Input {
                operator: Some(found),
                reason,
                ..
            } = &error
            else {
                panic!("{error}");
            };
            assert!(
                found.starts_with("quantized_decomposed::embedding_"),
                "{found} {operator}"
            );
            assert!(
                reason.starts_with(&format!("index {index} of ")),
                "{reason}"
            );
        }
        session.run(&[with(0)]).expect("the index is in range");
    }
}
