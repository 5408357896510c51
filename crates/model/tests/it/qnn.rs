//! Tests of the QNN context binary reader, with binaries of QNN 2.47 and 2.51
//! (`tests/fixtures/qnn`, see `make.py`).
//!
//! The binaries are compared with the ONNX models from which they were compiled, both standalone
//! and wrapped by ExecuTorch. Other tests use broken, mutated and random binaries.

use std::fs;
use std::path::Path;

use pkgtool_model::executorch::body::ProgramBody;
use pkgtool_model::executorch::{PayloadSummary, Port, contents};
use pkgtool_model::{FormatError, ModelInfo, ModelValue, TensorInfo, format_of, inspect, open};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value as Json, json};

use pkgtool_testing::fixture;

/// Size of the wrapper before the binary in a payload of ExecuTorch 1.5, in bytes.
const WRAPPER: usize = 256;

fn expected() -> Map<String, Json> {
    let text = fs::read_to_string(fixture("qnn/expect.json")).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

/// A fixture at its original length; zeros replace the compiled graphs.
fn whole(name: &str, extension: &str) -> Vec<u8> {
    let path = fixture(&format!("qnn/{name}.head.{extension}"));
    let mut bytes = fs::read(path).expect("a fixture");
    let size = expected()[name]["size"].as_u64().expect("a size");
    bytes.resize(usize::try_from(size).expect("a size"), 0);
    bytes
}

#[expect(
    clippy::ptr_arg,
    reason = "a slice cannot be borrowed as a trait object"
)]
fn read(bytes: &Vec<u8>) -> Result<ModelInfo, String> {
    let info = inspect(Path::new("weights.bin"), bytes).map_err(|error| error.to_string())?;
    info.ok_or_else(|| "not recognised".to_owned())
}

fn described(name: Option<&String>, tensor: &TensorInfo) -> Json {
    json!({ "name": name, "dtype": tensor.element.name(), "shape": tensor.config_shape() })
}

fn values(values: &[ModelValue]) -> Vec<Json> {
    let tensor = |value: &ModelValue| value.tensor().cloned().expect("a tensor");
    let values = values.iter();
    values
        .map(|value| described(value.name.as_ref(), &tensor(value)))
        .collect()
}

fn ports(ports: &[Port]) -> Vec<Json> {
    let tensor = |port: &Port| port.tensor.clone().expect("a tensor");
    let ports = ports.iter();
    ports
        .map(|port| described(port.name.as_ref(), &tensor(port)))
        .collect()
}

#[test]
fn binaries_say_what_their_models_declared() {
    let mut count = 0;
    for (name, expected) in expected() {
        if name == "conv_qnn_fp16" {
            continue;
        }
        let info = read(&whole(&name, "bin")).expect("the input is valid");
        let graphs = expected["graphs"].as_array().expect("graphs");
        assert_eq!(info.format, "qnn");
        assert_eq!(info.methods.len(), graphs.len(), "{name}");
        assert_eq!(info.names_methods, graphs.len() > 1, "{name}");
        for (method, graph) in info.methods.iter().zip(graphs) {
            let found =
                json!({ "inputs": values(&method.inputs), "outputs": values(&method.outputs) });
            assert_eq!(found, *graph, "{name}");
        }
        let version = if name.ends_with("2_47") {
            "QNN v2.47."
        } else {
            "QNN v2.51."
        };
        assert!(info.producer.expect("a build").starts_with(version));
        let fact = |key: &str| info.metadata.iter().find(|(known, _)| known == key);
        assert_eq!(fact("chip").expect("a chip").1, "SM8650 (57)");
        assert_eq!(fact("backend").expect("a backend").1, "HTP");
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn a_name_does_not_make_a_context_binary() {
    for bytes in [&b"\0\0\0\x02\0\0\0\x03"[..], &[0; 64], b"vocabulary"] {
        let found =
            format_of(Path::new("weights.bin"), &bytes.to_vec()).expect("the input is valid");
        assert!(found.is_none());
    }
}

/// Reads the summary of a program's QNN payload.
#[expect(
    clippy::ptr_arg,
    reason = "a slice cannot be borrowed as a trait object"
)]
fn content(program: &Vec<u8>) -> Result<PayloadSummary, FormatError> {
    let body = ProgramBody::read(program).expect("a program");
    let mut found = contents(program, &body, &body.methods[0]);
    found.remove(0).expect("a reader").content
}

/// The program with these bytes at the beginning of its payload.
fn with_payload(bytes: &[u8]) -> Vec<u8> {
    let mut program = whole("conv_qnn_fp16", "pte");
    let at = payload_of(&program);
    program[at..].fill(0);
    program[at..at + bytes.len()].copy_from_slice(bytes);
    program
}

#[expect(
    clippy::ptr_arg,
    reason = "a slice cannot be borrowed as a trait object"
)]
fn payload_of(program: &Vec<u8>) -> usize {
    let body = ProgramBody::read(program).expect("a program");
    let payload = body.methods[0].delegates[0].payload.expect("a payload");
    usize::try_from(payload.offset).expect("a place")
}

fn fact<'a>(content: &'a PayloadSummary, key: &str) -> &'a str {
    let found = content.facts.iter().find(|(known, _)| *known == key);
    &found.expect("a fact").1
}

#[test]
fn a_program_tells_what_is_wrapped_in_it() {
    let content = content(&whole("conv_qnn_fp16", "pte")).expect("the input is valid");
    assert_eq!(fact(&content, "wrapper"), "256 bytes");
    assert_eq!(fact(&content, "binary"), "QNN context, 53248 bytes");
    assert_eq!(fact(&content, "chip"), "SM8650 (57)");
    assert!(content.is_opaque, "the weights must be unknown");
    let found = json!({ "inputs": ports(&content.inputs), "outputs": ports(&content.outputs) });
    assert_eq!(found, expected()["conv_qnn_fp16"]["graphs"][0]);
}

/// A wrapper that declares this header and binary size, followed by the binary.
fn wrapper(header: usize, size: u64, binary: &[u8]) -> Vec<u8> {
    let mut bytes = 0x5678_abcd_u32.to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend(size.to_le_bytes());
    bytes.resize(header, 0);
    bytes.extend(binary);
    bytes
}

#[test]
fn every_wrapper_is_told_apart() {
    let size = whole("conv_qnn_fp16", "pte").len() as u64;
    let payload = size - payload_of(&whole("conv_qnn_fp16", "pte")) as u64;
    let head = fs::read(fixture("qnn/conv.head.bin")).expect("a fixture");
    // Before binaries were aligned, the header had 20 bytes.
    let short =
        content(&with_payload(&wrapper(20, payload - 20, &head))).expect("the input is valid");
    assert_eq!(fact(&short, "wrapper"), "20 bytes");
    assert_eq!(short.inputs.len(), 1);
    let bare = content(&with_payload(&head)).expect("the input is valid");
    assert_eq!(fact(&bare, "wrapper"), "none");
    let container =
        content(&with_payload(&wrapper(WRAPPER, 5688, b"PK\x03\x04"))).expect("the input is valid");
    assert!(fact(&container, "binary").starts_with("deep learning container (DLC)"));
    assert!(container.inputs.is_empty());
    let other =
        content(&with_payload(&wrapper(WRAPPER, 100, b"other"))).expect("the input is valid");
    assert!(fact(&other, "binary").starts_with("of an unknown format"));
    let graph = [
        &0x1234_abcd_u32.to_le_bytes()[..],
        &[8, 0, 0, 0],
        &[4, 0, 0, 0, 0, 0, 0, 0],
    ];
    let graph = content(&with_payload(&graph.concat())).expect("the input is valid");
    assert!(fact(&graph, "binary").contains("12 bytes; not read"));
}

#[test]
fn broken_wrappers_are_named() {
    let refused = |bytes: &[u8]| {
        content(&with_payload(bytes))
            .expect_err("broken")
            .to_string()
    };
    assert!(refused(b"none").contains("found 0x656e6f6e"));
    let long = refused(&wrapper(WRAPPER, 1 << 40, b""));
    assert!(long.contains("QNN payload header.binary_size"), "{long}");
    let wide = [&0x1234_abcd_u32.to_le_bytes()[..], &[255; 12]].concat();
    assert!(refused(&wide).contains("tensor_size"));
}

#[test]
fn broken_binaries_are_named() {
    let refused = |at: usize, bytes: &[u8]| {
        let mut binary = whole("conv", "bin");
        binary[at..at + bytes.len()].copy_from_slice(bytes);
        read(&binary).expect_err("broken")
    };
    let most = u64::MAX.to_le_bytes();
    assert!(refused(16, &most).contains("description_size"));
    assert!(refused(24, &most).contains("compiled_size"));
    assert!(refused(32, &most).contains("truncated"));
    // The union type of the description, then the root offset.
    assert!(refused(0x3b, &[2]).contains("information of version 3"));
    assert!(refused(40, &[255; 4]).contains("QnnContext"));
    let cut = whole("conv", "bin")[..50_000].to_vec();
    assert!(read(&cut).expect_err("broken").contains("truncated"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_binaries_do_not_panic(
        name in prop::sample::select(vec!["conv", "shared", "types"]),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        word in prop::option::of((any::<Index>(), prop::sample::select(vec![0, 1, u32::MAX, 1 << 31]))),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut bytes = whole(name, "bin");
        let head = 40 + 880;
        for (index, byte) in changes {
            bytes[index.index(head)] = byte;
        }
        if let Some((index, word)) = word {
            let at = index.index(head - 4);
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read(&bytes);
        let wrapped = wrapper(WRAPPER, bytes.len() as u64, &bytes[..bytes.len().min(head)]);
        let _ = content(&with_payload(&wrapped));
    }

    #[test]
    fn random_payloads_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = content(&with_payload(&bytes));
        let _ = content(&with_payload(&wrapper(20, bytes.len() as u64, &bytes)));
        let magic = [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1];
        let _ = read(&[&magic[..], &bytes].concat());
    }
}

#[test]
fn the_file_of_a_compiled_graph_is_external_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model.onnx");
    fs::copy(fixture("qnn/conv_context.onnx"), &model).expect("a copy");
    let (info, _) = open(&model).expect("the input is valid");
    let [external] = info.external.as_slice() else {
        panic!("{:?}", info.external);
    };
    assert_eq!(external.location.as_deref(), Some("conv.bin"));
    assert_eq!((external.tensors, external.needs_bytes), (0, None));
    let missing = external.locate(directory.path()).expect_err("missing");
    assert_eq!(
        missing.to_string(),
        "keeps data in `conv.bin`, which does not exist"
    );
    fs::write(directory.path().join("conv.bin"), whole("conv", "bin"))
        .expect("the file is written");
    assert!(external.locate(directory.path()).is_ok());
    // With `embed_mode` 1, the default, the graph is embedded in the node.
    let mut embedded = fs::read(&model).expect("a model");
    let mode = embedded
        .windows(10)
        .position(|bytes| bytes == b"embed_mode");
    let at = mode.expect("the attribute") + 10;
    assert_eq!(embedded[at..at + 2], [0x18, 0]);
    embedded[at + 1] = 1;
    let info = inspect(&model, &embedded)
        .expect("the input is valid")
        .expect("ONNX");
    assert!(info.external.is_empty());
}
