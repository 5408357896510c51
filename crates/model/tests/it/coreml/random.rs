//! Fuzzing of the Core ML reader with random bytes, mutated models and manifests.
//!
//! Each input yields a result or an error, without a panic and without much work.

use std::fs;
use std::time::{Duration, Instant};

use pkgtool_model as model;
use pkgtool_model::coreml::StandaloneProgram;
use proptest::prelude::*;

use super::inspect;
use crate::executorch::hostile::{Change, changes, mutate};
use pkgtool_testing::coreml::path;
use pkgtool_testing::coreml::{Folder, MODEL, WEIGHTS};
use pkgtool_testing::onnx::part;

/// Models that together cover all parts of the format.
const SEEDS: [&str; 8] = [
    "mlp_fp16",
    "ranged",
    "enumerated",
    "image",
    "classifier",
    "int4",
    "counter",
    "methods",
];
const FILES: [&str; 3] = ["network.mlmodel", "custom.mlmodel", "pipeline.mlmodel"];

fn survives(bytes: &Vec<u8>) {
    let start = Instant::now();
    match inspect(bytes) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(
                error
                    .offset()
                    .is_none_or(|offset| offset <= bytes.len() as u64)
            );
        }
        Ok(info) => {
            for method in &info.methods {
                assert!(!method.to_string().is_empty());
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Opens a folder and, if that succeeds, reads its whole program.
fn survives_as_folder(folder: &Folder) {
    let start = Instant::now();
    match model::open(&folder.root()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((info, _)) => {
            for method in &info.methods {
                let whole = StandaloneProgram::read(&folder.root(), &method.name);
                assert!(whole.map_or_else(|error| !error.to_string().is_empty(), |_| true));
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
        for kind in [202, 500, 502, 900] {
            let described = [part(2, &[&bytes]), part(kind, &[&bytes])].concat();
            survives(&described);
        }
    }

    #[test]
    fn mutated_files_do_no_harm(name in prop::sample::select(&FILES[..]), changes in changes()) {
        let bytes = fs::read(path(name)).expect("a fixture");
        survives(&mutate(bytes, &changes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn mutated_folders_do_no_harm(
        name in prop::sample::select(&SEEDS[..]),
        file in prop::sample::select(&[MODEL, WEIGHTS, "Manifest.json"][..]),
        changes in changes(),
    ) {
        let folder = Folder::of(name);
        if folder.path(file).exists() {
            let changes: Vec<Change> = changes;
            let changed = mutate(folder.bytes(file), &changes);
            folder.write(file, changed);
        }
        survives_as_folder(&folder);
    }

    #[test]
    fn arbitrary_manifests_do_no_harm(text in "[\\[\\]{}\":,a-z0-9./ ]{0,120}", path in ".{0,30}") {
        let folder = Folder::of("mlp_fp32");
        folder.write("Manifest.json", &text);
        survives_as_folder(&folder);
        let entry = serde_json::json!({
            "itemInfoEntries": {"a": {"path": path}},
            "rootModelIdentifier": "a",
        });
        folder.write("Manifest.json", entry.to_string());
        survives_as_folder(&folder);
    }
}
