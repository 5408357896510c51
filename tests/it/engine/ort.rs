//! The ONNX Runtime engine on real models, on machines with its library.
//!
//! A process can load only one ONNX Runtime library, so tests of another one run in worker
//! processes.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_engine::ort::OnnxRuntime;
use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::{DType, Tensor, TensorSpec};
use pkgtool_engine::{Engine, EngineError, LoadRequest, Placement, Provider, Session};
use pkgtool_model::Dim;
use tempfile::TempDir;

use crate::support::engines;
use crate::support::graph::{FLOAT, Graph, Size};
use crate::support::loading::{launcher, request};
use crate::support::onnx;

fn on(path: &Path, library: PathBuf, provider: Provider) -> LoadRequest {
    let mut request = request(path);
    request.options.library = Some(library);
    request.options.provider = provider;
    request.options.observe = true;
    request
}

/// Loads a session in this process, always with the library of [`engines::ort`].
fn load(request: &LoadRequest) -> Box<dyn Session> {
    OnnxRuntime.load(request).expect("the model loads")
}

fn worker(request: &LoadRequest) -> Result<Worker, EngineError> {
    launcher(None).load("ort", request)
}

fn tensor(spec: &TensorSpec) -> Tensor {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        // A sum such as past plus new tokens gets the size two for each term.
        Dim::Dynamic {
            name: Some(name), ..
        } => 2 * name.split('+').count() as u64,
        _ => 2,
    };
    let shape: Vec<u64> = match &spec.dims {
        Some(dims) => dims.iter().map(size).collect(),
        None => vec![4],
    };
    let count: u64 = shape.iter().product();
    let values =
        (0..count).map(|index| f64::from(u8::try_from(index % 3).expect("the number fits")));
    Tensor::from_f64(spec.dtype, shape, values.map(|value| value / 2.0))
        .expect("the tensor is valid")
}

fn inputs(request: &LoadRequest) -> Vec<Tensor> {
    request.signature.inputs.iter().map(tensor).collect()
}

/// Returns every ONNX model of the examples.
fn examples() -> Vec<PathBuf> {
    let mut models = Vec::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "onnx")
            {
                models.push(path);
            }
        }
    }
    models.sort();
    models
}

fn example(name: &str) -> PathBuf {
    let models = examples();
    let found = models.into_iter().find(|path| path.ends_with(name));
    found.expect("the example exists")
}

#[track_caller]
fn close(found: &[Tensor], expected: &[Tensor], tolerance: f64) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.shape(), expected.shape());
        for (a, b) in found.to_f64().zip(expected.to_f64()) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}");
        }
    }
}

fn providers(placement: &Placement) -> Vec<&str> {
    let shares = placement.shares.iter();
    shares.map(|share| share.provider.as_str()).collect()
}

#[test]
fn every_example_runs() {
    let Some(_) = engines::ort() else { return };
    let models = examples();
    assert!(models.len() >= 9);
    for path in models {
        let mut request = request(&path);
        request.options.observe = true;
        let inputs = inputs(&request);
        let mut session = load(&request);
        let first = session.run(&inputs).expect("the run succeeds");
        let second = session.run(&inputs).expect("the run succeeds again");
        assert_eq!(first.outputs.len(), request.signature.outputs.len());
        assert_eq!(first.outputs, second.outputs, "{}", path.display());
        let placement = session.placement();
        assert_eq!(providers(&placement), ["CPUExecutionProvider"]);
        assert!(placement.shares[0].nodes > 0);
        assert!((placement.shares[0].node_share - 1.0).abs() < 1e-9);
    }
}

#[test]
fn every_dtype_and_odd_shape_passes_through() {
    let Some(_) = engines::ort() else { return };
    let directory = TempDir::new().expect("a directory");
    for dtype in DType::ALL {
        let path = directory.path().join(format!("{dtype}.onnx"));
        fs::write(&path, onnx::identity(dtype.name(), None)).expect("a file");
        let mut request = request(&path);
        // The file does not declare the rank.
        assert_eq!(request.signature.inputs[0].dims, None);
        request.options.observe = false;
        let mut session = load(&request);
        for shape in [
            vec![],
            vec![0],
            vec![3, 0, 2],
            vec![1],
            vec![2, 3],
            vec![1, 1, 7],
        ] {
            let given = Tensor::from_f64(dtype, shape, (0_u8..).map(f64::from));
            let given = [given.expect("the tensor is valid")];
            let answer = session.run(&given).expect("the run succeeds");
            assert_eq!(answer.outputs, given, "{dtype}");
        }
        assert_eq!(session.placement(), Placement::default());
    }
}

#[test]
fn booleans_may_be_any_byte() {
    let Some(_) = engines::ort() else { return };
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("bool.onnx");
    fs::write(&path, onnx::identity("bool", Some(&[3]))).expect("a file");
    let given = Tensor::new(DType::Bool, vec![3], vec![0, 7, 1]).expect("the data fits the shape");
    let answer = load(&request(&path))
        .run(&[given])
        .expect("the run succeeds");
    assert_eq!(answer.outputs[0].bytes(), [0, 1, 1]);
}

/// ONNX Runtime's optimizer merges two quantizations into one whose results lie on the grid of
/// neither.
#[test]
fn two_quantisations_in_a_row_are_two() {
    let Some(_) = engines::ort() else { return };
    let mut graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(4)])
        .output("y", FLOAT);
    for (name, step, zero) in [("coarse", 0.0625, 38), ("other", 0.05, 128)] {
        graph = graph.number(name, step).byte(&format!("{name}.zero"), zero);
    }
    let pair = |graph: Graph, from: &str, by: &str, to: &str| {
        let (zero, bytes) = (format!("{by}.zero"), format!("{to}.bytes"));
        graph
            .node("QuantizeLinear", &[from, by, &zero], &bytes, &[])
            .node("DequantizeLinear", &[&bytes, by, &zero], to, &[])
    };
    let graph = pair(pair(graph, "x", "coarse", "middle"), "middle", "other", "y");
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("twice.onnx");
    fs::write(&path, graph.bytes()).expect("a file");
    let given = Tensor::from_f64(DType::Float32, vec![4], [-1.183, 0.29, 1.31, 0.09]);
    let given = given.expect("the tensor is valid");
    let mut session = load(&request(&path));
    for _ in 0..3 {
        let answer = session
            .run(std::slice::from_ref(&given))
            .expect("the run succeeds");
        let expected = [-1.2, 0.3, 1.3, 0.05];
        for (found, expected) in answer.outputs[0].to_f64().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
    }
}

#[test]
fn a_model_without_inputs_runs() {
    let Some(_) = engines::ort() else { return };
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("constant.onnx");
    fs::write(&path, onnx::constant()).expect("a file");
    let answer = load(&request(&path)).run(&[]).expect("the run succeeds");
    assert_eq!(answer.outputs[0].to_f64().collect::<Vec<_>>(), [1.5]);
}

#[test]
fn a_failed_run_names_the_operator_and_the_session_lives_on() {
    let Some(_) = engines::ort() else { return };
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("add.onnx");
    fs::write(&path, onnx::binary("Add", "float32")).expect("a file");
    let mut session = load(&request(&path));
    let of = |size: u64| Tensor::zeros(DType::Float32, vec![size]).expect("the tensor is valid");
    match session.run(&[of(2), of(3)]) {
        Err(EngineError::Run { operator, .. }) => assert_eq!(operator.as_deref(), Some("Add")),
        other => panic!("{other:?}"),
    }
    session
        .run(&[of(3), of(3)])
        .expect("the run succeeds after an error");
}

#[test]
fn operators_without_code_are_unsupported() {
    let Some(_) = engines::ort() else { return };
    let directory = TempDir::new().expect("a directory");
    // The ONNX standard defines it, but the library has no kernel for this type.
    let path = directory.path().join("unknown.onnx");
    fs::write(&path, onnx::binary("Min", "int16")).expect("a file");
    match OnnxRuntime.load(&request(&path)).err() {
        Some(EngineError::Unsupported { operators, .. }) => assert_eq!(operators, ["Min"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn programs_are_refused() {
    let error = OnnxRuntime.load(&LoadRequest {
        model: PathBuf::from("model.pte"),
        ..request(&example("glimpse_qnn_int8.onnx"))
    });
    let error = error.err().map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some(
            "the ort engine cannot run the model: ONNX Runtime reads ONNX models, not ExecuTorch programs"
        )
    );
}

#[test]
fn a_named_library_that_cannot_be_used_is_an_error() {
    let directory = TempDir::new().expect("a directory");
    let model = example("glimpse_qnn_int8.onnx");
    for (name, bytes, expected) in [
        ("none.so", None, "file not found"),
        ("garbage.so", Some("garbage"), "garbage.so"),
        (
            "libonnxruntime.so.1.20.0",
            Some("old"),
            "unsupported version 1.20.0: expected 1.24 or later",
        ),
    ] {
        let library = directory.path().join(name);
        if let Some(bytes) = bytes {
            fs::write(&library, bytes).expect("a file");
        }
        match worker(&on(&model, library, Provider::Cpu)) {
            Err(EngineError::Load { reason, .. }) => {
                assert!(reason.contains("named by --ort-lib"), "{reason}");
                assert!(reason.contains(expected), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_provider_that_is_not_there_is_unavailable() {
    let Some(library) = engines::ort() else {
        return;
    };
    let model = example("glimpse_qnn_int8.onnx");
    match worker(&on(&model, library, Provider::Xnnpack)) {
        Err(EngineError::Unavailable { what, .. }) => {
            assert_eq!(what, "ONNX Runtime's xnnpack provider");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn qnn_runs_beside_the_cpu() {
    let Some(library) = engines::qnn() else {
        return;
    };
    let model = example("spotter_s_qnn_fp32.onnx");
    let cpu = request(&model);
    let inputs = inputs(&cpu);
    let expected = load(&cpu).run(&inputs).expect("the run succeeds").outputs;
    let mut wish = on(&model, library, Provider::Qnn);
    wish.options.strict = true;
    let mut session = worker(&wish).expect("QNN is set up");
    let answer = session.run(&inputs).expect("the run succeeds");
    close(&answer.outputs, &expected, 2e-2);
    assert_eq!(providers(&session.placement()), ["QNNExecutionProvider"]);
}

#[test]
fn webgpu_runs_and_strictness_is_kept() {
    let Some(library) = engines::webgpu() else {
        return;
    };
    let directory = TempDir::new().expect("a directory");
    let model = directory.path().join("add.onnx");
    fs::write(&model, onnx::binary("Add", "float32")).expect("a file");
    let mut wish = on(&model, library, Provider::WebGpu);
    wish.options.strict = true;
    let inputs = inputs(&wish);
    let mut session = worker(&wish).expect("WebGPU is set up");
    let answer = session.run(&inputs).expect("the run succeeds");
    let expected = load(&request(&model))
        .run(&inputs)
        .expect("the run succeeds");
    close(&answer.outputs, &expected.outputs, 1e-5);
    assert_eq!(providers(&session.placement()), ["WebGpuExecutionProvider"]);

    fs::write(&model, onnx::binary("Add", "float64")).expect("a file");
    wish.signature = request(&model).signature;
    match worker(&wish) {
        Err(EngineError::Unsupported { reason, .. }) => assert!(reason.contains("CPU"), "{reason}"),
        other => panic!("{other:?}"),
    }
    wish.options.strict = false;
    let inputs: Vec<Tensor> = wish.signature.inputs.iter().map(tensor).collect();
    let mut session = worker(&wish).expect("the CPU takes it");
    session.run(&inputs).expect("the run succeeds");
    assert_eq!(providers(&session.placement()), ["CPUExecutionProvider"]);
}
