//! Tests of `pkgtool run`: its output and files, and its errors for packages, models and inputs
//! that cannot run. They use tract, which every build has, unless a test names another engine.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::onnx::unary;
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

/// Runs `pkgtool run --engine tract` among the examples.
fn run(arguments: &[&str]) -> Ran {
    let all = ["run", "--engine", "tract"].iter().chain(arguments);
    pkgtool(all).within(EXAMPLES).run()
}

/// Runs `pkgtool run --engine tract` in a directory with one model.
fn run_model(model: &[u8], arguments: &[&str]) -> Ran {
    let tree = Tree::new().file("m.onnx", model);
    let all = ["run", "--engine", "tract", "m.onnx"]
        .iter()
        .chain(arguments);
    pkgtool(all).within(tree.root()).run()
}

#[test]
fn the_answer_as_json_keeps_its_contract() {
    let ran = run(&[
        "spotter/s/qnn",
        "--precision",
        "fp16",
        "--input",
        "random:3",
        "--json",
    ]);
    let json = ran.expect_code(0).json();
    for (key, expected) in [
        ("package", "spotter_s"),
        ("precision", "fp16"),
        ("backend", "qnn"),
        ("engine", "tract"),
        ("provider", "cpu"),
        ("method", "forward"),
    ] {
        assert_eq!(json[key], expected, "{key}");
    }
    assert_eq!(json["fallback"], true);
    assert_eq!(json["component"], Value::Null);
    assert_eq!(json["inputs"][0]["dtype"], "float16");
    let output = &json["outputs"][0];
    assert_eq!(output["name"], "boxes");
    assert_eq!(output["shape"], serde_json::json!([1, 64, 4]));
    let row = &output["data"][0][63];
    assert_eq!(row.as_array().expect("nested as the shape says").len(), 4);
    for timing in ["load", "first", "run"] {
        assert!(json["timings_ms"][timing].is_f64(), "{timing}");
    }
}

#[test]
fn outputs_are_written_and_can_be_fed_again() {
    let tree = Tree::new();
    let directory = tree.path("out");
    let model = "watercolor/mlx";
    let write = ["--output-dir", directory.to_str().expect("UTF-8"), "--json"];
    let first = run(&[&[model, "--input", "random:1"][..], &write].concat());
    let file = first.expect_code(0).json()["outputs"][0]["file"].clone();
    let file = file.as_str().expect("a path");
    assert!(Path::new(file).is_file());
    // The model's input and output are images of the same size.
    let second = run(&[model, "--input", file, "--json"]);
    assert_eq!(second.expect_code(0).json()["inputs"][0]["name"], "image");
}

#[test]
fn a_chain_feeds_outputs_to_inputs() {
    let chain = [
        "scribe-tiny-en/mlx",
        "--chain",
        "encoder,decoder",
        "--input",
        "random",
        "--json",
    ];
    let json = run(&chain).expect_code(0).json();
    let stages = json["chain"].as_array().expect("two components");
    let components: Vec<&Value> = stages.iter().map(|stage| &stage["component"]).collect();
    assert_eq!(components, ["encoder", "decoder"]);
    let given = &stages[0]["outputs"][0];
    let taken = stages[1]["inputs"].as_array().expect("inputs");
    let taken = taken.iter().find(|input| input["name"] == given["name"]);
    assert_eq!(taken.expect("fed by name")["shape"], given["shape"]);
    assert_eq!(json["component"], "decoder");
}

#[test]
fn what_cannot_be_run_is_refused_with_what_to_do() {
    let cases: &[&[&str]] = &[
        &["nowhere"],
        &["glimpse/config.json"],
        &["."],
        &["spotter", "--precision", "int8", "--input", "zeros"],
        &["spotter", "--component", "decoder", "--input", "zeros"],
        &["spotter", "--method", "backward", "--input", "zeros"],
        &["spotter", "--backend", "coreml", "--input", "zeros"],
        &["spotter", "--strict", "--input", "zeros"],
        &["scribe-tiny-en/mlx", "--input", "zeros"],
        &[
            "scribe-tiny-en/mlx",
            "--chain",
            "encoder,decodre",
            "--input",
            "zeros",
        ],
        &["spotter"],
        &["spotter", "--input", "imgae=zeros"],
        &["spotter", "--input", "image=[1, 2]"],
        &["hush-sentence/mlx", "--input", "[[1.5]]"],
        &[
            "hush-sentence/mlx",
            "--input",
            "zeros",
            "--dim",
            "sequence=0.5",
        ],
        &[
            "hush-sentence/mlx",
            "--input",
            "zeros",
            "--dim",
            "sequence=99999999999999",
        ],
        &["pebble/tokenizer.json", "--input", "zeros"],
        &["../README.md", "--input", "zeros"],
        &[
            "spotter/s/qnn/spotter_s_qnn_fp32.onnx",
            "--precision",
            "fp32",
            "--input",
            "zeros",
        ],
    ];
    let mut text = String::new();
    for case in cases {
        let ran = run(case);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "$ pkgtool run {}
{}[{}]
",
            case.join(" "),
            ran.stderr,
            ran.code
        );
        assert!(ran.stdout.is_empty(), "{case:?}");
        assert!(matches!(ran.code, 2 | 3), "{case:?}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_model_that_gives_nan_fails_where_finite_numbers_are_asked_for() {
    let log = unary("Log", "float32", Some(&[2]));
    let ran = run_model(&log, &["--input", "[1.0, -1.0]", "--json"]);
    let json = ran.expect_code(0).json();
    assert_eq!(json["outputs"][0]["data"], serde_json::json!([0.0, "NaN"]));
    let ran = run_model(&log, &["--input", "[1.0, -1.0]", "--check-finite"]);
    assert!(
        ran.expect_code(2)
            .stderr
            .contains("output `y` has NaN or infinite values: 1 of 2")
    );
    run_model(&log, &["--input", "[1.0, 2.0]", "--check-finite"]).expect_code(0);
}

#[test]
fn operators_without_code_are_named_before_anything_runs() {
    let ran = run_model(
        &unary("Sparkle", "float32", Some(&[2])),
        &["--input", "zeros"],
    );
    let ran = ran.expect_code(2);
    assert!(ran.stderr.contains("`Sparkle`"), "{}", ran.stderr);
}

#[test]
fn broken_models_are_refused() {
    let whole = fs::read(format!("{EXAMPLES}/spotter/s/qnn/spotter_s_qnn_fp32.onnx"));
    let whole = whole.expect("an example");
    for length in [1, 40, 300, whole.len() / 2, whole.len() - 7] {
        let ran = run_model(&whole[..length], &["--input", "zeros"]);
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains("m.onnx"), "{}", ran.stderr);
    }
}

#[test]
fn external_data_outside_the_folder_is_refused_before_the_engine() {
    let model = fs::read(format!(
        "{EXAMPLES}/parlor-tts/82m/xnnpack/parlor_tts_82m_xnnpack_fp32.onnx"
    ));
    let model = model.expect("an example");
    let name = b"parlor_tts_82m_xnnpack_fp32.onnx.data";
    let outside = b"../../../../../../../../../etc/passwd";
    assert_eq!(name.len(), outside.len());
    let mut changed = model.clone();
    while let Some(at) = changed
        .windows(name.len())
        .position(|window| window == name)
    {
        changed[at..at + name.len()].copy_from_slice(outside);
    }
    let ran = run_model(&changed, &["--input", "zeros"]).expect_code(2);
    assert!(
        ran.stderr
            .contains("etc/passwd`, outside its own directory"),
        "{}",
        ran.stderr
    );
    let ran = run_model(&model, &["--input", "zeros"]).expect_code(2);
    assert!(
        ran.stderr.contains("which does not exist"),
        "{}",
        ran.stderr
    );
}

#[cfg(unix)]
#[test]
fn external_data_behind_a_link_is_refused() {
    let folder = format!("{EXAMPLES}/parlor-tts/82m/xnnpack");
    let name = "parlor_tts_82m_xnnpack_fp32.onnx";
    let tree = Tree::new().file(
        name,
        fs::read(format!("{folder}/{name}")).expect("an example"),
    );
    let data = format!("{name}.data");
    std::os::unix::fs::symlink(format!("{folder}/{data}"), tree.path(&data)).expect("a link");
    let ran = pkgtool(["run", name, "--input", "zeros"])
        .within(tree.root())
        .run();
    let ran = ran.expect_code(2);
    assert!(
        ran.stderr.contains("a link out of its own directory"),
        "{}",
        ran.stderr
    );
}

#[test]
fn shapes_beyond_memory_are_refused_before_anything_is_allocated() {
    let model = unary("Identity", "float32", Some(&[1 << 40, 1 << 20]));
    let start = Instant::now();
    let ran = run_model(&model, &["--input", "zeros"]).expect_code(2);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(ran.stderr.contains("is too large"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_memory_limit_stops_only_the_model() {
    let model = unary("Identity", "float32", Some(&[64 << 20]));
    let ran = run_model(&model, &["--input", "zeros", "--max-memory", "300MiB"]);
    let ran = ran.expect_code(2);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
}

/// A signal ends a long run together with its worker process.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_the_run_and_its_worker() {
    let mut bench = pkgtool(["bench", "--engine", "tract", "--seconds", "600", "spotter"])
        .within(EXAMPLES)
        .interruptible()
        .into_command()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let workers = format!("/proc/{0}/task/{0}/children", bench.id());
    let deadline = Instant::now() + Duration::from_mins(1);
    let worker = loop {
        let children = fs::read_to_string(&workers).unwrap_or_default();
        if let Some(worker) = children.split_whitespace().next() {
            break worker.to_owned();
        }
        assert!(Instant::now() < deadline, "no worker was started");
        std::thread::sleep(Duration::from_millis(10));
    };
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &bench.id().to_string()])
        .status();
    assert!(interrupted.expect("kill runs").success());
    let status = bench.wait().expect("it ends");
    assert!(!status.success());
    let process = format!("/proc/{worker}/stat");
    while fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "the worker is left behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}
