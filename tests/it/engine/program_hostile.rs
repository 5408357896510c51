//! Broken and hostile ExecuTorch programs, lowered to tract: an answer or a meaningful error,
//! within limits of memory and time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::limit::MemoryLimit;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Session};
use pkgtool_model as model;
use pkgtool_testing::numbers::Numbers;

use crate::support::inputs::small_zeros;

/// Number of changed programs to run; `PKGTOOL_TEST_MUTATIONS` raises it.
const CHANGES: usize = 250;

/// Number of changed programs for other devices to run.
const PAYLOAD_CHANGES: usize = 150;

fn programs() -> Vec<PathBuf> {
    programs_in("programs")
}

fn programs_in(folder: &str) -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let folder = fixtures.join(folder);
    let entries = fs::read_dir(folder).expect("fixtures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut programs: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "pte"))
        .collect();
    programs.sort();
    programs
}

#[derive(Debug, Default)]
struct Outcomes {
    unreadable: usize,
    refused: usize,
    answered: usize,
}

impl Outcomes {
    fn try_out(&mut self, folder: &Path, bytes: &[u8], what: &str) {
        let path = folder.join("m.pte");
        fs::write(&path, bytes).expect("a file");
        let Ok((info, _)) = model::open(&path) else {
            self.unreadable += 1;
            return;
        };
        let signature = info.methods.iter().find(|method| !method.constant);
        let signature = signature.and_then(|method| Signature::of(method, None).ok());
        let Some(signature) = signature else {
            self.unreadable += 1;
            return;
        };
        let inputs: Option<Vec<Tensor>> = signature.inputs.iter().map(small_zeros).collect();
        let Some(inputs) = inputs else {
            self.unreadable += 1;
            return;
        };
        let launcher = Launcher {
            program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
            timeout: Some(Duration::from_mins(1)),
            memory_limit: Some(MemoryLimit::Option(8 << 30)),
            in_background: false,
            device: None,
        };
        let request = LoadRequest {
            model: path,
            signature,
            options: LoadOptions {
                threads: Some(1),
                ..LoadOptions::default()
            },
        };
        let loaded = launcher.load("tract", &request);
        match loaded.and_then(|mut worker| worker.run(&inputs)) {
            Ok(_) => self.answered += 1,
            Err(error) => {
                assert!(error.to_string().len() > 20, "{what}: {error}");
                assert!(
                    !matches!(error, EngineError::Died { .. }),
                    "{what}: {error}"
                );
                self.refused += 1;
            }
        }
    }
}

#[test]
fn changed_programs_do_no_harm() {
    try_changes(&programs(), CHANGES);
}

/// Changes graphs of ML Programs, MLX and Vulkan inside the programs.
#[test]
fn changed_programs_for_other_devices_do_no_harm() {
    try_changes(&programs_in("payloads"), PAYLOAD_CHANGES);
}

/// Changes random bytes of random programs until `changes` of them have reached the lowering.
fn try_changes(programs: &[PathBuf], changes: usize) {
    let folder = tempfile::tempdir().expect("a directory");
    let asked = std::env::var("PKGTOOL_TEST_MUTATIONS").ok();
    let changes = asked.map_or(changes, |text| text.parse().expect("a number"));
    let mut numbers = Numbers(11);
    let mut outcomes = Outcomes::default();
    // Programs that the header reader rejects never reach the lowering and do not count.
    while outcomes.refused + outcomes.answered < changes {
        let program = &programs[numbers.below(programs.len())];
        let mut bytes = fs::read(program).expect("a fixture");
        let mut what = program.display().to_string();
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(bytes.len());
            let byte = u8::try_from(numbers.below(256)).expect("a byte");
            let _ = write!(what, " [{at}] = {byte}");
            bytes[at] = byte;
        }
        outcomes.try_out(folder.path(), &bytes, &what);
    }
    assert!(
        outcomes.refused > 0 && outcomes.answered > 0,
        "{outcomes:?}"
    );
}

#[test]
fn programs_that_end_too_early_are_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    for program in programs().iter().step_by(20) {
        let bytes = fs::read(program).expect("a fixture");
        let mut outcomes = Outcomes::default();
        for part in 1..5 {
            let end = bytes.len() * part / 5;
            outcomes.try_out(
                folder.path(),
                &bytes[..end],
                &format!("{} to {end}", program.display()),
            );
        }
    }
}

/// A number in the program requests far more elements than fit in its memory.
#[test]
fn what_a_program_has_no_room_for_is_not_made() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs/dynamic_sizes.pte");
    let mut bytes = fs::read(path).expect("a fixture");
    for (at, byte) in [(4507, 104), (2992, 135)] {
        bytes[at] = byte;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("m.pte");
    fs::write(&path, bytes).expect("a file");
    let (info, _) = model::open(&path).expect("the header is valid");
    let method = info.methods.iter().find(|method| !method.constant);
    let signature = Signature::of(method.expect("a method"), None).expect("a signature");
    let input = Tensor::zeros(signature.inputs[0].dtype, vec![8, 3]).expect("the tensor is valid");
    let launcher = Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(Duration::from_mins(1)),
        memory_limit: Some(MemoryLimit::Option(512 << 20)),
        in_background: false,
        device: None,
    };
    let request = LoadRequest {
        model: path,
        signature,
        options: LoadOptions::default(),
    };
    let loaded = launcher.load("tract", &request);
    let answer = loaded.and_then(|mut worker| worker.run(&[input]));
    let error = answer
        .expect_err("the memory limit is exceeded")
        .to_string();
    assert!(error.contains("aten::full.out"), "{error}");
    assert!(error.contains("the program has room for 16"), "{error}");
}
