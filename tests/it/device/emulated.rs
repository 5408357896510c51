//! The binary for 64-bit ARM under emulation: all methods of the example packages give what this machine gives, and those
//! that compute in int8 alone the same bits.

use std::fmt;
use std::fs;

use serde_json::Value;

use super::TestDevice;
use crate::support::environment::{EnvironmentPiece, say};
use crate::support::files::root;
use crate::support::run::pkgtool;

/// Maximum difference of an output, relative to its largest value. Processors add the products of float32 in different
/// orders: a decoder with thousands of products in a sum differs by 1.04e-6.
const TOLERANCE: f64 = 2e-6;

/// Number of methods that run on every machine.
const LEAST_METHODS: usize = 40;

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
    let (mut compared, mut refused) = (0, Vec::new());
    let (mut equal, mut rounded) = (Vec::new(), Vec::new());
    for method in methods() {
        let mut run = vec!["run", "--input", "random:1", "--engine", "tract", "--json"];
        run.extend(method.arguments());
        if pkgtool(run).run().code != 0 {
            refused.push(method.to_string());
            continue;
        }
        let mut sides = vec!["compare", "--engine", "tract", "--json"];
        sides.extend(["--on", "local,exec:sh"]);
        sides.extend(method.arguments());
        let report = device.run(&sides).expect_code(0).json();
        let outputs = report["outputs"].as_array().expect("a list");
        assert!(!outputs.is_empty(), "{method}");
        let mut is_equal = true;
        for output in outputs {
            let value = |name: &str| output[name].as_f64().unwrap_or(f64::NAN);
            let (relative, absolute) = (value("max_rel"), value("max_abs"));
            assert!(relative <= TOLERANCE, "{method}: {output}");
            is_equal &= absolute == 0.0;
        }
        compared += 1;
        if method.precision == "int8" {
            // Its parts in float32 round differently.
            let list = if is_equal { &mut equal } else { &mut rounded };
            list.push(method.to_string());
        }
    }
    say(&format!(
        "{compared} methods are alike, of those in int8 {} bit for bit and {} nearly: {}; this machine does not run {}",
        equal.len(),
        rounded.len(),
        rounded.join(", "),
        refused.join(", ")
    ));
    assert!(equal.len() >= rounded.len(), "{rounded:?}");
    assert!(compared >= LEAST_METHODS, "only {compared} methods ran");
    device.expect_no_process();
    let listed: Value = device.run(&["devices", "--json"]).expect_code(0).json();
    assert_eq!(listed["devices"][0]["machine"]["architecture"], "aarch64");
}

/// A method of an example package.
struct ExampleMethod {
    config: String,
    precision: String,
    component: Option<String>,
    name: String,
}

impl ExampleMethod {
    fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec![self.config.as_str(), "--precision", &self.precision];
        arguments.extend(["--method", &self.name]);
        if let Some(component) = &self.component {
            arguments.extend(["--component", component]);
        }
        arguments
    }
}

impl fmt::Display for ExampleMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.arguments().join(" "))
    }
}

/// Returns the methods that the configs of the example packages declare.
fn methods() -> Vec<ExampleMethod> {
    let mut methods = Vec::new();
    for config in configs() {
        let text = fs::read_to_string(&config).expect("a config");
        let parsed: Value = serde_json::from_str(&text).expect("JSON");
        for variant in parsed["variants"].as_array().into_iter().flatten() {
            let mut add = |component: Option<&String>, declared: &Value| {
                let names = declared.as_object().into_iter().flatten();
                methods.extend(names.map(|(name, _)| ExampleMethod {
                    config: config.clone(),
                    precision: variant["precision"].as_str().expect("a text").to_owned(),
                    component: component.cloned(),
                    name: name.clone(),
                }));
            };
            match variant["components"].as_object() {
                None => add(None, &variant["methods"]),
                Some(components) => components
                    .keys()
                    .for_each(|name| add(Some(name), &variant["methods"][name])),
            }
        }
    }
    methods
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
