//! Broken and hostile ExecuTorch programs: an answer or a meaningful error, never a crash of the
//! tool itself.

use std::fs;
use std::time::Duration;

use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::limit::MemoryLimit;
use pkgtool_engine::{EngineError, Session};
use pkgtool_model as model;
use tempfile::TempDir;

use super::{fixtures, is_there, launcher, request};
use crate::support::inputs::small_zeros;

/// One program of every kind: kernels, delegates, a state, a bundle, scalars, dynamic shapes.
const SEEDS: [&str; 8] = [
    "../models/add_linear_portable.pte",
    "../models/add_linear_xnnpack_fp32.pte",
    "../models/dtypes_portable.pte",
    "../models/dyn_batch_xnnpack_fp32.pte",
    "../models/nontensor_io_portable.pte",
    "bundled_xnnpack_fp32.bpte",
    "cache_xnnpack_fp32.pte",
    "unplanned_xnnpack_fp32.pte",
];

/// Counts of what happened to the programs.
#[derive(Debug, Default)]
struct Outcomes {
    unreadable: usize,
    refused: usize,
    died: usize,
    answered: usize,
}

impl Outcomes {
    /// Loads and runs a damaged program.
    fn try_out(&mut self, seed: &str, bytes: &[u8]) {
        let directory = TempDir::new().expect("a directory");
        let extension = seed.rsplit('.').next().unwrap_or_default();
        let path = directory.path().join(format!("m.{extension}"));
        fs::write(&path, bytes).expect("a file");
        // The engine reads the file again; this reading only finds the name of a method.
        let Some(method) = model::open(&path)
            .ok()
            .and_then(|(info, _)| Some(info.methods.first()?.name.clone()))
        else {
            self.unreadable += 1;
            return;
        };
        let request = request(&path, &method);
        let inputs: Option<Vec<Tensor>> =
            request.signature.inputs.iter().map(small_zeros).collect();
        let Some(inputs) = inputs else {
            self.unreadable += 1;
            return;
        };
        let mut launcher = launcher();
        launcher.timeout = Some(Duration::from_secs(10));
        launcher.memory_limit = Some(MemoryLimit::Option(8 << 30));
        let outcome = launcher
            .load("executorch", &request)
            .and_then(|mut worker| worker.run(&inputs));
        match outcome {
            Ok(_) => self.answered += 1,
            Err(error) => {
                assert!(error.to_string().len() > 20, "{error}");
                if let EngineError::Died { reason, .. } = &error {
                    // A panic of the worker would end it with exit status 70 or 101.
                    assert!(!reason.contains("exit status"), "{reason}");
                    self.died += 1;
                } else {
                    self.refused += 1;
                }
            }
        }
    }
}

/// A deterministic pseudo-random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }
}

#[test]
fn changed_programs_do_no_harm() {
    if !is_there("changed_programs_do_no_harm") {
        return;
    }
    let mut numbers = Numbers(7);
    let mut outcomes = Outcomes::default();
    // Programs that the header reader rejects never reach the engine and do not count.
    while outcomes.refused + outcomes.died + outcomes.answered < 200 {
        let seed = SEEDS[numbers.below(SEEDS.len())];
        let mut bytes = fs::read(fixtures().join(seed)).expect("a fixture");
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(bytes.len());
            bytes[at] = numbers.byte();
        }
        outcomes.try_out(seed, &bytes);
    }
    assert!(
        outcomes.refused > 0 && outcomes.answered > 0,
        "{outcomes:?}"
    );
}

#[test]
fn programs_that_end_too_early_are_refused() {
    if !is_there("programs_that_end_too_early_are_refused") {
        return;
    }
    for seed in SEEDS {
        let bytes = fs::read(fixtures().join(seed)).expect("a fixture");
        let mut outcomes = Outcomes::default();
        for part in 0..8 {
            outcomes.try_out(seed, &bytes[..bytes.len() * part / 8]);
        }
        assert_eq!(outcomes.died, 0, "{seed}: {outcomes:?}");
    }
}
