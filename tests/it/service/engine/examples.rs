//! Tests of the ONNX example models: an endpoint gives the same outputs as a single run.

use std::path::{Path, PathBuf};

use pkgtool_engine::runtime::target::{StartRequest, start};
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::agreement::Comparison;
use pkgtool_engine::tensor::input::{Generator, InputArgs, assemble};
use pkgtool_engine::{Carrying, Rounding};
use pkgtool_serve::service::engine::EndpointModel;
use pkgtool_serve::service::{Isolation, ServiceSettings};
use walkdir::WalkDir;

use super::models::of_file;
use super::{ANN, LIMIT, engines, settings};
use crate::support::environment::EnvironmentPiece;
use crate::support::loading::launcher;

fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    let files = WalkDir::new(root).into_iter().filter_map(Result::ok);
    let models: Vec<PathBuf> = files
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|it| it == "onnx"))
        .collect();
    assert!(models.len() >= 9, "the examples are there");
    models
}

fn alone(model: &EndpointModel, inputs: &[Tensor]) -> Vec<Tensor> {
    let wish = StartRequest {
        model: model.model.clone(),
        format: model.format,
        signature: model.signature.clone(),
        backend: None,
        engine: None,
        strict: false,
        threads: Some(1),
        observe: false,
        library: EnvironmentPiece::Ort.path(),
        carrying: Carrying::default(),
        rounding: Rounding::default(),
        cpu_features: None,
        cores: None,
        ort_options: Vec::new(),
    };
    let started = start(&wish, inputs, &launcher(Some(LIMIT)));
    started.expect("the examples run").first_answer.outputs
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_gives_what_a_single_run_gives() {
    let engines = engines(8 << 30);
    for path in examples() {
        let model = of_file(path.clone());
        let args = InputArgs {
            default: Some(Generator::Random { seed: 7 }),
            ..InputArgs::default()
        };
        let inputs = assemble(&model.signature, &args).expect("inputs");
        let expected = alone(&model, &inputs);
        for isolation in [Isolation::Process, Isolation::Thread] {
            let settings = ServiceSettings {
                isolation,
                ..settings()
            };
            let endpoint = engines.endpoint(model.clone(), &settings);
            let answer = endpoint.run(ANN, inputs.clone(), Some(LIMIT)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(answer.len(), expected.len());
            let mut comparison = Comparison::default();
            for (expected, found) in expected.iter().zip(&answer) {
                comparison.add(expected, found).expect("the same shapes");
            }
            let agreement = comparison.agreement();
            assert!(
                agreement.max_rel < 1e-5,
                "{}: {agreement:?}",
                path.display()
            );
        }
    }
}
