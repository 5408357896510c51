//! Tests with official clients of the chat-completion API. Only their base URL and API key are
//! configured.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DIRECT, STANDARD, with_chat};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};

pub(crate) fn script(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/clients").join(name)
}

/// Runs a client's script against a gateway and fails unless all its checks pass.
#[track_caller]
pub(crate) fn run_client(mut command: Command, gateway: &Gateway, base: &str, more: &[&str]) {
    let url = format!("http://{}{base}", gateway.address);
    let ran = command
        .args(["--base-url", &url, "--key", &gateway.key])
        .args(more)
        .env_remove("OPENAI_API_KEY")
        .env_remove("OPENAI_BASE_URL")
        .output()
        .expect("the interpreter runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "{base}\n{said}\n{complained}\n{}",
        gateway.log()
    );
    assert!(said.contains("checks passed"), "{said}");
}

/// Arguments that name the services of [`with_chat`] to a client script, by base path of the mode.
const MODELS: [(&str, &[&str]); 3] = [
    (
        STANDARD,
        &[
            "--chat",
            "local/chat",
            "--embeddings",
            "local/chat",
            "--long",
            "!hold",
        ],
    ),
    (
        "/api/adapters/openai/v1",
        &["--chat", "local/chat", "--embeddings", "local/chat"],
    ),
    (
        DIRECT,
        &[
            "--chat",
            "local/raw",
            "--embeddings",
            "local/vectors",
            "--no-completions",
            "--long",
            "!hold",
        ],
    ),
];

#[test]
fn the_python_client_finds_all_as_it_expects() {
    let test = "the_python_client_finds_all_as_it_expects";
    let Some(packages) = EnvironmentPiece::OpenAi.or_skip(test) else {
        return;
    };
    let (gateway, server) = with_chat(Setup::new());
    for (round, (base, models)) in MODELS.into_iter().enumerate() {
        let mut command = Command::new("python3");
        command.arg(script("openai_client.py"));
        command.env("PYTHONPATH", &packages);
        run_client(command, &gateway, base, models);
        let left = [3, 3, 6][round];
        gateway.until(|| server.left() == left);
    }
}

#[test]
fn the_npm_client_finds_all_as_it_expects() {
    let test = "the_npm_client_finds_all_as_it_expects";
    let Some(modules) = EnvironmentPiece::OpenAiNode.or_skip(test) else {
        return;
    };
    let (gateway, server) = with_chat(Setup::new());
    for (round, (base, models)) in MODELS.into_iter().enumerate() {
        let mut command = Command::new("node");
        command.arg(script("openai_client.mjs"));
        command.arg("--modules").arg(&modules);
        run_client(command, &gateway, base, models);
        let left = [3, 3, 6][round];
        gateway.until(|| server.left() == left);
    }
}

/// Arguments that name the services of [`with_chat`] to other libraries.
const OTHER_MODELS: [&str; 4] = ["--chat", "local/chat", "--embeddings", "local/chat"];

#[test]
fn langchain_and_litellm_find_all_as_they_expect() {
    let test = "langchain_and_litellm_find_all_as_they_expect";
    let Some(packages) = EnvironmentPiece::Frameworks.or_skip(test) else {
        return;
    };
    let (gateway, _server) = with_chat(Setup::new());
    let mut command = Command::new("python3");
    command.arg(script("frameworks.py"));
    command.env("PYTHONPATH", &packages);
    run_client(command, &gateway, "/api/adapters/openai/v1", &OTHER_MODELS);
}

#[test]
fn the_ai_sdk_finds_all_as_it_expects() {
    let test = "the_ai_sdk_finds_all_as_it_expects";
    let Some(modules) = EnvironmentPiece::OpenAiNode.or_skip(test) else {
        return;
    };
    let (gateway, _server) = with_chat(Setup::new());
    let mut command = Command::new("node");
    command.arg(script("ai_sdk.mjs"));
    command.arg("--modules").arg(&modules);
    run_client(command, &gateway, "/api/adapters/openai/v1", &OTHER_MODELS);
}
