//! Tests of `pkgtool bench` and `pkgtool backends`: the fields of their JSON documents, and a
//! machine that has only the binary.

use std::fs;

use crate::support::run::pkgtool;
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
