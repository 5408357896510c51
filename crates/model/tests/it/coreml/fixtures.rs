//! The Core ML reader returns the expected contents of each fixture.

use std::collections::BTreeMap;

use pkgtool_model::{self as model, Allowed, Dim, Method, ModelInfo};

use super::inspect;
use pkgtool_testing::coreml::path;
use pkgtool_testing::onnx::{int, part};

fn info(name: &str) -> ModelInfo {
    let opened = model::open(&path(name));
    let (info, size) = opened.unwrap_or_else(|error| panic!("{name} {error}"));
    assert!(size > 0 && info.format == "coreml");
    info
}

fn shown(info: &ModelInfo) -> Vec<String> {
    info.methods.iter().map(Method::to_string).collect()
}

/// Returns the value of a metadata row.
fn row<'i>(info: &'i ModelInfo, key: &str) -> Option<&'i str> {
    let mut rows = info.metadata.iter();
    rows.find(|(known, _)| known == key)
        .map(|(_, value)| value.as_str())
}

#[test]
fn signatures_are_those_of_the_descriptions() {
    for (name, expected) in [
        ("mlp_fp32.mlpackage", "(float32[2, 8]) → (float32[2, 4])"),
        ("mlp_fp16.mlpackage", "(float16[2, 8]) → (float16[2, 4])"),
        (
            "ranged.mlpackage",
            "(float32[-1 (up to 8), -1 (2 to 16), 8]) → (float32 of unknown rank)",
        ),
        (
            "enumerated.mlpackage",
            "(float32[-1 (1, 2 or 4), 8]) → (float32 of unknown rank)",
        ),
        (
            "image.mlpackage",
            "(image (RGB, 12 wide, 16 high) of unknown rank) → (float32[1, 560])",
        ),
        (
            "classifier.mlpackage",
            "(float32[1, 4]) → (string, dictionary)",
        ),
        (
            "colours.mlpackage",
            "(image (RGB, 8 wide, 6 high) of unknown rank) → (string, dictionary)",
        ),
        ("halves.mlpackage", "(float16[1, 8]) → (float16[1, 4])"),
        ("tokens.mlpackage", "(int32[1, 5]) → (float32[1, 5, 3])"),
        ("int4.mlpackage", "(float32[1, 64]) → (float32[1, 32])"),
        ("counter.mlpackage", "(float16[1, 4]) → (float16[1, 4])"),
        ("network.mlmodel", "(float64[8]) → (float64[4])"),
        ("custom.mlmodel", "(float64[8]) → (float64[8])"),
        (
            "pipeline.mlmodel",
            "(int64, double, string, dictionary, sequence) → (float64[4])",
        ),
    ] {
        let info = info(name);
        assert_eq!(shown(&info), [expected], "{name}");
        assert!(!info.names_methods, "{name}");
        assert_eq!(info.methods[0].name, "forward");
    }
}

#[test]
fn functions_are_methods() {
    let info = info("methods.mlpackage");
    assert!(info.names_methods);
    assert_eq!(
        shown(&info),
        [
            "(float32[1, 8]) → (float32[1, 6])",
            "(float32[4, 8]) → (float32[4, 6])"
        ]
    );
    let names: Vec<&str> = info.methods.iter().map(|method| &*method.name).collect();
    assert_eq!(names, ["small", "wide"]);
    assert!(!info.methods[0].operators.contains_key("tanh"));
    assert_eq!(info.methods[1].operators["tanh"], 1);
    assert_eq!(row(&info, "default function"), Some("wide"));
    assert_eq!(info.weight_bytes, 192, "shared weights must count once");
}

#[test]
fn kinds_and_what_they_are_made_of_are_told() {
    for (name, version, operators) in [
        (
            "mlp_fp32.mlpackage",
            "specification 7, mlProgram",
            &[("gelu", 1), ("linear", 2)][..],
        ),
        (
            "int4.mlpackage",
            "specification 9, mlProgram",
            &[
                ("constexpr_blockwise_shift_scale", 2),
                ("linear", 2),
                ("relu", 1),
            ],
        ),
        (
            "counter.mlpackage",
            "specification 9, mlProgram",
            &[
                ("add", 1),
                ("mul", 1),
                ("read_state", 2),
                ("write_state", 1),
            ],
        ),
        (
            "network.mlmodel",
            "specification 4, neuralNetwork",
            &[
                ("neuralNetwork::activation", 1),
                ("neuralNetwork::innerProduct", 1),
            ],
        ),
        (
            "custom.mlmodel",
            "specification 4, neuralNetwork",
            &[("neuralNetwork::custom", 1)],
        ),
        (
            "pipeline.mlmodel",
            "specification 1, pipeline",
            &[("pipeline::neuralNetwork", 2)],
        ),
    ] {
        let info = info(name);
        let operators = operators
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        let operators: BTreeMap<String, u64> = operators.collect();
        assert_eq!(info.format_version, version, "{name}");
        assert_eq!(info.methods[0].operators, operators, "{name}");
    }
}

#[test]
fn weights_are_told_by_their_types() {
    for (name, types, bytes) in [
        ("mlp_fp32.mlpackage", &[("float32", 208)][..], 832),
        ("mlp_fp16.mlpackage", &[("float16", 208)], 416),
        ("int4.mlpackage", &[("float32", 288), ("int4", 6144)], 4224),
        ("counter.mlpackage", &[], 0),
    ] {
        let info = info(name);
        let types = types
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        assert_eq!(info.weight_types, types.collect(), "{name}");
        assert_eq!(info.weight_bytes, bytes, "{name}");
        assert!(
            info.external.is_empty(),
            "{name}: weights must be in its folder"
        );
    }
}

#[test]
fn what_authors_write_is_shown() {
    let mlp = info("mlp_fp32.mlpackage");
    assert_eq!(mlp.producer.as_deref(), Some("coremltools 9.0"));
    for (key, value) in [
        ("author", "A. Author"),
        ("license", "Apache-2.0"),
        ("description", "Two layers"),
        ("version", "1.2"),
        ("purpose", "a test"),
    ] {
        assert_eq!(row(&mlp, key), Some(value), "{key}");
    }
    let counter = info("counter.mlpackage");
    assert_eq!(row(&counter, "states"), Some("total: float16[1, 4]"));
    let network = info("network.mlmodel");
    assert_eq!(row(&network, "optional inputs"), Some("x"));
}

#[test]
fn files_of_a_folder_are_listed() {
    let info = info("mlp_fp32.mlpackage");
    let files: Vec<(&str, u64)> = info
        .segments
        .iter()
        .map(|file| (&*file.name, file.size))
        .collect();
    let size = |file: &str| path("mlp_fp32.mlpackage").join(file).metadata();
    let model = pkgtool_testing::coreml::MODEL;
    let weights = pkgtool_testing::coreml::WEIGHTS;
    let size = |file: &str| size(file).expect("the file exists").len();
    assert_eq!(files, [(model, size(model)), (weights, size(weights))]);
}

#[test]
fn a_model_by_itself_needs_its_weights_beside_it() {
    let folder = pkgtool_testing::coreml::Folder::of("mlp_fp32");
    let info = inspect(&folder.bytes(pkgtool_testing::coreml::MODEL)).expect("a sound model");
    let [external] = &info.external[..] else {
        panic!("{:?}", info.external);
    };
    assert_eq!(external.location.as_deref(), Some("weights/weight.bin"));
    assert_eq!(
        external.tensors, 3,
        "four numbers are stored in the program"
    );
    let size = folder.bytes(pkgtool_testing::coreml::WEIGHTS).len() as u64;
    assert!(
        external
            .needs_bytes
            .is_some_and(|needs| needs <= size && needs > size - 64)
    );
    assert_eq!(info.weight_bytes, 0);
}

/// A model of kind `identity` with one input of this type.
fn with_input(ty: &[&[u8]]) -> Vec<u8> {
    let input = part(1, &[&part(1, &[b"x"]), &part(3, ty)]);
    [int(1, 1), part(2, &[&input]), part(900, &[])].concat()
}

#[test]
fn sizes_without_a_bound_are_open() {
    let array = |range: &[&[u8]]| {
        part(
            5,
            &[
                &int(1, 3),
                &int(2, 65_568),
                &part(31, &[&part(1, range), &part(1, &[&int(1, 4), &int(2, 4)])]),
            ],
        )
    };
    let first = |bytes: Vec<u8>| {
        let info = inspect(&bytes).expect("a sound model");
        let tensor = info.methods[0].inputs[0].tensor().cloned();
        tensor.and_then(|tensor| tensor.dims).expect("a tensor")
    };
    let open = first(with_input(&[&array(&[&int(1, 1), &int(2, u64::MAX)])]));
    let dynamic = |bound, allowed| Dim::Dynamic {
        bound,
        name: None,
        allowed,
    };
    assert_eq!(open, [dynamic(None, None), Dim::Fixed(4)]);
    let closed = first(with_input(&[&array(&[&int(1, 2), &int(2, 6)])]));
    let range = Allowed::Range {
        least: 2,
        most: 6,
        step: 1,
    };
    assert_eq!(closed, [dynamic(Some(6), Some(range)), Dim::Fixed(4)]);
}

#[test]
fn shapes_of_several_ranks_give_none() {
    let shape = |sizes: &[u64]| {
        let sizes: Vec<Vec<u8>> = sizes.iter().map(|size| int(1, *size)).collect();
        part(1, &[&sizes.concat()])
    };
    let array = |shapes: &[Vec<u8>]| part(5, &[&int(2, 65_552), &part(21, &[&shapes.concat()])]);
    for (shapes, expected) in [
        (vec![shape(&[1, 4]), shape(&[4])], None),
        (
            vec![shape(&[1, 4]), shape(&[3, 4])],
            Some("float16[-1 (1 or 3), 4]"),
        ),
        (vec![shape(&[2, 4])], Some("float16[2, 4]")),
    ] {
        let info = inspect(&with_input(&[&array(&shapes)])).expect("a sound model");
        let tensor = info.methods[0].inputs[0]
            .tensor()
            .cloned()
            .expect("a tensor");
        assert_eq!(tensor.dims.is_some(), expected.is_some());
        if let Some(expected) = expected {
            assert_eq!(tensor.to_string(), expected);
        }
    }
}

#[test]
fn an_output_without_sizes_claims_none() {
    let output = part(
        10,
        &[&part(1, &[b"y"]), &part(3, &[&part(5, &[&int(2, 65_568)])])],
    );
    let bytes = [int(1, 7), part(2, &[&output]), part(900, &[])].concat();
    let info = inspect(&bytes).expect("a sound model");
    let tensor = info.methods[0].outputs[0]
        .tensor()
        .cloned()
        .expect("a tensor");
    assert_eq!(tensor.dims, None);
    assert_eq!(info.methods[0].operators["model::identity"], 1);
}
