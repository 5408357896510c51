//! The gateway against its own OpenAPI document, by a fuzzer that reads it.

use std::fs;
use std::process::Command;

use crate::support::environment::Piece;
use crate::support::gateway::Setup;
use crate::support::http::Upstream;

/// Examples of each operation, beside those that cover its parameters one by one.
const EXAMPLES: &str = "25";

#[test]
fn every_answer_is_one_that_the_document_has() {
    let test = "every_answer_is_one_that_the_document_has";
    let Some(packages) = Piece::Schemathesis.or_skip(test) else {
        return;
    };
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "100000"])
        .expect_code(0);
    // Parameters that name something must name what is there: else nothing but 404 is tried.
    let base = "/api/mlpgateway/account/local/model/echo";
    let config = gateway.post(
        &format!("{base}/predict-config"),
        r#"{"name":"a","config":{}}"#,
    );
    let config = config.expect(200).json()["id"]["configId"].clone();
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let directory = tempfile::tempdir().expect("a directory");
    let settings = directory.path().join("schemathesis.toml");
    let parameters = format!(
        "[parameters]\n\"path.account\" = \"local\"\n\"path.model\" = \"echo\"\n\
         \"path.provider\" = \"echo\"\n\"path.task\" = \"{task}\"\n\"query.configId\" = {config}\n"
    );
    fs::write(&settings, parameters).expect("a file");
    let run = "from schemathesis.cli import schemathesis; schemathesis()";
    let ran = Command::new("python3")
        .args(["-c", run, "--config-file"])
        .arg(&settings)
        .args(["run", &format!("http://{}/openapi.json", gateway.address)])
        .args(["--header", &format!("MLP-API-KEY: {}", gateway.key)])
        .args(["--checks", "all", "--max-examples", EXAMPLES])
        .args(["--generation-deterministic", "--no-color"])
        .current_dir(directory.path())
        .env("PYTHONPATH", packages)
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert!(said.contains("23 selected / 23 total"), "{said}");
}
