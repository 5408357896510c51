//! Tests of `pkgtool run --steps`: sessions with state, outputs that become inputs of the next
//! step, values per step, and chains of methods.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use pkgtool_engine::tensor::{Tensor, npy};
use serde_json::{Value, json};

use crate::support::environment::EnvironmentPiece;
use crate::support::onnx::{decoder, graph_node, graph_value};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/programs");

fn run(directory: impl AsRef<Path>, engine: &str, arguments: &[&str]) -> Ran {
    let all = ["run", "--engine", engine];
    let all = all.iter().chain(arguments);
    pkgtool(all).within(directory).run()
}

/// Returns the engines on this machine that run ExecuTorch programs.
fn engines_of_programs() -> Vec<&'static str> {
    let mut engines = vec!["tract"];
    if cfg!(feature = "executorch")
        && EnvironmentPiece::ExecuTorch
            .or_skip("steps on executorch")
            .is_some()
    {
        engines.push("executorch");
    }
    engines
}

/// Returns the engines on this machine that run ONNX models.
fn engines_of_models() -> Vec<&'static str> {
    let mut engines = vec!["tract"];
    if cfg!(feature = "ort") && EnvironmentPiece::Ort.or_skip("steps on ort").is_some() {
        engines.push("ort");
    }
    engines
}

/// Returns the named output of each step.
fn outputs(document: &Value, name: &str) -> Vec<Value> {
    let steps = document["steps"].as_array().expect("steps");
    let find = |step: &Value| {
        let outputs = step["outputs"].as_array().expect("outputs").iter();
        let mut found = outputs.filter(|output| output["name"] == name);
        found.next().expect("the output")["data"].clone()
    };
    steps.iter().map(find).collect()
}

fn input_shapes(document: &Value, name: &str) -> Vec<Value> {
    let steps = document["steps"].as_array().expect("steps");
    let find = |step: &Value| {
        let inputs = step["inputs"].as_array().expect("inputs").iter();
        let mut found = inputs.filter(|input| input["name"] == name);
        found.next().expect("the input")["shape"].clone()
    };
    steps.iter().map(find).collect()
}

#[test]
fn a_program_keeps_its_state_from_step_to_step() {
    for engine in engines_of_programs() {
        let arguments = ["counter.pte", "--steps", "3", "--input", "ones", "--json"];
        let document = run(PROGRAMS, engine, &arguments).expect_code(0).json();
        assert_eq!(
            outputs(&document, "output_1"),
            [json!([1]), json!([2]), json!([3])]
        );
        assert_eq!(
            document["outputs"][1]["data"],
            json!([3]),
            "the last step's"
        );
        assert_eq!(document["feeds"], json!([]));
        assert_eq!(document["engine"], engine);
        // A new session starts without state.
        let arguments = ["counter.pte", "--input", "ones", "--json"];
        let document = run(PROGRAMS, engine, &arguments).expect_code(0).json();
        assert_eq!(document["outputs"][1]["data"], json!([1]));
    }
}

/// With values per step from files, the KV cache gives the same outputs as the reference runtime.
#[test]
fn a_cache_is_tried_with_values_for_each_step() {
    let file = File::open(format!("{PROGRAMS}/cache_by_index.npz")).expect("the fixture");
    let mut archive = zip::ZipArchive::new(file).expect("an archive");
    let mut array = |name: &str| -> Tensor {
        let mut bytes = Vec::new();
        let mut entry = archive.by_name(&format!("{name}.npy")).expect("an array");
        entry.read_to_end(&mut bytes).expect("it is whole");
        npy::read(&mut bytes.as_slice()).expect("an array")
    };
    let tree = Tree::new();
    let mut options = Vec::new();
    for input in 0..2 {
        let steps: Vec<Tensor> = (0..4)
            .map(|step| array(&format!("{step}i{input}")))
            .collect();
        let shape = [&[4], steps[0].shape()].concat();
        let bytes: Vec<u8> = steps.iter().flat_map(Tensor::bytes).copied().collect();
        let stacked = Tensor::new(steps[0].dtype(), shape, bytes).expect("it is small");
        let path = tree.path(&format!("{input}.npy"));
        let mut file = File::create(&path).expect("it can be written");
        npy::write(&mut file, &stacked).expect("it can be written");
        options.push(format!("--step-input=input_{input}={}", path.display()));
    }
    let expected: Vec<Vec<f64>> = (0..4)
        .map(|step| array(&format!("{step}o0")).to_f64().collect())
        .collect();
    for engine in engines_of_programs() {
        let document = run(
            PROGRAMS,
            engine,
            &["cache_by_index.pte", &options[0], &options[1], "--json"],
        );
        let document = document.expect_code(0).json();
        for (found, expected) in outputs(&document, "output_0").iter().zip(&expected) {
            let found: Vec<f64> = flat(found);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{engine}: {found} is not {expected}"
                );
            }
        }
    }
}

fn flat(json: &Value) -> Vec<f64> {
    match json {
        Value::Array(rows) => rows.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().expect("a number")],
    }
}

/// The past starts empty and grows with each step, and so does the mask.
#[test]
fn a_decoder_with_past_and_present_is_stepped_through() {
    let tree = Tree::new().file("decoder.onnx", decoder());
    for engine in engines_of_models() {
        let arguments = [
            "decoder.onnx",
            "--step-input",
            "input_ids=[[[5,8]],[[13]],[[21]],[[1,2,3]]]",
            "--input",
            "attention_mask=ones",
            "--json",
        ];
        let document = run(tree.root(), engine, &arguments).expect_code(0).json();
        let sums: Vec<f64> = outputs(&document, "logits").iter().flat_map(flat).collect();
        assert_eq!(sums, [13.0, 26.0, 47.0, 53.0], "{engine}");
        let lengths = |name| input_shapes(&document, name);
        let of = |sizes: [u64; 4]| sizes.map(|size| json!([1, size])).to_vec();
        assert_eq!(lengths("input_ids"), of([2, 1, 1, 3]));
        assert_eq!(lengths("past_key_values.0.key"), of([0, 2, 3, 4]));
        assert_eq!(lengths("attention_mask"), of([2, 3, 4, 7]));
        let feed = json!([{ "output": "present.0.key", "input": "past_key_values.0.key" }]);
        assert_eq!(document["feeds"], feed);
    }
    // An initial past may be given, and another output may feed it.
    let arguments = [
        "decoder.onnx",
        "--steps=3",
        "--input=input_ids=[[2]]",
        "--input=ones",
        "--input=past_key_values.0.key=[[7, 9]]",
        "--feed=present.0.key=past_key_values.0.key",
    ];
    let text = run(tree.root(), "tract", &arguments).expect_code(0).stdout;
    assert!(
        text.contains("each step feeds the next: present.0.key → past_key_values.0.key"),
        "{text}"
    );
    for line in ["logits         float32[1, 1]  min 18", "min 20", "min 22"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // With feeding switched off, every step gives the same result as the first.
    let arguments = [
        "decoder.onnx",
        "--steps=3",
        "--input=ones",
        "--feed=none",
        "--json",
    ];
    let document = run(tree.root(), "tract", &arguments).expect_code(0).json();
    let sums: Vec<f64> = outputs(&document, "logits").iter().flat_map(flat).collect();
    assert_eq!(sums, [2.0, 2.0, 2.0], "one token of the past and a new one");
}

#[test]
fn a_state_of_a_fixed_shape_begins_with_zeros() {
    let model = pkgtool_testing::onnx::model(&[
        &graph_node("Add", &["state", "x"], "new_state", &[]),
        &graph_value(11, "x", "float32", &["2"]),
        &graph_value(11, "state", "float32", &["2"]),
        &graph_value(12, "new_state", "float32", &["2"]),
    ]);
    let tree = Tree::new().file("m.onnx", model);
    let out = tree.path("out");
    let out = out.to_str().expect("UTF-8");
    let arguments = [
        "m.onnx",
        "--step-input",
        "x=[[1,2],[10,20],[100,200]]",
        "--output-dir",
        out,
        "--json",
    ];
    let document = run(tree.root(), "tract", &arguments).expect_code(0).json();
    let files = document["steps"].as_array().expect("steps").iter();
    let files: Vec<&str> = files
        .filter_map(|step| step["outputs"][0]["file"].as_str())
        .collect();
    assert_eq!(files.len(), 3);
    for (file, expected) in files.iter().zip([[1.0, 2.0], [11.0, 22.0], [111.0, 222.0]]) {
        let mut file = File::open(file).expect("it was written");
        let tensor = npy::read(&mut file).expect("an array");
        assert_eq!(tensor.to_f64().collect::<Vec<f64>>(), expected);
    }
    // Only the last step contains infinity.
    let arguments = [
        "m.onnx",
        "--step-input",
        "x=[[1,2],[1,2],[1,\"Infinity\"]]",
        "--check-finite",
    ];
    let ran = run(tree.root(), "tract", &arguments).expect_code(2);
    assert!(
        ran.stderr
            .contains("step 3: output `new_state` has NaN or infinite values: 1 of 2"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stdout.contains("step 3, "),
        "the steps that ran are shown: {}",
        ran.stdout
    );
}

#[test]
fn steps_that_make_no_sense_are_refused() {
    let tree = Tree::new().file("decoder.onnx", decoder());
    for (arguments, reason) in [
        (
            &["--feed=none", "--input=ones"][..],
            "the number of steps is unknown",
        ),
        (
            &[
                "--steps=2",
                "--step-input=input_ids=[[[1]]]",
                "--input=ones",
            ],
            "1 steps, but --steps 2 gives 2",
        ),
        (
            &["--step-input=input_ids=[]", "--input=ones"],
            "the list has no steps",
        ),
        (
            &["--step-input=input_ids=5", "--input=ones"],
            "expected a list of steps",
        ),
        (
            &["--step-input=input_ids=[[[1]],[2]]", "--input=ones"],
            "step 2 of [[[1]],[2]]",
        ),
        (
            &["--step-input=inptu_ids=[[[1]]]"],
            "did you mean `input_ids`",
        ),
        (&["--step-input=ones@2x1x1"], "it does not name its input"),
        (&["--step-input={}"], "the steps of each input separately"),
        (
            &["--steps=2", "--feed=logits=input_ids", "--input=ones"],
            "the output is float32",
        ),
        (
            &["--steps=2", "--feed=present=past", "--input=ones"],
            "unknown output or input",
        ),
        (
            &["--step-input=input_ids=[[[1]]]", "--input=input_ids=[[1]]"],
            "is given twice",
        ),
        (&["--steps=0"], "--steps"),
        (
            &["--steps=2", "--once", "--input=ones"],
            "cannot be used with",
        ),
        (&["--steps=2"], "no value for input 0 `input_ids`"),
    ] {
        let all = [&["decoder.onnx"], arguments].concat();
        let ran = run(tree.root(), "tract", &all).expect_code(2);
        assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_chain_takes_the_methods_of_a_program() {
    for engine in engines_of_programs() {
        let arguments = [
            "methods.pte",
            "--chain",
            "encode,score",
            "--input=random:4",
            "--json",
        ];
        let document = run(PROGRAMS, engine, &arguments).expect_code(0).json();
        let stages = document["chain"].as_array().expect("two methods");
        let methods: Vec<&Value> = stages.iter().map(|stage| &stage["method"]).collect();
        assert_eq!(methods, ["encode", "score"]);
        assert_eq!(document["method"], "score");
    }
    let tree = Tree::new();
    let out = tree.path("out");
    let out = out.to_str().expect("UTF-8");
    let arguments = [
        "methods.pte",
        "--chain",
        "encode,score",
        "--input=ones",
        "--output-dir",
        out,
    ];
    run(PROGRAMS, "tract", &arguments).expect_code(0);
    for file in ["out/encode/output_0.npy", "out/score/output_1.npy"] {
        assert!(tree.path(file).is_file(), "{file}");
    }
    let ran = run(
        PROGRAMS,
        "tract",
        &["methods.pte", "--chain", "encode,scroe", "--input=ones"],
    );
    let stderr = ran.expect_code(2).stderr;
    assert!(
        stderr.contains("no method `scroe`; it has `encode`, `score`"),
        "{stderr}"
    );
}
