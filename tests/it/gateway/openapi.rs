//! Fuzz tests of the gateway against its own OpenAPI documents, with schemathesis.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{examples, package};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::Upstream;
use crate::support::onnx;
use crate::support::tree::Tree;

/// Number of examples per operation, in addition to those that cover its parameters one by one.
const EXAMPLES: &str = "25";

/// Number of examples per operation where a model runs for each example.
const EXAMPLES_OF_MODELS: &str = "10";

/// Runs the fuzzer on a document with the first key and returns its output.
#[track_caller]
fn fuzz(
    gateway: &Gateway,
    packages: &Path,
    (path, parameters): (&str, &str),
    more: &[&str],
) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = directory.path().join("schemathesis.toml");
    fs::write(&settings, format!("[parameters]\n{parameters}")).expect("a file");
    let run = "from schemathesis.cli import schemathesis; schemathesis()";
    let ran = Command::new("python3")
        .args(["-c", run, "--config-file"])
        .arg(&settings)
        .args(["run", &format!("http://{}{path}", gateway.address)])
        .args(["--header", &format!("MLP-API-KEY: {}", gateway.key)])
        .args(["--checks", "all"])
        .args(["--generation-deterministic", "--no-color"])
        // The time to make requests depends on the machine, not on the gateway.
        .args(["--suppress-health-check", "too_slow"])
        .args(more)
        .current_dir(directory.path())
        .env("PYTHONPATH", packages)
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    said
}

#[test]
fn every_answer_is_one_that_the_document_has() {
    let test = "every_answer_is_one_that_the_document_has";
    let Some(packages) = EnvironmentPiece::Schemathesis.or_skip(test) else {
        return;
    };
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "100000"])
        .expect_code(0);
    // Parameters that name objects must name existing ones; otherwise the fuzzer sees only 404.
    let base = "/api/mlpgateway/account/local/model/echo";
    let config = gateway.post(
        &format!("{base}/predict-config"),
        r#"{"name":"a","config":{}}"#,
    );
    let config = config.expect(200).json()["id"]["configId"].clone();
    let rows = "text,label\na,x\nb,y\n";
    let dataset = gateway.post("/api/mlpgate/account/local/dataset/raw", rows);
    let dataset = dataset.expect(200).json()["id"]["datasetId"].clone();
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let parameters = format!(
        "\"path.account\" = \"local\"\n\"path.model\" = \"echo\"\n\
         \"path.provider\" = \"echo\"\n\"path.id\" = \"local/echo\"\n\"path.task\" = \"{task}\"\n\"query.configId\" = {config}\n\"path.dataset\" = {dataset}\n\"path.job\" = 1\n"
    );
    // Schemas do not describe the content of datasets: separate tests upload valid and invalid
    // ones.
    let others = ["--exclude-operation-id", "uploadDataset"];
    let examples = [&["--max-examples", EXAMPLES][..], &others].concat();
    let said = fuzz(
        &gateway,
        &packages,
        ("/openapi.json", &parameters),
        &examples,
    );
    assert!(said.contains("64 selected / 65 total"), "{said}");
}

/// Adds a package of one model, `a + b`, whose two inputs share an open size.
fn sum(tree: Tree) -> Tree {
    let model = onnx::model(&[
        &onnx::graph_node("Add", &["a", "b"], "y", &[]),
        &onnx::graph_value(11, "a", "float32", &["n", "2"]),
        &onnx::graph_value(11, "b", "float32", &["n", "2"]),
        &onnx::graph_value(12, "y", "float32", &["n", "2"]),
    ]);
    let tensor = json!({"shape": [-1, 2], "dtype": "float32"});
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "sum",
        "family": "sum",
        "capabilities": ["classification"],
        "backend": "xnnpack",
        "license": "mit",
        "variants": [{
            "precision": "fp32",
            "file": "sum_xnnpack_fp32.onnx",
            "size_bytes": model.len(),
            "methods": {"forward": {"inputs": [tensor, tensor], "outputs": [tensor]}}
        }]
    });
    tree.json("sum/xnnpack/config.json", &config)
        .file("sum/xnnpack/sum_xnnpack_fp32.onnx", model)
}

/// Starts a server of real models: three numbers, two inputs of one size, indices into a table.
fn with_real_models() -> (Gateway, Tree) {
    let tree = sum(package(Tree::new(), "negate", "Neg"));
    let sentence: PathBuf = examples().join("hush-sentence");
    let setup = Setup::new().packages(tree.root()).packages(sentence);
    (setup.start(), tree)
}

#[test]
fn what_a_services_document_allows_is_not_refused() {
    let test = "what_a_services_document_allows_is_not_refused";
    let Some(packages) = EnvironmentPiece::Schemathesis.or_skip(test) else {
        return;
    };
    let (gateway, _tree) = with_real_models();
    for (service, model) in [
        ("negate", "negate"),
        ("local/sum", "sum"),
        ("hush_sentence", "hush_sentence"),
    ] {
        let document = format!("/openapi.json?service={service}");
        let parameters = format!("\"path.account\" = \"local\"\n\"path.model\" = \"{model}\"\n");
        let few = ["--mode", "positive", "--max-examples", EXAMPLES_OF_MODELS];
        // A new default config changes requests without a config, so this operation runs
        // separately.
        let one = "createPredictConfig";
        // Services are derived once, under a separate name.
        let other = "deriveService";
        let paths = ["--include-path-regex", "model/.model."];
        let excluded = [
            "--exclude-operation-id",
            one,
            "--exclude-operation-id",
            other,
        ];
        let others = [&few[..], &paths, &excluded].concat();
        let said = fuzz(&gateway, &packages, (&document, &parameters), &others);
        assert!(said.contains(" 15 selected / 65 total"), "{said}");
        let alone = [&few[..], &["--include-operation-id", one]].concat();
        let said = fuzz(&gateway, &packages, (&document, &parameters), &alone);
        assert!(said.contains(" 1 selected / 65 total"), "{said}");
    }
}

#[test]
fn a_services_document_says_what_it_takes() {
    let (gateway, _tree) = with_real_models();
    let document = |service: &str| {
        let path = format!("/openapi.json?service={service}");
        gateway.bare("GET", &path, &[]).expect(200).json()
    };
    let body = |document: &Value, kind: &str| {
        let path = format!("/api/mlpgateway/account/{{account}}/model/{{model}}/{kind}");
        let operation = document["paths"][&path]["post"].clone();
        assert_eq!(operation["requestBody"]["required"], true);
        operation["requestBody"]["content"]["application/json"]["schema"].clone()
    };
    let sentence = document("local/hush_sentence");
    for kind in ["predict", "async/predict"] {
        // The body holds tensors or texts.
        let body = body(&sentence, kind);
        let inputs = body["anyOf"][0]["properties"]["inputs"].clone();
        let texts = &body["anyOf"][1]["properties"]["texts"]["items"];
        assert_eq!(texts["type"], "string");
        assert_eq!(
            (&inputs["minItems"], &inputs["maxItems"]),
            (&json!(1), &json!(1))
        );
        let data = &inputs["items"]["properties"]["data"];
        let words = &data["items"];
        assert_eq!(
            (&data["minItems"], &data["maxItems"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(
            (&words["minItems"], &words["maxItems"]),
            (&json!(1), &json!(23))
        );
        let index = json!({"type": "integer", "minimum": 0, "maximum": 63});
        assert_eq!(words["items"], index);
    }
    let configs = body(&sentence, "predict-config")["properties"]["config"].clone();
    let configs = configs["enum"].as_array().expect("a list").clone();
    let quantized = json!({"backend": "xnnpack", "precision": "8da4w", "method": "forward"});
    assert!(configs.contains(&quantized), "{configs:?}");
    let whole = body(&sentence, "predict-with-config")["anyOf"].clone();
    let of = |config: &Value| {
        let all = whole.as_array().expect("a list").iter();
        all.filter(|one| one["properties"]["config"] == *config)
            .count()
    };
    assert_eq!(of(&json!({"const": quantized})), 1);
    assert_eq!(of(&json!({"type": "null"})), 1);
    let sum = document("sum");
    let inputs = body(&sum, "predict")["properties"]["inputs"]["prefixItems"].clone();
    assert_eq!(inputs.as_array().map(Vec::len), Some(2));
    // Both inputs must have the same size, which the schema cannot express.
    for input in inputs.as_array().expect("a list") {
        assert_eq!(input["properties"]["shape"], json!({"const": [1, 2]}));
    }
    let path = "/openapi.json?service=nosuch";
    let unknown = gateway.bare("GET", path, &[]);
    unknown.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    // The document of all services is unchanged.
    let all = gateway.bare("GET", "/openapi.json", &[]).expect(200).json();
    let general = body_schema(&all);
    assert_eq!(general["$ref"], "#/components/schemas/PredictRequestData");
}

/// Returns the document's schema of data and config.
fn body_schema(document: &Value) -> Value {
    let path = "/api/mlpgateway/account/{account}/model/{model}/predict-with-config";
    let body = &document["paths"][path]["post"]["requestBody"];
    body["content"]["application/json"]["schema"].clone()
}
