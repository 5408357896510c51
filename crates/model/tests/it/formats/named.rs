//! Files whose extension names another format than their content.

use std::fs;

use pkgtool_model as model;

use pkgtool_testing::fixture;

/// A model of each format with the extension of that format. QNN's extension `.bin` is ambiguous.
const MODELS: [(&str, &str, &str); 8] = [
    ("executorch", "pte", "models/add_linear_portable.pte"),
    ("flat_tensor", "ptd", "executorch/external_portable.ptd"),
    ("tflite", "tflite", "formats/dense_float.tflite"),
    ("gguf", "gguf", "formats/small.gguf"),
    ("qnn", "bin", "qnn/half.head.bin"),
    ("safetensors", "safetensors", "formats/small.safetensors"),
    ("onnx", "onnx", "models/onnx/mlp.onnx"),
    ("coreml", "mlmodel", "coreml/network.mlmodel"),
];

/// Full size of the QNN context binary whose head is the fixture, in bytes.
const LENGTH: u64 = 49_152;

#[test]
fn every_pair_of_content_and_name_is_told() {
    let folder = tempfile::tempdir().expect("a directory");
    for (content, _, path) in MODELS {
        for (name, extension, _) in MODELS {
            // Core ML files are recognized only by their extension, and `.bin` is ambiguous.
            if (content, name) == ("coreml", "qnn") {
                continue;
            }
            let copy = folder.path().join("model").with_extension(extension);
            fs::copy(fixture(path), &copy).expect("a copy");
            if content == "qnn" {
                // The fixture is the head of a longer file, so the copy is extended.
                let file = fs::File::options().write(true).open(&copy);
                file.and_then(|file| file.set_len(LENGTH)).expect("room");
            }
            let (info, _) = model::open(&copy)
                .unwrap_or_else(|error| panic!("{content} as {extension}: {error}"));
            assert_eq!(info.format, content, "{content} as {extension}");
            let expected = (name != content && name != "qnn").then_some(name);
            assert_eq!(info.format_by_name, expected, "{content} as {extension}");
        }
    }
}

#[test]
fn broken_files_are_of_the_format_of_their_name() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("model.onnx");
    fs::write(&path, b"no model").expect("a file");
    let error = model::open(&path).expect_err("broken").to_string();
    assert!(error.contains("ModelProto"), "{error}");
}
