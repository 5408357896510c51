//! The checked-in code of the protocol is the one that its definition gives.

use std::path::Path;

/// Writes the code instead of comparing it.
const UPDATE: &str = "GATE_UPDATE";

#[test]
fn the_code_is_that_of_the_definition() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("proto");
    let definition = protox::compile([folder.join("mlp-gate.proto")], [&folder]);
    let definition = definition.expect("the definition is valid");
    let made = tempfile::tempdir().expect("a folder can be made");
    tonic_prost_build::configure()
        .out_dir(made.path())
        .emit_rerun_if_changed(false)
        .compile_fds(definition)
        .expect("code can be made of it");
    let made = std::fs::read_to_string(made.path().join("com.mlp.gate.rs"));
    let made = made.expect("the package has a file");
    let path = root.join("proto/generated.rs");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, made).expect("the folder can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).expect("the file is there");
    assert!(
        there == made,
        "proto/generated.rs differs: run `cargo xtask gate`"
    );
}
