//! ExecuTorch programs give the outputs that `PyTorch` gave for the exported networks.
//!
//! `made.json` is written by the `make.py` beside it; `kept.json` describes programs from other
//! sources.

use std::collections::BTreeMap;
use std::fs::{self, File};

use pkgtool_engine::tensor::{DType, Tensor, npy};
use pkgtool_engine::{EngineError, LoadRequest, Placement, Provider, Session};
use serde::Deserialize;
use tempfile::TempDir;

use super::{fixtures, is_there, load, request, worker};

#[derive(Debug, Deserialize)]
struct Program {
    file: String,
    method: String,
    /// Calls of one loaded method, in order.
    calls: Vec<Call>,
    /// The step of a quantized output.
    step: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Call {
    inputs: Vec<String>,
    outputs: Vec<String>,
}

fn programs() -> BTreeMap<String, Program> {
    let mut all = BTreeMap::new();
    for file in ["made.json", "kept.json"] {
        let text = fs::read_to_string(fixtures().join(file)).expect("a fixture");
        let programs: BTreeMap<String, Program> = serde_json::from_str(&text).expect("JSON");
        all.extend(programs);
    }
    all
}

fn program(name: &str) -> (Program, LoadRequest) {
    let program = programs().remove(name).expect("a program of this name");
    let request = request(&fixtures().join(&program.file), &program.method);
    (program, request)
}

/// Reads the array in a file. NumPy lacks bfloat16, so its arrays contain the raw bits.
fn array(path: &str, dtype: DType) -> Tensor {
    let mut file = File::open(fixtures().join(path)).expect("a fixture");
    let tensor = npy::read(&mut file).expect("an array");
    if dtype != DType::Bfloat16 {
        return tensor;
    }
    let shape = tensor.shape().to_vec();
    Tensor::new(dtype, shape, tensor.into_bytes()).expect("the bits fit")
}

impl Call {
    fn inputs(&self, request: &LoadRequest) -> Vec<Tensor> {
        let specs = &request.signature.inputs;
        assert_eq!(specs.len(), self.inputs.len());
        let inputs = specs.iter().zip(&self.inputs);
        inputs.map(|(spec, path)| array(path, spec.dtype)).collect()
    }

    fn outputs(&self, request: &LoadRequest) -> Vec<Tensor> {
        let specs = &request.signature.outputs;
        assert_eq!(specs.len(), self.outputs.len());
        let outputs = specs.iter().zip(&self.outputs);
        outputs
            .map(|(spec, path)| array(path, spec.dtype))
            .collect()
    }
}

#[track_caller]
fn agree(name: &str, found: &[Tensor], expected: &[Tensor], step: Option<f64>) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.dtype(), expected.dtype(), "{name}");
        assert_eq!(found.shape(), expected.shape(), "{name}");
        for (a, b) in found.to_f64().zip(expected.to_f64()) {
            let most = step.map_or(1e-5 * (1.0 + b.abs()), |step| step * 1.001);
            assert!((a - b).abs() <= most, "{name}: expected {b}, got {a}");
        }
    }
}

#[test]
fn every_program_agrees() {
    if !is_there("every_program_agrees") {
        return;
    }
    let programs = programs();
    assert!(programs.len() >= 22);
    for (name, program) in &programs {
        let request = request(&fixtures().join(&program.file), &program.method);
        let mut here = load(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut there = worker(&request).unwrap_or_else(|error| panic!("{name}: {error}"));
        for call in &program.calls {
            let inputs = call.inputs(&request);
            let outputs = call.outputs(&request);
            for session in [&mut *here, &mut there as &mut dyn Session] {
                let answer = session.run(&inputs);
                let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
                agree(name, &answer.outputs, &outputs, program.step);
            }
        }
    }
}

#[test]
fn sessions_have_a_state_each() {
    if !is_there("sessions_have_a_state_each") {
        return;
    }
    let (program, request) = program("cache_xnnpack_fp32");
    let mut sessions = [load(&request), load(&request)].map(|it| it.expect("the model loads"));
    let [first, second] = &mut sessions;
    let expect = |session: &mut Box<dyn Session>, call: &Call| {
        let answer = session
            .run(&call.inputs(&request))
            .expect("the run succeeds");
        agree("cache", &answer.outputs, &call.outputs(&request), None);
    };
    // The second session starts while the first is in the middle of its calls.
    for call in &program.calls[..3] {
        expect(first, call);
    }
    for call in &program.calls {
        expect(second, call);
    }
    for call in &program.calls[3..] {
        expect(first, call);
    }
}

#[test]
fn what_is_repeated_goes_on_from_where_it_was() {
    if !is_there("what_is_repeated_goes_on_from_where_it_was") {
        return;
    }
    let (program, request) = program("state_counter_portable");
    let mut session = worker(&request).expect("the model loads");
    let inputs = program.calls[0].inputs(&request);
    let first = session.run(&inputs).expect("the run succeeds").outputs;
    let times = session.repeat(5, std::time::Duration::from_mins(1));
    assert_eq!(times.expect("the run succeeds").len(), 5);
    let last = session.run(&inputs).expect("the run succeeds").outputs;
    assert_ne!(
        first, last,
        "the state after six runs equals that after one"
    );
}

#[test]
fn data_files_are_found_beside_the_program() {
    if !is_there("data_files_are_found_beside_the_program") {
        return;
    }
    let (program, _) = program("external_portable");
    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let copy = |from: &str, to: &str| fs::copy(fixtures().join(from), at(to)).expect("a copy");
    let check = |name: &str| {
        let request = request(&at(name), "forward");
        let call = &program.calls[0];
        let answer = load(&request)?.run(&call.inputs(&request))?;
        agree(name, &answer.outputs, &call.outputs(&request), None);
        Ok::<_, EngineError>(())
    };
    copy("external_portable.pte", "m.pte");
    let error = check("m.pte").expect_err("the data file is missing");
    assert!(
        error.to_string().contains("its directory has no such file"),
        "{error}"
    );
    // The data file may have any name, as long as one exists.
    copy("external_portable.ptd", "weights.ptd");
    check("m.pte").expect("the data file is unique");
    copy("external_portable.ptd", "more.ptd");
    let error = check("m.pte")
        .expect_err("the data file is ambiguous")
        .to_string();
    assert!(
        error.contains("several data files have a tensor"),
        "{error}"
    );
    copy("external_portable.ptd", "m.ptd");
    check("m.pte").expect("the data file is named like the program");
}

#[test]
fn threads_are_as_many_as_were_asked_for() {
    if !is_there("threads_are_as_many_as_were_asked_for") {
        return;
    }
    let (program, mut request) = program("dyn_batch_xnnpack_fp32");
    for threads in [Some(1), Some(3), None] {
        request.options.threads = threads;
        let mut session = worker(&request).expect("the model loads");
        let call = &program.calls[0];
        let answer = session
            .run(&call.inputs(&request))
            .expect("the run succeeds");
        agree("threads", &answer.outputs, &call.outputs(&request), None);
        let tasks = format!("/proc/{}/task", session.id());
        if let (Some(threads), Ok(tasks)) = (threads, fs::read_dir(tasks)) {
            // The thread that runs the method, its helpers, and one that waits for the parent
            // process.
            assert_eq!(tasks.count(), threads + 1);
        }
    }
}

#[test]
fn a_failed_run_leaves_a_session_that_runs() {
    if !is_there("a_failed_run_leaves_a_session_that_runs") {
        return;
    }
    let (program, mut request) = program("cache_xnnpack_fp32");
    for observe in [false, true] {
        request.options.observe = observe;
        let mut session = worker(&request).expect("the model loads");
        let mut inputs = program.calls[0].inputs(&request);
        // The cache has 8 positions.
        inputs[1] = Tensor::from_f64(DType::Int64, vec![1], [99.0]).expect("the tensor is valid");
        match session.run(&inputs) {
            Err(EngineError::Run { operator, .. } | EngineError::Input { operator, .. }) => {
                assert_eq!(operator.as_deref(), Some("aten::index_put.out"));
            }
            other => panic!("{other:?}"),
        }
        for call in &program.calls {
            let answer = session
                .run(&call.inputs(&request))
                .expect("the run succeeds");
            agree("cache", &answer.outputs, &call.outputs(&request), None);
        }
    }
}

#[test]
fn placement_tells_what_was_delegated() {
    if !is_there("placement_tells_what_was_delegated") {
        return;
    }
    let placed = |name: &str, provider: Provider| -> Placement {
        let (program, mut request) = program(name);
        request.options.observe = true;
        request.options.provider = provider;
        request.options.strict = provider != Provider::Cpu;
        let mut session = worker(&request).expect("the model loads");
        let inputs = program.calls[0].inputs(&request);
        session.run(&inputs).expect("the run succeeds");
        session.placement()
    };
    let nodes = |placement: &Placement| -> Vec<(String, u64)> {
        let shares = placement.shares.iter();
        shares
            .map(|share| (share.provider.clone(), share.nodes))
            .collect()
    };
    let both = placed("dyn_batch_xnnpack_fp32", Provider::Xnnpack);
    let expected = [("XnnpackBackend".to_owned(), 2), ("cpu".to_owned(), 2)];
    assert_eq!(nodes(&both), expected);
    let total: f64 = both.shares.iter().map(|share| share.time_share).sum();
    assert!((total - 1.0).abs() < 1e-9, "{both:?}");
    assert!(both.shares[0].time_share > 0.5, "{both:?}");
    let cpu = placed("add_linear_portable", Provider::Cpu);
    assert_eq!(cpu.shares.len(), 1);
    assert!((cpu.shares[0].time_share - 1.0).abs() < 1e-9);
    let constant = placed("multi_method_xnnpack_fp32.get_scale", Provider::Cpu);
    assert_eq!(constant, Placement::default());
}
