//! Quantized XNNPACK networks give bit-identical outputs with every CPU instruction set and on
//! repeated runs.

use std::path::{Path, PathBuf};

use pkgtool_engine::cpu_features;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::input::{self, Generator, InputArgs};

use super::program::load;
use crate::support::run::pkgtool;

/// Fixtures and examples that compute with 8-bit integers.
const PROGRAMS: [&str; 6] = [
    "tests/fixtures/programs/int8_mobile_block.pte",
    "tests/fixtures/programs/int8_pooling.pte",
    "tests/fixtures/programs/int8_residual.pte",
    "tests/fixtures/programs/int8_shapes.pte",
    "tests/fixtures/programs/int8_transposed.pte",
    "packages-examples/glimpse/xnnpack/glimpse_xnnpack_int8.pte",
];

fn path(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(program)
}

#[test]
fn quantised_programs_answer_alike_from_run_to_run() {
    for program in PROGRAMS {
        let (mut session, signature) =
            load("tract", &path(program), "forward").expect("the model loads");
        let inputs = |seed| -> Vec<Tensor> {
            let arguments = InputArgs {
                default: Some(Generator::Random { seed }),
                ..InputArgs::default()
            };
            input::assemble(&signature, &arguments).expect("random values fit")
        };
        let (wanted, other) = (inputs(5), inputs(6));
        let mut answer = |inputs: &[Tensor]| session.run(inputs).expect("the run succeeds").outputs;
        let (first, differing) = (answer(&wanted), answer(&other));
        for _ in 0..2 {
            assert_eq!(answer(&wanted), first, "{program}");
            assert_eq!(answer(&other), differing, "{program}");
        }
    }
}

#[test]
fn every_set_of_instructions_gives_the_same_bytes() {
    for program in PROGRAMS {
        let path = path(program);
        let mut expected = None;
        for set in cpu_features() {
            let folder = tempfile::tempdir().expect("a directory");
            let written = folder.path().to_str().expect("the path is UTF-8");
            let program = path.to_str().expect("the path is UTF-8");
            let arguments = [
                "run",
                "--engine",
                "tract",
                "--cpu-features",
                set,
                "--input",
                "random:5",
                "--output-dir",
                written,
                "--json",
                program,
            ];
            let ran = pkgtool(arguments).run();
            if ran.code != 0 && ran.stderr.contains("this processor lacks") {
                assert_ne!(set, "plain");
                continue;
            }
            let outputs = ran.expect_code(0).json()["outputs"].clone();
            let files = outputs.as_array().expect("a list").iter().map(|output| {
                let file = output["file"].as_str().expect("a path");
                std::fs::read(file).expect("the file is readable")
            });
            let files: Vec<Vec<u8>> = files.collect();
            assert!(!files.is_empty(), "{program}");
            let expected = expected.get_or_insert_with(|| files.clone());
            assert!(*expected == files, "{program} differs with {set}");
        }
    }
}
