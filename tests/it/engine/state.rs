//! Program state that persists between runs until it is reset, both in this process and in a worker
//! process.

use std::path::Path;
use std::time::Duration;

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Session, engine};
use pkgtool_model as model;

use crate::support::environment::EnvironmentPiece;
use crate::support::loading::launcher;

fn request() -> LoadRequest {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs/counter.pte");
    let (info, _) = model::open(&path).expect("fixtures can be read");
    let method = info.method("forward").expect("the method is there");
    LoadRequest {
        signature: Signature::of(method, None).expect("all values are tensors"),
        model: path,
        options: LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        },
    }
}

fn given(value: f64) -> [Tensor; 1] {
    [Tensor::from_f64(DType::Float32, vec![3], [value; 3]).expect("the tensor is valid")]
}

/// Runs the program once and returns the number of runs it has counted.
fn counted(session: &mut dyn Session, value: f64) -> f64 {
    let answer = session.run(&given(value)).expect("the run succeeds");
    answer.outputs[1].to_f64().next().expect("one number")
}

fn engines() -> Vec<&'static str> {
    let mut engines = vec!["tract"];
    if cfg!(feature = "executorch")
        && EnvironmentPiece::ExecuTorch
            .or_skip("state on executorch")
            .is_some()
    {
        engines.push("executorch");
    }
    engines
}

/// Asserts that a reset restores the answers of a fresh session, and that nothing else does.
fn goes_on_until_forgotten(session: &mut dyn Session) {
    let forget = |session: &mut dyn Session| session.reset_state().expect("the state is reset");
    // Resetting a fresh session has no effect.
    forget(session);
    for round in 0..3 {
        let counts = [1.0, 5.0, 0.5].map(|value| counted(session, value));
        assert_eq!(counts.to_vec(), [1.0, 2.0, 3.0], "round {round}");
        // A rejected run does not affect the state.
        let wrong = session.run(&[]);
        assert!(matches!(wrong, Err(EngineError::Run { .. })), "{wrong:?}");
        forget(session);
        let wrong = session.run(&[]);
        assert!(matches!(wrong, Err(EngineError::Run { .. })), "{wrong:?}");
    }
    forget(session);
    forget(session);
    let fresh = session.run(&given(2.0)).expect("the run succeeds").outputs;
    let again = session.run(&given(2.0)).expect("the run succeeds").outputs;
    assert_ne!(fresh, again);
    forget(session);
    let anew = session.run(&given(2.0)).expect("the run succeeds").outputs;
    assert_eq!(fresh, anew);
}

#[test]
fn a_session_goes_on_until_it_is_to_forget() {
    for name in engines() {
        let engine = engine(name).expect("the engine is part of this build");
        let mut session = engine.load(&request()).expect("the model loads");
        goes_on_until_forgotten(session.as_mut());
    }
}

#[test]
fn a_worker_goes_on_until_it_is_to_forget() {
    for name in engines() {
        let mut worker = launcher(Some(Duration::from_mins(2)))
            .load(name, &request())
            .expect("the model loads");
        goes_on_until_forgotten(&mut worker);
        // Repeated runs share the state.
        worker.reset_state().expect("the state is reset");
        let times = worker
            .repeat(4, Duration::from_mins(1))
            .expect("the runs succeed");
        assert_eq!(times.len(), 4);
        let count = counted(&mut worker, 1.0);
        assert!((count - 5.0).abs() < 1e-9, "{name}: {count}");
    }
}
