//! Tests of worker processes that crash, hang, send invalid data or are missing. Each failure is
//! reported with its cause, and none leaves a process behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Signature;
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest};
use tempfile::TempDir;

/// Writes a shell script that replaces a worker process.
fn stand_in(directory: &Path, script: &str) -> Launcher {
    let program = directory.join("worker.sh");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script is written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
    Launcher {
        program,
        timeout: Some(Duration::from_secs(20)),
        memory_limit: None,
        in_background: false,
        device: None,
    }
}

fn load(launcher: &Launcher) -> EngineError {
    let request = LoadRequest {
        model: PathBuf::from("no.onnx"),
        signature: Signature {
            method: "forward".to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        },
        options: LoadOptions::default(),
    };
    launcher
        .load("tract", &request)
        .expect_err("no worker loads this")
}

fn reason(error: &EngineError) -> &str {
    match error {
        EngineError::Died { reason, doing, .. } => {
            assert_eq!(doing, "loading the model");
            reason
        }
        other => panic!("not a death: {other}"),
    }
}

#[test]
fn a_crash_is_named_with_its_last_words() {
    let directory = TempDir::new().expect("a directory");
    let launcher = stand_in(directory.path(), "echo bad kernel >&2; kill -SEGV $$");
    let error = load(&launcher);
    let reason = reason(&error);
    assert!(reason.contains("segmentation fault"), "{reason}");
    assert!(reason.contains("bad kernel"), "{reason}");
}

#[test]
fn an_exit_is_named_with_its_code() {
    let directory = TempDir::new().expect("a directory");
    let error = load(&stand_in(directory.path(), "exit 3"));
    assert!(reason(&error).contains("exit status: 3"), "{error}");
}

#[test]
fn a_hang_ends_at_the_time_limit() {
    let directory = TempDir::new().expect("a directory");
    let mark = directory.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", mark.display());
    let mut launcher = stand_in(directory.path(), &script);
    launcher.timeout = Some(Duration::from_millis(500));
    let start = Instant::now();
    let error = load(&launcher);
    let named = "the tract engine reached the time limit of 0.5 s (--timeout) while loading";
    assert!(error.to_string().starts_with(named), "{error}");
    assert!(start.elapsed() < Duration::from_mins(1));
    let pid = fs::read_to_string(mark).expect("it ran");
    let process = Path::new("/proc").join(pid.trim());
    assert!(!process.exists(), "the process is left behind");
}

#[test]
fn nonsense_is_no_answer() {
    let directory = TempDir::new().expect("a directory");
    for script in [
        // A length beyond any head, then a head that is invalid JSON.
        r"printf '\377\377\377\377' >&0; sleep 1",
        r"printf '\003\000\000\000abc' >&0; sleep 1",
    ] {
        let error = load(&stand_in(directory.path(), script));
        assert!(matches!(error, EngineError::Died { .. }), "{error}");
    }
}

#[test]
fn a_worker_that_cannot_start_is_unavailable() {
    let launcher = Launcher {
        program: PathBuf::from("/nowhere/pkgtool"),
        timeout: None,
        memory_limit: None,
        in_background: false,
        device: None,
    };
    let error = load(&launcher);
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");
}
