//! Tests of broken and hostile ONNX models on the engines. Each gives an answer or a meaningful
//! error, and never a crash or an unhandled panic of the tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::limit::MemoryLimit;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Session};
use pkgtool_model as model;
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

use crate::support::environment::EnvironmentPiece;
use crate::support::inputs::small_zeros;

const SEEDS: [&str; 4] = [
    "glimpse/qnn/glimpse_qnn_int8.onnx",
    "hush-sentence/mlx/hush_sentence_mlx_fp32.onnx",
    "murmur-vad/qnn/murmur_vad_qnn_fp32.onnx",
    "scribe-tiny-en/mlx/scribe_tiny_en_decoder_mlx_fp32.onnx",
];

/// Timeout for a broken model. A hanging model is stopped and reported as an error too.
const TIMEOUT: Duration = Duration::from_secs(10);

fn example(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    fs::read(root.join(name)).expect("an example")
}

/// Loads and runs a changed model, if its header can still be read.
fn survives(engine: &str, bytes: &[u8], library: Option<PathBuf>) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("m.onnx");
    fs::write(&path, bytes).expect("a file");
    let Ok((info, _)) = model::open(&path) else {
        return;
    };
    let Some(Ok(signature)) = info
        .methods
        .first()
        .map(|method| Signature::of(method, None))
    else {
        return;
    };
    let inputs: Option<Vec<Tensor>> = signature.inputs.iter().map(small_zeros).collect();
    let Some(inputs) = inputs else { return };
    let request = LoadRequest {
        model: path,
        signature,
        options: LoadOptions {
            threads: Some(1),
            library,
            ..LoadOptions::default()
        },
    };
    let launcher = Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        timeout: Some(TIMEOUT),
        memory_limit: Some(MemoryLimit::Option(8 << 30)),
        in_background: false,
        device: None,
    };
    let outcome = launcher
        .load(engine, &request)
        .and_then(|mut worker| worker.run(&inputs));
    if let Err(error) = outcome {
        assert!(error.to_string().len() > 20, "{error}");
        if let EngineError::Died { reason, .. } = error {
            // A panic of the worker itself would exit with status 70 or 101.
            assert!(!reason.contains("exit status"), "{reason}");
        }
    }
}

fn changed(seed: &str, changes: &[(Index, u8)], cut: Option<Index>) -> Vec<u8> {
    let mut bytes = example(seed);
    for (place, value) in changes {
        let place = place.index(bytes.len());
        bytes[place] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn changed_models_do_no_harm_to_tract(
        seed in prop::sample::select(&SEEDS[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<Index>()),
    ) {
        survives("tract", &changed(seed, &changes, cut), None);
    }

    #[test]
    fn changed_models_do_no_harm_to_onnx_runtime(
        seed in prop::sample::select(&SEEDS[..]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        // The engine's own tests report that it is missing.
        if let Some(library) = EnvironmentPiece::Ort.path() {
            survives("ort", &changed(seed, &changes, None), Some(library));
        }
    }
}
