//! Tests of `--timeout` and `--max-memory`: the limits hold in every step, error messages name
//! them, and work within the limits succeeds.

use std::time::{Duration, Instant};

use crate::support::graph::{FLOAT, Graph, Size};
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

/// Returns a model of a few hundred bytes whose inputs take `mebibytes` MiB each.
fn greedy(inputs: usize, mebibytes: u64) -> Vec<u8> {
    let names: Vec<String> = (0..inputs).map(|place| format!("x{place}")).collect();
    let mut graph = Graph::default();
    for name in &names {
        graph = graph.input(name, FLOAT, &[Size::Of(mebibytes), Size::Of(1 << 18)]);
    }
    graph
        .node("Relu", &["x0"], "y", &[])
        .output("y", FLOAT)
        .bytes()
}

fn run(model: &[u8], command: &str, arguments: &[&str]) -> Ran {
    let tree = Tree::new().file("m.onnx", model);
    let first = [command, "--engine", "tract", "m.onnx"];
    pkgtool(first.iter().chain(arguments))
        .within(tree.root())
        .run()
}

/// The file is small, but its inputs are large: the limit is checked before any input is created.
#[test]
fn inputs_beyond_the_limit_are_not_even_begun() {
    let model = greedy(3, 2 << 10);
    assert!(model.len() < 300);
    for command in ["run", "bench", "compare"] {
        let arguments: &[&str] = match command {
            "run" => &["--max-memory", "1GiB", "--input", "random"],
            "bench" => &["--max-memory", "1GiB"],
            // Compares the model with itself.
            _ => &["m.onnx", "--max-memory", "1GiB"],
        };
        let start = Instant::now();
        let ran = run(&model, command, arguments).expect_code(2);
        assert!(start.elapsed() < Duration::from_secs(20), "{command}");
        let expected = "error: the inputs need 6 GiB, more than the memory limit of 1 GiB \
                        (--max-memory); give it more memory, or smaller inputs (`--dim`)";
        assert_eq!(ran.stderr.trim_end(), expected, "{command}");
    }
}

#[test]
fn sets_of_inputs_count_together() {
    let model = greedy(1, 16);
    let arguments = ["m.onnx", "--seeds", "100", "--max-memory", "100MiB"];
    let ran = run(&model, "compare", &arguments).expect_code(2);
    assert!(
        ran.stderr.contains(
            "the inputs need 112 MiB, more than the memory limit of 100 MiB (--max-memory)"
        ),
        "{}",
        ran.stderr
    );
}

#[test]
fn making_inputs_ends_at_the_time_limit() {
    let model = greedy(1, 2 << 10);
    for command in ["run", "bench", "compare"] {
        let arguments: &[&str] = match command {
            "run" => &["--input", "random", "--timeout", "0.2"],
            "bench" => &["--timeout", "0.2"],
            _ => &["m.onnx", "--timeout", "0.2"],
        };
        let start = Instant::now();
        let ran = run(&model, command, arguments).expect_code(2);
        assert!(start.elapsed() < Duration::from_secs(20), "{command}");
        assert_eq!(
            ran.stderr.trim_end(),
            "error: generating the inputs reached the time limit of 0.2 s (--timeout); give it more \
             time, or smaller inputs (`--dim`)",
            "{command}"
        );
    }
}

/// The timeout applies to one run, not to a series of runs.
#[test]
fn a_bench_may_take_longer_than_its_runs() {
    let model = greedy(1, 1);
    let arguments = [
        "--timeout",
        "2",
        "--seconds",
        "5",
        "--rounds",
        "1",
        "--warm-up",
        "0",
        "--json",
    ];
    let ran = run(&model, "bench", &arguments).expect_code(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_size_without_a_unit_is_asked_for_one() {
    let ran = run(&greedy(1, 1), "run", &["--max-memory", "10"]).expect_code(2);
    assert!(
        ran.stderr
            .contains("'10' for '--max-memory <SIZE>': missing unit: write `10MiB` or `10GiB`"),
        "{}",
        ran.stderr
    );
}

/// The error names the limit, and nothing else, wherever it is reached: in an allocation by Rust or
/// a library, in a thread's stack, while a library is opened, or in the inputs. ONNX Runtime does
/// not check every allocation. In about one of some hundred runs it uses memory that it did not get
/// and dies silently, which looks like a bug of its own. The error then names both causes.
#[cfg(target_os = "linux")]
#[test]
fn a_memory_limit_that_bites_is_named() {
    let engines = [
        ("tract", "spotter/s/qnn/spotter_s_qnn_fp32.onnx"),
        ("tract", "glimpse/xnnpack/glimpse_xnnpack_fp32.pte"),
        ("ort", "spotter/s/qnn/spotter_s_qnn_fp32.onnx"),
        ("executorch", "glimpse/xnnpack/glimpse_xnnpack_fp32.pte"),
    ];
    for (engine, model) in engines {
        let on = |limit: &str| {
            let arguments = ["run", "--engine", engine, model, "--input", "zeros"];
            let limit = ["--once", "--max-memory", limit];
            pkgtool(arguments.iter().chain(&limit))
                .within(EXAMPLES)
                .run()
        };
        let within = on("1GiB");
        if within.code != 0 {
            // This engine is missing on this machine or in this build.
            assert!(
                within.stderr.contains("is not available"),
                "{}",
                within.stderr
            );
            continue;
        }
        let mut bitten = 0;
        for (limit, shown) in [
            ("1MiB", "1 MiB"),
            ("2MiB", "2 MiB"),
            ("3MiB", "3 MiB"),
            ("5MiB", "5 MiB"),
            ("8MiB", "8 MiB"),
        ] {
            let ran = on(limit);
            if ran.code == 0 {
                continue;
            }
            bitten += 1;
            let named = format!("engine reached the memory limit of {shown} (--max-memory) while ");
            let unlooked = format!(
                "(SIGSEGV) (segmentation fault: a bug in the library that this model triggers), or an \
                 allocation failed under the memory limit of {shown} (--max-memory)"
            );
            assert!(
                ran.stderr.contains(&named) || engine == "ort" && ran.stderr.contains(&unlooked),
                "{engine}, {limit}: {}",
                ran.stderr
            );
            assert!(!ran.stderr.contains("status"), "{}", ran.stderr);
        }
        assert!(bitten > 0, "{engine} takes less than 1 MiB");
    }
}

/// The inputs alone fit into the limit. Together with the engine's own memory, or a second copy,
/// they do not.
#[cfg(target_os = "linux")]
#[test]
fn a_run_within_inputs_that_fit_is_limited_too() {
    for (mebibytes, limit, shown) in [(64, "70MiB", "70 MiB"), (64, "150MiB", "150 MiB")] {
        let arguments = ["--input", "zeros", "--once", "--max-memory", limit];
        let ran = run(&greedy(1, mebibytes), "run", &arguments);
        if ran.code == 0 {
            assert_eq!(limit, "150MiB", "the inputs alone fill it");
            continue;
        }
        let named = format!("the tract engine reached the memory limit of {shown} (--max-memory)");
        assert!(ran.stderr.contains(&named), "{}", ran.stderr);
    }
}

/// The default limit applies without an option, and the error calls it the default.
#[test]
fn the_default_limit_is_named_as_such() {
    // More than the free memory of any current machine.
    let model = greedy(64, 15 << 10);
    let ran = run(&model, "run", &["--input", "zeros"]).expect_code(2);
    let told = ran.stderr.contains("three quarters of the free memory, the default")
        // On a machine with more free memory than the maximum default, the size of the inputs is
        // rejected.
        || ran.stderr.contains("are available; give smaller sizes");
    assert!(told, "{}", ran.stderr);
}
