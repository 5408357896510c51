//! Tests of packages on servers, from outside: the binary runs against a server inside the test.

mod check;
mod hostile;
mod pull;
#[cfg(feature = "serve")]
mod served;
mod whole;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::fixture;
use crate::support::run::{Run, pkgtool};
use crate::support::tree::{MODEL, config};
use crate::support::web::Content;
use pkgtool_testing::onnx;

/// Returns the program that [`config`] names.
fn program() -> Vec<u8> {
    fs::read(fixture("models/add_linear_xnnpack_fp32.pte")).expect("a fixture")
}

/// Returns a valid package below a path of a server; its program has `size` bytes.
fn package(folder: &str, size: u64) -> BTreeMap<String, Content> {
    let mut config = config();
    config["variants"][0]["size_bytes"] = size.into();
    BTreeMap::from([
        (
            format!("{folder}/config.json"),
            Content::of(format!("{config:#}\n")),
        ),
        (
            format!("{folder}/{MODEL}"),
            Content::of(program()).sized(size),
        ),
    ])
}

/// Returns the parts of an ONNX graph for `y = Identity(x)`.
fn ends() -> Vec<u8> {
    let node = [(1, "x"), (2, "y"), (4, "Identity")]
        .map(|(field, text)| onnx::part(field, &[text.as_bytes()]));
    let node = onnx::part(1, &[&node.concat()]);
    [node, onnx::typed(11, "x"), onnx::value(12, "y")].concat()
}

/// Returns a run of the tool without environment variables that affect network access.
fn tool(arguments: &[&str]) -> Run {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let run = pkgtool(arguments)
        .within(directory)
        .variable("NO_PROXY", "*");
    run.variable("HF_TOKEN", "")
        .variable("HF_ENDPOINT", "http://127.0.0.1:9")
}

/// Returns the numbers of requests and bytes that `-v` reports.
fn traffic(stderr: &str) -> (u64, u64) {
    let line = stderr
        .lines()
        .find(|line| line.contains(" requests, "))
        .expect("a note");
    let words: Vec<&str> = line.split(' ').collect();
    let before = |word: &str| {
        let at = words
            .iter()
            .position(|one| one.starts_with(word))
            .expect("the word");
        words[at - 1].parse().expect("a number")
    };
    (before("requests"), before("bytes"))
}
