//! Tests of the passes of `pkgtool bench` in processes of their own: memory, and cold and warm starts.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::environment::say;
use crate::support::onnx::product;
use crate::support::run::pkgtool;

/// Size of the weight of the model in bytes.
const WEIGHT_BYTES: u64 = 32 << 20;

/// Writes a model with a weight of 32 MiB to a directory of the build, which is on a disk on most machines.
fn model() -> (TempDir, String) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("product.onnx");
    fs::write(&path, product(4096, 2048)).expect("a file");
    let path = path.to_str().expect("UTF-8").to_owned();
    (directory, path)
}

fn bytes(value: &Value, kind: &str) -> u64 {
    let bytes = value[kind].as_u64();
    bytes.unwrap_or_else(|| panic!("no {kind} in {value}"))
}

#[test]
fn proportional_memory_counts_the_weights() {
    let (_directory, model) = model();
    let bench = [
        "bench", &model, &model, "--engine", "tract", "--runs", "3", "--rounds", "1",
    ];
    let report = pkgtool(bench.iter().chain(&["--json"])).run();
    let report = report.expect_code(0).json();
    for one in report["series"].as_array().expect("two series") {
        let memory = &one["proportional_memory"];
        if cfg!(not(target_os = "linux")) {
            assert!(memory.is_null(), "{memory}");
            continue;
        }
        let [started, loaded, highest, after] = ["started", "loaded", "highest", "after_runs"]
            .map(|moment| bytes(&memory[moment], "pss_bytes"));
        // The processes of the timed runs have ended, so nobody shares the weights.
        assert!(loaded >= started + WEIGHT_BYTES, "{memory}");
        assert!(highest >= loaded && highest >= after, "{memory}");
        let parts =
            bytes(&memory["loaded"], "pss_anon_bytes") + bytes(&memory["loaded"], "pss_file_bytes");
        assert!(
            parts <= loaded + (1 << 20) && parts > WEIGHT_BYTES,
            "{memory}"
        );
        assert!(one["starts"].is_null(), "{one}");
    }
    let text = pkgtool(bench).run().expect_code(0).stdout;
    assert!(text.contains(" pss "), "{text}");
}

/// Returns whether dropping a file from the cache has an effect: some file systems are in memory.
fn is_on_disk(path: &Path) -> bool {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    statfs(path).is_ok_and(|it| it.filesystem_type() != TMPFS_MAGIC)
}

#[test]
fn cold_starts_read_the_files_again() {
    let (directory, model) = model();
    let page = directory.path().join("bench.html");
    let bench = [
        "bench",
        &model,
        "--engine",
        "tract",
        "--runs",
        "3",
        "--rounds",
        "1",
        "--cold-starts",
        "2",
    ];
    let html = ["--json", "--html", page.to_str().expect("UTF-8")];
    let report = pkgtool(bench.iter().chain(&html)).run();
    let report = report.expect_code(0).json();
    let starts = &report["series"][0]["starts"];
    assert_eq!(starts["processes"], 2);
    assert!(
        bytes(starts, "model_files_bytes") > WEIGHT_BYTES,
        "{starts}"
    );
    for kind in ["cold", "warm"] {
        let time = |name: &str| {
            starts[kind][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{starts}"))
        };
        let parts = ["process_ms", "load_ms", "first_run_ms"].map(time);
        assert!(parts.iter().all(|part| *part > 0.0), "{starts}");
        // The lower medians of two starts are not above the sum of both.
        assert!(
            time("total_ms") >= parts.iter().copied().fold(0.0, f64::max),
            "{starts}"
        );
    }
    if is_on_disk(directory.path()) {
        assert!(
            bytes(&starts["cold"], "storage_read_bytes") >= WEIGHT_BYTES,
            "{starts}"
        );
        assert!(
            bytes(&starts["warm"], "storage_read_bytes") < WEIGHT_BYTES / 2,
            "{starts}"
        );
    } else {
        say("cold_starts_read_the_files_again: the directory of the build is in memory");
    }
    let page = fs::read_to_string(page).expect("written");
    let title = "from a new process to the first answer, medians of 2 processes each";
    assert!(page.contains(title) && !page.contains("{{"), "{page}");
    let text = pkgtool(bench).run().expect_code(0).stdout;
    for expected in [title, "from storage", "1 cold", "1 warm"] {
        assert!(text.contains(expected), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_stay_in_the_cache_are_reported() {
    // Files of this file system are in memory only, and so cannot be dropped.
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        say("files_that_stay_in_the_cache_are_reported: there is no /dev/shm");
        return;
    };
    let path = directory.path().join("product.onnx");
    fs::write(&path, product(512, 512)).expect("a file");
    let path = path.to_str().expect("UTF-8");
    let bench = [
        "bench",
        path,
        "--engine",
        "tract",
        "--runs",
        "3",
        "--rounds",
        "1",
        "--cold-starts",
        "1",
    ];
    let text = pkgtool(bench).run().expect_code(0).stdout;
    assert!(
        text.contains("the cold starts read only 0 bytes of 1 MiB from storage"),
        "{text}"
    );
}
