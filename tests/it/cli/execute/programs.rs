//! Tests of ExecuTorch programs on the command line: invalid programs are rejected, the error names
//! the engine, and no other engine is tried.

use std::path::{Path, PathBuf};

use crate::support::run::pkgtool;
use crate::support::tree::Tree;
use pkgtool_testing::program::{ProgramPlan, constant, file, program, tensor, text, value};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

#[test]
fn declared_sizes_hold() {
    let schema = r#"{"forward": {"inputs": [{"kind": "Tensor", "dtype": "float32", "shape": [
        {"kind": "range", "range": {"min": 4, "max": 16, "step": 4}}]}],
        "outputs": [], "runtimeConstraints": []}}"#;
    let plan = ProgramPlan {
        name: "forward",
        values: vec![tensor(&[16], 1)],
        inputs: vec![0],
        outputs: vec![0],
        ..ProgramPlan::default()
    };
    let declared = constant("get_model_schema", value(6, vec![(0, text(schema))]));
    let bytes = file(&program(vec![plan.node(), declared]));
    let tree = Tree::new().file("m.pte", bytes);
    let shown = pkgtool(["inspect", "m.pte"]).within(tree.root()).run();
    let shown = shown.expect_code(0).stdout;
    let line = "input 0  float32[-1 (4 to 16 in steps of 4)]";
    assert!(shown.contains(line), "{shown}");
    let json = pkgtool(["inspect", "--json", "m.pte"])
        .within(tree.root())
        .run();
    let json = json.expect_code(0).json();
    let dim = &json["methods"]["forward"]["inputs"][0]["dims"][0];
    assert_eq!((&dim["least"], &dim["step"]), (&4.into(), &4.into()));
    for (size, fits) in [
        ("3", false),
        ("4", true),
        ("6", false),
        ("16", true),
        ("20", false),
    ] {
        let dim = format!("0={size}");
        let arguments = ["run", "m.pte", "--once", "--engine", "tract", "--dim", &dim];
        let ran = pkgtool(arguments).within(tree.root()).run();
        if fits {
            assert!(!ran.stderr.contains("declares"), "{}", ran.stderr);
            continue;
        }
        let said = ran.expect_code(2).stderr;
        let reason = if size == "20" {
            "the model's upper bound is 16"
        } else {
            "the model declares sizes of 4 to 16 in steps of 4"
        };
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn an_index_outside_a_table_is_an_error_of_the_inputs() {
    let path = fixtures().join("programs/embeddings.pte");
    let tree = Tree::new().file("ids.json", "[[0, 1, -1], [2, 3, 4]]");
    let path = path.to_string_lossy().into_owned();
    let arguments = [
        "run",
        &path,
        "--once",
        "--engine",
        "tract",
        "--input",
        "0=ids.json",
    ];
    let arguments = arguments.into_iter().chain(["--input", "1=zeros"]);
    let ran = pkgtool(arguments).within(tree.root()).run().expect_code(2);
    assert!(
        ran.stderr.contains("`aten::embedding.out`"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("index -1 of a dimension of "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("; 0 to "), "{}", ran.stderr);
}

#[test]
fn a_data_file_is_inspected_and_not_run() {
    let folder = fixtures().join("executorch");
    let name = "external_portable.ptd";
    let shown = pkgtool(["inspect", name])
        .within(&folder)
        .run()
        .expect_code(0);
    assert!(
        shown.stdout.contains("flat_tensor (FT01)"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("\ndata\n"), "{}", shown.stdout);
    let json = pkgtool(["inspect", "--json", name]).within(&folder).run();
    let json = json.expect_code(0).json();
    assert!(json["data"][0]["name"].is_string() && json["data"][0]["dtype"].is_string());
    let ran = pkgtool(["run", name]).within(&folder).run().expect_code(2);
    assert!(
        ran.stderr
            .contains("contains data for programs but no method"),
        "{}",
        ran.stderr
    );
}

/// The package's program has a valid header, but XNNPACK rejects its graph.
#[cfg(feature = "executorch")]
#[test]
fn a_program_that_the_runtime_finds_broken_is_answered_by_nobody() {
    use crate::support::environment::EnvironmentPiece;
    use serde_json::json;
    let test = "a_program_that_the_runtime_finds_broken_is_answered_by_nobody";
    if EnvironmentPiece::ExecuTorch.or_skip(test).is_none() {
        return;
    }
    let run = |bytes: &[u8]| {
        let config = json!({
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": "twist",
            "family": "twist",
            "capabilities": ["classification"],
            "backend": "xnnpack",
            "license": "mit",
            "variants": [{
                "precision": "fp32",
                "file": "twist_xnnpack_fp32.pte",
                "size_bytes": bytes.len(),
                "methods": {"forward": {
                    "inputs": [{"shape": [-1, 3, 32, 32], "dtype": "float32"}],
                    "outputs": [{"shape": [-1, 4], "dtype": "float32"}]
                }}
            }]
        });
        let tree = Tree::new()
            .json("twist/xnnpack/config.json", &config)
            .file("twist/xnnpack/twist_xnnpack_fp32.pte", bytes);
        let arguments = ["run", "twist/xnnpack", "--once", "--input", "random"];
        pkgtool(arguments).within(tree.root()).run()
    };
    let path = fixtures().join("models/dyn_batch_xnnpack_fp32.pte");
    let mut bytes = std::fs::read(path).expect("a fixture");
    run(&bytes).expect_code(0);
    // The bytes belong to the sizes of a tensor in the delegate's graph.
    bytes[2600..2604].copy_from_slice(&0xffff_u32.to_le_bytes());
    let ran = run(&bytes).expect_code(2);
    let said = "the executorch engine found the model invalid";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(!ran.stderr.contains("tract"), "{}", ran.stderr);
}
