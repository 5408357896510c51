//! What a program keeps from run to run: it goes on until it is forgotten, in this process and in a
//! worker's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool::engine::{EngineError, LoadOptions, LoadRequest, Session, engine};
use pkgtool::model;
use pkgtool::runtime::worker::Launcher;
use pkgtool::tensor::{DType, Signature, Tensor};

use crate::support::environment::Piece;

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

fn launcher() -> Launcher {
    Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(Duration::from_mins(2)),
        memory_limit: None,
    }
}

fn given(value: f64) -> [Tensor; 1] {
    [Tensor::from_f64(DType::Float32, vec![3], [value; 3]).expect("it is small")]
}

/// Runs it once: how many runs it has counted.
fn counted(session: &mut dyn Session, value: f64) -> f64 {
    let answer = session.run(&given(value)).expect("it runs");
    answer.outputs[1].to_f64().next().expect("one number")
}

fn engines() -> Vec<&'static str> {
    let mut engines = vec!["tract"];
    if cfg!(feature = "executorch") && Piece::ExecuTorch.or_skip("state on executorch").is_some() {
        engines.push("executorch");
    }
    engines
}

/// What a fresh session gives is given again whenever the state was forgotten, and not before.
fn goes_on_until_forgotten(session: &mut dyn Session) {
    let forget = |session: &mut dyn Session| session.reset_state().expect("it can begin anew");
    // Nothing is there to forget yet.
    forget(session);
    for round in 0..3 {
        let counts = [1.0, 5.0, 0.5].map(|value| counted(session, value));
        assert_eq!(counts.to_vec(), [1.0, 2.0, 3.0], "round {round}");
        // A run that is refused changes nothing of this.
        let wrong = session.run(&[]);
        assert!(matches!(wrong, Err(EngineError::Run { .. })), "{wrong:?}");
        forget(session);
        let wrong = session.run(&[]);
        assert!(matches!(wrong, Err(EngineError::Run { .. })), "{wrong:?}");
    }
    forget(session);
    forget(session);
    let fresh = session.run(&given(2.0)).expect("it runs").outputs;
    let again = session.run(&given(2.0)).expect("it runs").outputs;
    assert_ne!(fresh, again);
    forget(session);
    let anew = session.run(&given(2.0)).expect("it runs").outputs;
    assert_eq!(fresh, anew);
}

#[test]
fn a_session_goes_on_until_it_is_to_forget() {
    for name in engines() {
        let engine = engine(name).expect("it is part of this build");
        let mut session = engine.load(&request()).expect("it loads");
        goes_on_until_forgotten(session.as_mut());
    }
}

#[test]
fn a_worker_goes_on_until_it_is_to_forget() {
    for name in engines() {
        let mut worker = launcher().load(name, &request()).expect("it loads");
        goes_on_until_forgotten(&mut worker);
        // Repeated runs go on from each other.
        worker.reset_state().expect("it can begin anew");
        let times = worker.repeat(4, Duration::from_mins(1)).expect("it runs");
        assert_eq!(times.len(), 4);
        let count = counted(&mut worker, 1.0);
        assert!((count - 5.0).abs() < 1e-9, "{name}: {count}");
    }
}
