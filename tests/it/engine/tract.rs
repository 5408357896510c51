//! The tract engine on the example packages, and on damaged versions of them.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_base::source::FileSource;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{Engine, EngineError, LoadOptions, LoadRequest, Provider, Session, engine};
use pkgtool_model as model;
use proptest::prelude::*;
use tempfile::TempDir;

use pkgtool_testing::onnx::{int, model as onnx, part};

const DECODER: &str = "scribe-tiny-en/mlx/scribe_tiny_en_decoder_mlx_fp32.onnx";
const DETECTOR: &str = "spotter/s/qnn/spotter_s_qnn_fp32.onnx";
const DETECTOR_FP16: &str = "spotter/s/qnn/spotter_s_qnn_fp16.onnx";

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("packages-examples")
        .join(path)
}

fn tract() -> &'static dyn Engine {
    engine("tract").expect("the engine is always available")
}

/// Returns the request to load a model, if its header is readable.
fn request(path: &Path) -> Option<LoadRequest> {
    let source = FileSource::open(path).ok()?;
    let info = model::inspect(path, &source).ok()??;
    Some(LoadRequest {
        model: path.to_owned(),
        signature: Signature::of(info.methods.first()?, None).ok()?,
        options: LoadOptions::default(),
    })
}

fn load(path: &str) -> Box<dyn Session> {
    let request = request(&example(path)).expect("an example can be read");
    tract().load(&request).expect("an example can be loaded")
}

fn load_error(request: &LoadRequest) -> EngineError {
    match tract().load(request) {
        Ok(_) => panic!("it loads"),
        Err(error) => error,
    }
}

/// Returns a tensor of varying values from -1 to 1.
fn wave(dtype: DType, shape: &[u64]) -> Tensor {
    let values = (0_u32..).map(|at| (f64::from(at) * 0.7).sin());
    let count = shape.iter().product::<u64>();
    let count = usize::try_from(count).expect("the number fits");
    Tensor::from_f64(dtype, shape.to_vec(), values.take(count)).expect("the tensor is valid")
}

fn tokens(length: u64) -> Tensor {
    let count = usize::try_from(length).expect("the number fits");
    let values = (0_u32..).map(|at| f64::from(at % 5)).take(count);
    Tensor::from_f64(DType::Int64, vec![1, length], values).expect("the tensor is valid")
}

fn assert_close(left: &Tensor, right: &Tensor, tolerance: f64) {
    assert_eq!(left.shape(), right.shape());
    let magnitude = right
        .to_f64()
        .fold(0.0, |most: f64, value| most.max(value.abs()));
    for (left, right) in left.to_f64().zip(right.to_f64()) {
        assert!(
            (left - right).abs() <= tolerance * magnitude,
            "expected {right}, got {left}"
        );
    }
}

#[test]
fn a_fixed_model_gives_the_same_with_any_number_of_threads() {
    let mut request = request(&example(DETECTOR)).expect("an example can be read");
    let image = wave(DType::Float32, &[1, 3, 64, 64]);
    let mut answers = Vec::new();
    for threads in [Some(1), Some(3), None] {
        request.options.threads = threads;
        let mut session = tract().load(&request).expect("an example can be loaded");
        let answer = session
            .run(std::slice::from_ref(&image))
            .expect("the run succeeds");
        assert_eq!(answer.outputs.len(), request.signature.outputs.len());
        let placement = session.placement();
        assert_eq!(placement.shares[0].provider, "tract");
        assert!(placement.shares[0].nodes > 5);
        answers.push(answer.outputs);
    }
    for other in &answers[1..] {
        assert_close(&other[0], &answers[0][0], 1e-5);
    }
}

#[test]
fn half_precision_is_near_single_precision() {
    let mut single = load(DETECTOR);
    let mut half = load(DETECTOR_FP16);
    let shape = [1, 3, 64, 64];
    let single = single
        .run(&[wave(DType::Float32, &shape)])
        .expect("the run succeeds");
    let half = half
        .run(&[wave(DType::Float16, &shape)])
        .expect("the run succeeds");
    assert_eq!(half.outputs[0].dtype(), DType::Float16);
    assert_close(&half.outputs[0], &single.outputs[0], 0.02);
}

/// After a few lengths the session switches to one plan for all lengths. The answers must not
/// change.
#[test]
fn every_length_gives_what_a_fresh_session_gives() {
    let states = wave(DType::Float32, &[1, 64, 21]);
    let mut session = load(DECODER);
    for length in [1, 2, 3, 4, 5, 6, 9, 2] {
        let inputs = [tokens(length), states.clone()];
        let answer = session.run(&inputs).expect("the run succeeds");
        if length % 3 == 0 {
            let fresh = load(DECODER).run(&inputs).expect("the run succeeds");
            assert_close(&answer.outputs[0], &fresh.outputs[0], 1e-4);
        }
        assert_eq!(answer.outputs[0].shape()[..2], [1, length]);
    }
}

#[test]
fn a_session_survives_an_error() {
    let mut session = load(DETECTOR);
    let wrong = session.run(&[wave(DType::Float32, &[1, 3, 5])]);
    assert!(
        matches!(wrong, Err(EngineError::Run { .. })),
        "expected a failed run, got {wrong:?}"
    );
    session
        .run(&[wave(DType::Float32, &[1, 3, 64, 64])])
        .expect("the run succeeds");
}

#[test]
fn what_it_cannot_do_is_said() {
    let mut asked = request(&example(DETECTOR)).expect("an example can be read");
    asked.options.provider = Provider::Qnn;
    let error = load_error(&asked);
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");

    // An unknown delegate.
    let mut bytes =
        fs::read(example("glimpse/coreml/glimpse_coreml_fp16.pte")).expect("the file exists");
    let (known, unknown) = (b"CoreMLBackend", b"NobodyBackend");
    let at = bytes.windows(known.len()).position(|it| it == known);
    let at = at.expect("the delegate name occurs");
    bytes[at..at + known.len()].copy_from_slice(unknown);
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("model.pte");
    fs::write(&path, bytes).expect("the file is written");
    let error = load_error(&request(&path).expect("the header is valid"));
    assert!(error.is_about_the_engine(), "{error}");
    assert!(error.to_string().contains("NobodyBackend"), "{error}");
}

#[test]
fn operators_without_code_are_named_together() {
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("model.onnx");
    // Internal operators of ONNX Runtime differ from build to build.
    let node = |operator: &str, from: &str, to: &str| {
        let names = [(1, from), (2, to), (4, operator), (7, "com.microsoft")];
        let fields = names.map(|(field, name)| part(field, &[name.as_bytes()]));
        part(1, &[&fields.concat()])
    };
    let value = |field: u64, name: &str| {
        let float_scalar = part(1, &[&int(1, 1), &part(2, &[])]);
        part(
            field,
            &[&part(1, &[name.as_bytes()]), &part(2, &[&float_scalar])],
        )
    };
    let graph = [
        node("Cnov", "x", "h"),
        node("Rule", "h", "y"),
        value(11, "x"),
        value(12, "y"),
    ];
    fs::write(&path, onnx(&[&graph.concat()])).expect("the file is written");
    let error = load_error(&request(&path).expect("the header is valid"));
    let EngineError::Unsupported { operators, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(operators, ["com.microsoft::Cnov", "com.microsoft::Rule"]);
}

/// Loads and runs a damaged model with the signature of the intact one. Only a panic or an empty
/// error message fails.
fn try_damaged(path: &Path, whole: &LoadRequest) {
    let mut asked = request(path).unwrap_or_else(|| whole.clone());
    path.clone_into(&mut asked.model);
    match tract().load(&asked) {
        Ok(mut session) => {
            let _ = session.run(&[wave(DType::Float32, &[1, 3, 64, 64])]);
        }
        Err(EngineError::Load { reason, .. } | EngineError::Unsupported { reason, .. }) => {
            assert!(reason.len() > 10, "{reason}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_truncated_model_is_an_error_of_loading() {
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("model.onnx");
    let whole = request(&example(DETECTOR)).expect("an example can be read");
    let bytes = fs::read(&whole.model).expect("an example can be read");
    for length in (0..bytes.len()).step_by(131) {
        fs::write(&path, &bytes[..length]).expect("the file is written");
        try_damaged(&path, &whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_model_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let folder = TempDir::new().expect("a temporary directory");
        let path = folder.path().join("model.onnx");
        let whole = request(&example(DETECTOR)).expect("an example can be read");
        let mut bytes = fs::read(&whole.model).expect("an example can be read");
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fs::write(&path, bytes).expect("the file is written");
        try_damaged(&path, &whole);
    }
}

#[test]
fn an_index_outside_a_table_is_the_inputs_fault() {
    let mut session = load("hush-sentence/mlx/hush_sentence_mlx_fp32.onnx");
    let mut run = |index: i64| {
        let bytes = [5, 8, index].map(i64::to_le_bytes).concat();
        let ids = Tensor::new(DType::Int64, vec![1, 3], bytes).expect("the data fits the shape");
        session.run(&[ids])
    };
    for index in [64, 100_000, -65, i64::MIN, i64::MAX] {
        run(63).expect("the last row is one");
        let failed = run(index).expect_err("the row is missing");
        let EngineError::Input { reason, .. } = &failed else {
            panic!("{failed}");
        };
        assert!(reason.contains(&format!("index {index} ")), "{reason}");
        run(-64).expect("negative ones count from the end");
    }
}
