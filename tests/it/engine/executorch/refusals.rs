//! Programs that ExecuTorch cannot run: the engine rejects them at load time, with the reason.

use std::path::PathBuf;

use pkgtool_engine::executorch::VERSION;
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_engine::{EngineError, Provider, Session};

use super::{fixtures, is_there, launcher, load, request, worker};
use crate::support::run::pkgtool;

fn model(name: &str) -> PathBuf {
    fixtures().join("../models").join(name)
}

#[test]
fn delegates_that_are_not_here_are_named() {
    if !is_there("delegates_that_are_not_here_are_named") {
        return;
    }
    for (file, id, runner) in [
        (
            "convnet_coreml_fp16.pte",
            "CoreMLBackend",
            "Apple's systems",
        ),
        ("mlp_mlx_fp32.pte", "MLXBackend", "Apple silicon"),
        (
            "dyn_mlp_vulkan_fp32.pte",
            "VulkanBackend",
            "built with Vulkan",
        ),
    ] {
        match load(&request(&model(file), "forward")).err() {
            Some(EngineError::Unsupported {
                operators, reason, ..
            }) => {
                assert_eq!(operators, [id]);
                assert!(reason.contains(runner), "{reason}");
            }
            other => panic!("{file}: {other:?}"),
        }
    }
}

#[test]
fn a_provider_must_be_here_and_take_part() {
    if !is_there("a_provider_must_be_here_and_take_part") {
        return;
    }
    let mut request = request(&model("add_linear_portable.pte"), "forward");
    request.options.provider = Provider::CoreMl;
    match load(&request).err() {
        Some(EngineError::Unavailable { what, .. }) => {
            assert_eq!(what, "ExecuTorch's CoreMLBackend");
        }
        other => panic!("{other:?}"),
    }
    request.options.provider = Provider::Xnnpack;
    load(&request).expect("the undelegated part runs");
    request.options.strict = true;
    let error = load(&request).err().expect("XNNPACK takes no part");
    assert!(
        error.to_string().contains("`forward` has no part for"),
        "{error}"
    );
}

#[test]
fn operators_without_code_are_named() {
    if !is_there("operators_without_code_are_named") {
        return;
    }
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("m.pte");
    let bytes = std::fs::read(model("add_linear_portable.pte")).expect("a fixture");
    let name = b"aten::add";
    let at = bytes.windows(name.len()).position(|it| it == name);
    let at = at.expect("the name occurs");
    let mut changed = bytes.clone();
    changed[at..at + name.len()].copy_from_slice(b"mine::odd");
    std::fs::write(&path, changed).expect("a file");
    match load(&request(&path, "forward")).err() {
        Some(EngineError::Unsupported { operators, .. }) => {
            assert_eq!(operators, ["mine::odd.out"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_formats_and_other_values_are_refused() {
    if !is_there("other_formats_and_other_values_are_refused") {
        return;
    }
    let onnx = fixtures().join("../../../packages-examples/glimpse/qnn/glimpse_qnn_int8.onnx");
    let error = load(&request(&onnx, "forward")).err().expect("ONNX");
    assert!(error.to_string().contains("not ONNX models"), "{error}");
    let text = request(&model("multi_method_xnnpack_fp32.pte"), "get_name");
    let error = load(&text).err().expect("a string");
    assert!(
        error.to_string().contains("is a string or a list"),
        "{error}"
    );
}

#[test]
fn inputs_that_do_not_fit_are_refused_and_the_session_lives_on() {
    if !is_there("inputs_that_do_not_fit_are_refused_and_the_session_lives_on") {
        return;
    }
    let zeros =
        |dtype, shape: &[u64]| Tensor::zeros(dtype, shape.to_vec()).expect("the tensor is valid");
    let request = request(&model("add_linear_portable.pte"), "forward");
    let mut session = worker(&request).expect("the model loads");
    let good = [
        zeros(DType::Float32, &[2, 8]),
        zeros(DType::Float32, &[2, 4]),
    ];
    for bad in [
        zeros(DType::Float32, &[2, 9]),
        zeros(DType::Float32, &[16]),
        zeros(DType::Float64, &[2, 8]),
        zeros(DType::Float32, &[0, 8]),
    ] {
        let outcome = session.run(&[bad.clone(), good[1].clone()]);
        let error = outcome.expect_err("the inputs do not fit");
        assert!(matches!(error, EngineError::Run { .. }), "{bad:?}: {error}");
    }
    assert!(session.run(&good[..1]).is_err());
    session.run(&good).expect("the run succeeds after errors");
}

#[test]
fn numbers_that_were_fixed_at_export_stay() {
    if !is_there("numbers_that_were_fixed_at_export_stay") {
        return;
    }
    let request = request(&model("nontensor_io_portable.pte"), "forward");
    let mut session = load(&request).expect("the model loads");
    let tensor = |dtype, shape: &[u64], value| {
        Tensor::from_f64(dtype, shape.to_vec(), [value]).expect("the tensor is valid")
    };
    let inputs = |number| {
        [
            tensor(DType::Float32, &[2, 2], 1.0),
            tensor(DType::Int64, &[], number),
            tensor(DType::Float64, &[], 0.5),
            tensor(DType::Bool, &[], 1.0),
        ]
    };
    session.run(&inputs(3.0)).expect("3 is the exported value");
    let error = session
        .run(&inputs(4.0))
        .expect_err("3 is the exported value");
    assert!(
        error.to_string().contains("accepts no other value"),
        "{error}"
    );
}

#[test]
fn an_empty_directory_is_no_executorch() {
    if !is_there("an_empty_directory_is_no_executorch") {
        return;
    }
    let directory = tempfile::TempDir::new().expect("a directory");
    let empty = directory.path().display().to_string();
    let program = model("add_linear_portable.pte").display().to_string();
    let arguments = [
        "run",
        &program,
        "--input",
        "random",
        "--engine",
        "executorch",
    ];
    let ran = pkgtool(arguments).variable("PKGTOOL_EXECUTORCH_DIR", &empty);
    let said = ran.run().expect_code(2).stderr;
    assert!(
        said.contains("(PKGTOOL_EXECUTORCH_DIR): libexecutorch"),
        "{said}"
    );
    let help = "pip install --no-deps executorch==";
    assert!(said.contains(help), "{said}");
}

#[test]
fn the_library_tells_its_backends() {
    if !is_there("the_library_tells_its_backends") {
        return;
    }
    let backends = launcher()
        .backends("executorch")
        .expect("the library opens");
    let xnnpack = backends.iter().find(|it| it.name == "XnnpackBackend");
    assert!(xnnpack.is_some_and(|it| it.available), "{backends:?}");
    let told = pkgtool(["backends", "--json"]).run().expect_code(0).json();
    let libraries = told["libraries"].as_array().expect("a list");
    let ours = libraries.iter().find(|it| it["engine"] == "executorch");
    let ours = ours.expect("the library is found");
    assert_eq!(ours["problem"], serde_json::Value::Null);
    assert_eq!(ours["version"], VERSION);
    assert_eq!(ours["backends"], serde_json::json!(backends));
}
