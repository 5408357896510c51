//! The binary for 64-bit ARM under emulation: all methods of the example packages give what this machine gives.

use std::fs;

use serde_json::Value;

use super::TestDevice;
use crate::support::environment::{EnvironmentPiece, say};
use crate::support::files::root;
use crate::support::run::pkgtool;

/// Maximum difference of an output, relative to its largest value.
const TOLERANCE: f64 = 1e-6;

#[test]
fn an_emulated_board_answers_like_this_machine() {
    let test = "an_emulated_board_answers_like_this_machine";
    let Some(binary) = EnvironmentPiece::Arm.or_skip(test) else {
        return;
    };
    let runner = binary.with_file_name("qemu");
    let mut device = TestDevice::shell();
    for (name, path) in [
        ("PKGTOOL_DEVICE_BINARY", &binary),
        ("PKGTOOL_DEVICE_RUNNER", &runner),
    ] {
        let value = path.to_str().expect("UTF-8").to_owned();
        device.variables.push((name.to_owned(), value));
    }
    let mut compared = 0;
    for config in configs() {
        let run = ["compare", &config, "--all", "--engine", "tract", "--json"];
        let here = pkgtool(run).run();
        if here.code > 1 {
            continue;
        }
        let sides = [
            "compare",
            &config,
            "--engine",
            "tract",
            "--on",
            "exec:sh,local",
            "--json",
        ];
        let report = device.run(&sides);
        if report.code > 1 {
            say(&format!("{config}: {}", report.stderr));
            continue;
        }
        let report = report.json();
        for output in report["outputs"].as_array().into_iter().flatten() {
            let difference = output["max_rel"].as_f64().unwrap_or(0.0);
            assert!(difference <= TOLERANCE, "{config}: {output}");
        }
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} packages ran");
    device.expect_no_process();
    let listed: Value = device.run(&["devices", "--json"]).expect_code(0).json();
    assert_eq!(listed["devices"][0]["machine"]["architecture"], "aarch64");
}

/// Returns the configs of the example packages.
fn configs() -> Vec<String> {
    let all = walkdir::WalkDir::new(root().join("packages-examples"));
    let paths = all.into_iter().flatten().map(walkdir::DirEntry::into_path);
    let configs = paths.filter(|path| path.ends_with("config.json") && fs::metadata(path).is_ok());
    configs
        .map(|path| path.to_str().expect("UTF-8").to_owned())
        .collect()
}
