//! Tests of `pkgtool bench` and `pkgtool backends`: the fields of their JSON documents, and a
//! machine that has only the binary.

use std::fs;

use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

#[test]
fn several_series_are_measured_side_by_side() {
    let tree = Tree::new();
    let page = tree.path("bench.html");
    let page = page.to_str().expect("UTF-8");
    let json = pkgtool([
        "bench",
        "spotter",
        "--precision",
        "fp32,fp16",
        "--engine",
        "tract",
        "--runs",
        "6",
        "--rounds",
        "3",
        "--warm-up",
        "1",
        "--json",
        "--samples",
        "--html",
        page,
    ])
    .within(EXAMPLES)
    .run()
    .expect_code(0)
    .json();
    assert_eq!(json["version"], 1);
    assert!(json["machine"]["cores"].as_u64() >= Some(1));
    let series = json["series"].as_array().expect("two series");
    assert_eq!(series.len(), 2);
    for one in series {
        assert_eq!(one["runs"], 6);
        assert_eq!(one["samples_ms"].as_array().expect("asked for").len(), 6);
        let figure = |name: &str| one[name].as_f64().unwrap_or_else(|| panic!("no {name}"));
        assert!(figure("min_ms") <= figure("p50_ms") && figure("p50_ms") <= figure("p99_ms"));
        assert!(figure("load_ms") > 0.0 && figure("first_run_ms") > 0.0);
        assert!(figure("throughput_per_s") > 0.0);
        assert!(cfg!(not(target_os = "linux")) || figure("peak_memory_bytes") > 1e6);
    }
    assert!(series[0]["ratio"].is_null());
    assert!(series[1]["ratio"]["low"].as_f64() <= series[1]["ratio"]["ratio"].as_f64());
    let page = fs::read_to_string(page).expect("the page is written");
    assert!(page.contains("<svg") && page.contains("spotter_s fp16 for qnn"));
    for outside in ["http://", "https://", "<script", "src=", "{{"] {
        assert!(
            !page.contains(outside),
            "the page is not self-contained: {outside}"
        );
    }
}

/// A package with a convolution and more operators.
const PICTURES: &str = "watercolor/mlx";

#[test]
fn a_profile_accounts_for_the_time_of_a_run() {
    let tree = Tree::new();
    let [trace, page] = ["trace.json", "bench.html"].map(|name| tree.path(name));
    let [trace, page] = [&trace, &page].map(|path| path.to_str().expect("UTF-8"));
    let json = pkgtool([
        "bench",
        PICTURES,
        "--engine",
        "tract",
        "--runs",
        "5",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--profile",
        "--trace",
        trace,
        "--html",
        page,
        "--json",
    ])
    .within(EXAMPLES)
    .run()
    .expect_code(0)
    .json();
    let profile = &json["series"][0]["profile"];
    let figure = |name: &str| {
        profile[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name}"))
    };
    let (run, nodes) = (figure("run_ms"), figure("nodes_ms"));
    assert!((nodes + figure("between_nodes_ms") - run).abs() < 1e-6);
    assert!(0.0 < nodes && nodes <= run);
    let operators = profile["operators"].as_array().expect("a list");
    let times = operators
        .iter()
        .map(|row| row["time_ms"].as_f64().expect("a time"));
    let times: Vec<f64> = times.collect();
    assert!((times.iter().sum::<f64>() - nodes).abs() < 1e-6);
    assert!(times.is_sorted_by(|a, b| a >= b));
    let named = |row: &serde_json::Value| row["operator"] == "Conv" && row["provider"] == "tract";
    assert!(operators.iter().any(named), "{operators:#?}");
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(trace).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let spans = events.iter().filter(|event| event["ph"] == "X");
    let end = |event: &serde_json::Value| {
        event["ts"].as_f64().expect("a start") + event["dur"].as_f64().expect("a duration")
    };
    let ends: Vec<f64> = spans.map(end).collect();
    assert!(ends[1..].iter().all(|it| *it <= ends[0]), "{ends:?}");
    let page = fs::read_to_string(page).expect("written");
    assert!(page.contains("<div class=\"bar\"") && !page.contains("{{"));
}

#[test]
fn a_run_is_profiled_on_its_inputs_only() {
    let text = pkgtool([
        "run",
        PICTURES,
        "--engine",
        "tract",
        "--input",
        "zeros",
        "--profile",
    ])
    .within(EXAMPLES)
    .run()
    .expect_code(0)
    .stdout;
    assert!(
        text.contains("each,") && text.contains("between nodes"),
        "{text}"
    );
    let wrong = pkgtool(["run", PICTURES, "--profile", "--steps", "2"])
        .within(EXAMPLES)
        .run();
    wrong
        .expect_code(2)
        .expect_error("--profile records single runs on tensors");
}

/// Measures the same model twice, and holds the second against a limit.
fn gated(arguments: &[&str]) -> Ran {
    let same = [
        "bench", PICTURES, PICTURES, "--engine", "tract", "--runs", "40",
    ];
    pkgtool(same.iter().chain(arguments)).within(EXAMPLES).run()
}

#[test]
fn a_limit_decides_by_the_whole_interval() {
    let tree = Tree::new();
    let report = tree.path("bench.xml");
    let target = format!("junit={}", report.display());
    let text = gated(&["--max-ratio", "100"]).expect_code(0).stdout;
    assert!(text.contains("within the limit"), "{text}");
    let slower = gated(&["--max-ratio", "0.01", "--report", &target]);
    let text = slower.expect_code(1).stdout;
    assert!(text.contains("slower than the limit"), "{text}");
    let xml = fs::read_to_string(report).expect("written");
    assert!(
        xml.contains("slower-than-allowed") && xml.contains("the limit is 0.01"),
        "{xml}"
    );
    let alone = pkgtool(["bench", PICTURES, "--max-ratio", "1.1"])
        .within(EXAMPLES)
        .run();
    alone
        .expect_code(2)
        .expect_error("give a second one, or --baseline FILE");
}

#[test]
fn saved_times_are_those_of_one_machine() {
    let tree = Tree::new();
    let file = tree.path("times.json");
    let saved = file.to_str().expect("UTF-8");
    let bench = |arguments: &[&str]| {
        let model = ["bench", PICTURES, "--engine", "tract", "--runs", "40"];
        pkgtool(model.iter().chain(arguments))
            .within(EXAMPLES)
            .run()
    };
    bench(&["--write-baseline", saved]).expect_code(0);
    let text = bench(&["--baseline", saved, "--max-ratio", "50"])
        .expect_code(0)
        .stdout;
    assert!(
        text.contains("of the time of the baseline, within the limit"),
        "{text}"
    );
    bench(&["--baseline", saved, "--max-ratio", "0.01"]).expect_code(1);
    let text = fs::read_to_string(&file).expect("written");
    for (from, to, expected) in [
        (
            "\"machine\": \"",
            "\"machine\": \"Other ",
            "measured on another machine (Other",
        ),
        (
            "\"threads\": null",
            "\"threads\": 7",
            "measured with --threads 7, and this is with all",
        ),
        (
            "\"version\": 1",
            "\"version\": 9",
            "expected version 1 of a baseline, found 9",
        ),
        (
            "\"label\": \"",
            "\"label\": \"no ",
            "the baseline has no times of `",
        ),
        (
            "\"ratios\": [",
            "\"ratios\": [-1.0, ",
            "are not numbers above 0",
        ),
        ("{", "", "this is not a baseline of `--write-baseline`"),
    ] {
        fs::write(&file, text.replacen(from, to, 1)).expect("writable");
        bench(&["--baseline", saved])
            .expect_code(2)
            .expect_error(expected);
    }
    bench(&["--baseline", "absent.json"]).expect_code(2);
}

/// Runs the tool in an environment where only the binary can be found.
#[test]
fn a_bare_machine_explains_itself() {
    let tree = Tree::new();
    let run = |arguments: &[&str]| {
        let mut command = pkgtool(arguments).within(EXAMPLES).into_command();
        command
            .env_clear()
            .env("HOME", tree.root())
            .env("PATH", tree.root());
        let output = command.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("the tool writes UTF-8")
    };
    let text = run(&["backends"]);
    assert!(text.contains("pip install onnxruntime"), "{text}");
    let absent = "  executorch  ExecuTorch is not available";
    assert!(text.contains(absent), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&run(&["backends", "--json"])).expect("it is JSON");
    let backends = json["backends"].as_array().expect("all backends");
    assert_eq!(backends.len(), 6);
    for backend in backends {
        assert_eq!(backend["engine"], "tract");
        assert_eq!(backend["fallback"], !backend["backend"].is_null());
    }
    // All examples run with the fallback engine.
    run(&["run", "spotter", "--input", "zeros"]);
}
