//! Declared signatures compared with the descriptions in Core ML models.
//!
//! The cases cover every kind of input and output, models with several functions, and pipelines.
//! The models are hand-made descriptions without contents, because validation reads only the
//! description.

use serde_json::{Value, json};

use crate::support::run::validate;
use crate::support::tree::{Tree, config};
use pkgtool_testing::coreml::{copy, path};
use pkgtool_testing::onnx::{int, part};

const FLOAT16: u64 = 65_552;
const FLOAT32: u64 = 65_568;
const DOUBLE: u64 = 65_600;
const INT32: u64 = 131_104;
const INT8: u64 = 131_080;

/// Kinds of models, by their field numbers.
const ML_PROGRAM: u64 = 502;
const NETWORK: u64 = 500;
const PIPELINE: u64 = 202;

const INPUT: u64 = 1;
const OUTPUT: u64 = 10;
const STATE: u64 = 13;

fn shape(sizes: &[i64]) -> Vec<u8> {
    let sizes: Vec<Vec<u8>> = sizes
        .iter()
        .map(|size| int(1, size.cast_unsigned()))
        .collect();
    sizes.concat()
}

/// An array type with its default sizes, its element type and its variable sizes.
fn array(sizes: &[i64], element: u64, varies: &[u8]) -> Vec<u8> {
    part(5, &[&shape(sizes), &int(2, element), varies])
}

fn choices(shapes: &[&[i64]]) -> Vec<u8> {
    let shapes: Vec<Vec<u8>> = shapes.iter().map(|one| part(1, &[&shape(one)])).collect();
    part(21, &[&shapes.concat()])
}

fn ranges(ranges: &[(u64, i64)]) -> Vec<u8> {
    let range =
        |(least, most): &(u64, i64)| part(1, &[&int(1, *least), &int(2, most.cast_unsigned())]);
    let ranges: Vec<Vec<u8>> = ranges.iter().map(range).collect();
    part(31, &[&ranges.concat()])
}

fn image(width: u64, height: u64) -> Vec<u8> {
    part(4, &[&int(1, width), &int(2, height), &int(3, 20)])
}

fn feature(field: u64, name: &str, ty: &[u8]) -> Vec<u8> {
    part(field, &[&part(1, &[name.as_bytes()]), &part(3, &[ty])])
}

fn described(kind: u64, features: &[Vec<u8>]) -> Vec<u8> {
    [int(1, 9), part(2, &[&features.concat()]), part(kind, &[])].concat()
}

fn plain(sizes: &[i64]) -> Vec<u8> {
    array(sizes, FLOAT32, &[])
}

fn tensor(dtype: &str, shape: &[i64]) -> Value {
    json!({ "shape": shape, "dtype": dtype })
}

fn floats(shape: &[i64]) -> Value {
    tensor("float32", shape)
}

/// Returns the findings for these methods and this model: codes with the ends of their pointers.
fn said_of(model: &[u8], methods: &Value) -> Vec<String> {
    let file = "tiny_coreml_fp32.mlmodel";
    let mut config = config();
    config["backend"] = json!("coreml");
    config["variants"][0]["file"] = json!(file);
    config["variants"][0]["methods"] = methods.clone();
    let tree = Tree::new()
        .json("coreml/config.json", &config)
        .file(&format!("coreml/{file}"), model);
    told(&tree)
}

fn told(tree: &Tree) -> Vec<String> {
    let report = validate(tree.root(), "coreml").json();
    let findings = report["diagnostics"].as_array().expect("findings");
    let told = findings.iter().map(|one| {
        let (code, pointer) = (one["code"].as_str(), one["pointer"].as_str());
        let pointer = pointer.expect("a pointer").rsplit("methods/").next();
        format!("{} {}", code.expect("a code"), pointer.expect("an end"))
    });
    let mut told: Vec<String> = told.collect();
    told.sort();
    told
}

/// Asserts the findings for one input that is declared like this.
#[expect(
    clippy::needless_pass_by_value,
    reason = "arguments are created at the call"
)]
#[track_caller]
fn input(ty: &[u8], declared: Value, expected: &[&str]) {
    let model = described(
        ML_PROGRAM,
        &[
            feature(INPUT, "x", ty),
            feature(OUTPUT, "y", &plain(&[1, 4])),
        ],
    );
    let methods = json!({ "forward": { "inputs": [declared], "outputs": [floats(&[1, 4])] } });
    assert_eq!(said_of(&model, &methods), expected, "{methods}");
}

#[test]
fn types_of_elements_are_compared() {
    for (element, dtype) in [
        (FLOAT16, "float16"),
        (FLOAT32, "float32"),
        (DOUBLE, "float64"),
        (INT32, "int32"),
        (INT8, "int8"),
    ] {
        input(&array(&[1, 4], element, &[]), tensor(dtype, &[1, 4]), &[]);
        for other in [
            "float32", "float16", "float64", "int32", "int64", "bfloat16",
        ] {
            if other != dtype {
                let expected = ["PKG032 forward/inputs/0/dtype"];
                input(
                    &array(&[1, 4], element, &[]),
                    tensor(other, &[1, 4]),
                    &expected,
                );
            }
        }
    }
    // A type that the config format cannot express.
    let expected = ["PKG037 forward/inputs/0/dtype"];
    input(&array(&[1, 4], 65_544, &[]), floats(&[1, 4]), &expected);
}

#[test]
fn fixed_sizes_are_compared() {
    input(&plain(&[1, 3, 8, 8]), floats(&[1, 3, 8, 8]), &[]);
    let rank = ["PKG033 forward/inputs/0/shape"];
    input(&plain(&[1, 3, 8, 8]), floats(&[3, 8, 8]), &rank);
    input(&plain(&[8]), floats(&[]), &rank);
    input(
        &plain(&[1, 3, 8, 8]),
        floats(&[1, 3, 8, 9]),
        &["PKG034 forward/inputs/0/shape/3"],
    );
    input(
        &plain(&[1, 3, 8, 8]),
        floats(&[-1, 3, 8, 8]),
        &["PKG035 forward/inputs/0/shape/0"],
    );
    input(
        &plain(&[1, 3, 8, 8]),
        floats(&[2, 3, 8, 9]),
        &["PKG034 forward/inputs/0/shape"],
    );
}

#[test]
fn sizes_that_vary_are_dynamic() {
    let dynamic = ["PKG035 forward/inputs/0/shape/0"];
    for varies in [
        choices(&[&[1, 4], &[2, 4], &[8, 4]]),
        // The default shape is allowed as well.
        choices(&[&[2, 4]]),
        ranges(&[(1, 8), (4, 4)]),
        ranges(&[(1, -1), (4, 4)]),
        ranges(&[(0, -1), (4, 4)]),
        // A maximum of 0 means that the size is unlimited.
        ranges(&[(1, 0), (4, 4)]),
        ranges(&[(0, 0), (4, 4)]),
    ] {
        let ty = array(&[1, 4], FLOAT32, &varies);
        input(&ty, floats(&[-1, 4]), &[]);
        input(&ty, floats(&[1, 4]), &dynamic);
        input(&ty, floats(&[-1, 5]), &["PKG034 forward/inputs/0/shape/1"]);
        input(&ty, floats(&[-1, -1]), &["PKG035 forward/inputs/0/shape/1"]);
        input(&ty, floats(&[-1]), &["PKG033 forward/inputs/0/shape"]);
    }
    // The default shape is the only allowed one.
    let ty = array(&[1, 4], FLOAT32, &choices(&[&[1, 4]]));
    input(&ty, floats(&[1, 4]), &[]);
    input(&ty, floats(&[-1, 4]), &dynamic);
    let ty = array(&[1, 4], FLOAT32, &ranges(&[(1, 1), (4, 4)]));
    input(&ty, floats(&[1, 4]), &[]);
    // A negative size means any size.
    input(&plain(&[-1, 4]), floats(&[-1, 4]), &[]);
    input(&plain(&[-1, 4]), floats(&[0, 4]), &dynamic);
    let ty = array(&[1, 4], FLOAT32, &choices(&[&[-1, 4], &[1, 4]]));
    input(&ty, floats(&[-1, 4]), &[]);
    // With shapes of several ranks, or without shapes, only the element type is known.
    for varies in [choices(&[&[1, 4], &[4]]), Vec::new()] {
        let ty = array(&[], FLOAT32, &varies);
        for declared in [&[1, 4][..], &[-1], &[]] {
            input(&ty, floats(declared), &[]);
        }
        input(
            &ty,
            tensor("int32", &[1]),
            &["PKG032 forward/inputs/0/dtype"],
        );
    }
}

#[test]
fn of_two_ways_to_vary_the_last_counts() {
    let both = [choices(&[&[1, 4], &[2, 4]]), ranges(&[(1, 1), (4, 9)])];
    let ty = array(&[1, 4], FLOAT32, &both.concat());
    input(&ty, floats(&[1, -1]), &[]);
    let [choices, ranges] = both;
    let ty = array(&[1, 4], FLOAT32, &[ranges, choices].concat());
    input(&ty, floats(&[-1, 4]), &[]);
}

#[test]
fn an_image_is_an_input_of_which_a_config_cannot_tell() {
    for declared in [tensor("uint8", &[1, 3, 16, 12]), floats(&[1, 3, 16, 12])] {
        input(&image(12, 16), declared, &["PKG037 forward/inputs/0/dtype"]);
    }
    // The image keeps its position among the other inputs.
    let features = [
        feature(INPUT, "picture", &image(12, 16)),
        feature(INPUT, "x", &plain(&[4])),
        feature(OUTPUT, "y", &image(12, 16)),
    ];
    let model = described(NETWORK, &features);
    let methods = json!({ "forward": {
        "inputs": [tensor("uint8", &[1, 3, 16, 12]), floats(&[5])],
        "outputs": [tensor("uint8", &[1, 3, 16, 12])],
    } });
    let expected = [
        "PKG034 forward/inputs/1/shape/0",
        "PKG037 forward/inputs/0/dtype",
        "PKG037 forward/outputs/0/dtype",
    ];
    assert_eq!(said_of(&model, &methods), expected);
    let methods = json!({ "forward": { "inputs": [floats(&[4])], "outputs": [] } });
    assert_eq!(
        said_of(&model, &methods),
        ["PKG031 forward/inputs", "PKG031 forward/outputs"]
    );
}

#[test]
fn what_a_caller_may_leave_out_a_config_may() {
    let optional = |name: &str| {
        let ty = [plain(&[1, 4]), int(1000, 1)].concat();
        feature(INPUT, name, &ty)
    };
    let features = [
        feature(INPUT, "x", &plain(&[1, 8])),
        optional("mask"),
        optional("bias"),
        feature(OUTPUT, "y", &plain(&[1, 4])),
    ];
    let model = described(ML_PROGRAM, &features);
    let said = |inputs: Value| {
        said_of(
            &model,
            &json!({ "forward": { "inputs": inputs, "outputs": [floats(&[1, 4])] } }),
        )
    };
    let named = |name: &str| json!({ "name": name, "shape": [1, 4], "dtype": "float32" });
    let (x, four) = (floats(&[1, 8]), floats(&[1, 4]));
    assert!(said(json!([x, four, four])).is_empty());
    assert!(said(json!([x])).is_empty());
    assert_eq!(
        said(json!([floats(&[1, 9])])),
        ["PKG034 forward/inputs/0/shape/1"]
    );
    // Only their names show which of the two optional inputs is missing.
    assert!(said(json!([x, named("bias")])).is_empty());
    assert!(said(json!([x, named("mask")])).is_empty());
    assert_eq!(said(json!([x, four])), ["PKG031 forward/inputs"]);
    assert_eq!(said(json!([x, named("other")])), ["PKG031 forward/inputs"]);
    assert_eq!(said(json!([])), ["PKG031 forward/inputs"]);
    assert_eq!(
        said(json!([x, four, four, four])),
        ["PKG031 forward/inputs"]
    );
    // Outputs cannot be omitted, and neither can all inputs.
    let network = described(
        NETWORK,
        &[optional("x"), feature(OUTPUT, "y", &plain(&[4]))],
    );
    let methods = json!({ "forward": { "inputs": [], "outputs": [] } });
    assert_eq!(
        said_of(&network, &methods),
        ["PKG031 forward/inputs", "PKG031 forward/outputs"]
    );
}

#[test]
fn states_are_neither_inputs_nor_outputs() {
    let state = part(8, &[&part(1, &[&shape(&[1, 4]), &int(2, FLOAT16)])]);
    let features = [
        feature(INPUT, "x", &plain(&[1, 4])),
        feature(OUTPUT, "y", &plain(&[1, 4])),
        feature(STATE, "cache", &state),
    ];
    let model = described(ML_PROGRAM, &features);
    let four = floats(&[1, 4]);
    let methods = json!({ "forward": { "inputs": [four], "outputs": [four] } });
    assert!(said_of(&model, &methods).is_empty());
    let state = tensor("float16", &[1, 4]);
    let methods = json!({ "forward": { "inputs": [four, state], "outputs": [four, state] } });
    assert_eq!(
        said_of(&model, &methods),
        ["PKG031 forward/inputs", "PKG031 forward/outputs"]
    );
}

#[test]
fn functions_are_methods_by_their_names() {
    let function = |name: &str, rows: i64| {
        let features = [
            part(1, &[name.as_bytes()]),
            feature(2, "x", &plain(&[rows, 8])),
            feature(3, "y", &plain(&[rows, 6])),
        ];
        part(20, &[&features.concat()])
    };
    let functions = [
        function("small", 1),
        function("wide", 4),
        part(21, &[b"wide"]),
    ];
    let model = described(ML_PROGRAM, &functions);
    let method =
        |rows: i64| json!({ "inputs": [floats(&[rows, 8])], "outputs": [floats(&[rows, 6])] });
    assert!(said_of(&model, &json!({ "small": method(1), "wide": method(4) })).is_empty());
    let expected = [
        "PKG034 small/inputs/0/shape/0",
        "PKG034 small/outputs/0/shape/0",
    ];
    assert_eq!(
        said_of(&model, &json!({ "small": method(4), "wide": method(4) })),
        expected
    );
    assert_eq!(said_of(&model, &json!({ "wide": method(4) })).len(), 1);
    assert!(said_of(&model, &json!({ "wide": method(4) }))[0].starts_with("PKG030 "));
    // The functions have other names than `forward`.
    let said = said_of(&model, &json!({ "forward": method(1) }));
    assert_eq!(said, ["PKG029 forward"]);
    // A model without functions has one method without a name.
    let features = [
        feature(INPUT, "x", &plain(&[1, 8])),
        feature(OUTPUT, "y", &plain(&[1, 6])),
    ];
    let model = described(ML_PROGRAM, &features);
    for name in ["forward", "main", "encode"] {
        assert!(
            said_of(&model, &json!({ name: method(1) })).is_empty(),
            "{name}"
        );
    }
}

#[test]
fn a_pipeline_is_called_as_a_whole() {
    let inner = [
        part(2, &[&feature(INPUT, "inner", &plain(&[9]))]),
        part(NETWORK, &[]),
    ]
    .concat();
    let features = [
        feature(INPUT, "x", &plain(&[8])),
        feature(INPUT, "count", &part(1, &[])),
        feature(OUTPUT, "y", &plain(&[4])),
        feature(OUTPUT, "label", &part(3, &[])),
        feature(OUTPUT, "probabilities", &part(6, &[])),
    ];
    let description = part(2, &[&features.concat()]);
    let model = [
        int(1, 4),
        description,
        part(PIPELINE, &[&part(1, &[&inner])]),
    ]
    .concat();
    let methods = |size: i64| json!({ "forward": { "inputs": [floats(&[size])], "outputs": [floats(&[4])] } });
    let beside = ["PKG037 forward/inputs", "PKG037 forward/outputs"];
    assert_eq!(said_of(&model, &methods(8)), beside);
    let said = said_of(&model, &methods(9));
    assert_eq!(
        said,
        [&["PKG034 forward/inputs/0/shape/0"][..], &beside].concat()
    );
}

#[test]
fn a_folder_is_compared_as_a_file_is() {
    for (fixture, name, methods, expected) in [
        (
            "ranged",
            "fp32",
            json!({ "forward": { "inputs": [floats(&[-1, -1, 8])], "outputs": [floats(&[-1, -1, 4])] } }),
            &[][..],
        ),
        (
            "counter",
            "fp16",
            json!({ "forward": {
                "inputs": [tensor("float16", &[1, 4])], "outputs": [floats(&[1, 4])],
            } }),
            &["PKG032 forward/outputs/0/dtype"],
        ),
        (
            "image",
            "fp32",
            json!({ "forward": {
                "inputs": [tensor("uint8", &[1, 3, 16, 12])], "outputs": [floats(&[1, 560])],
            } }),
            &["PKG037 forward/inputs/0/dtype"],
        ),
    ] {
        let file = format!("tiny_coreml_{name}.mlpackage");
        let mut config = config();
        config["backend"] = json!("coreml");
        config["variants"][0]["precision"] = json!(name);
        config["variants"][0]["file"] = json!(file);
        config["variants"][0]["methods"] = methods;
        let tree = Tree::new().json("coreml/config.json", &config);
        let target = tree.path("coreml").join(&file);
        copy(&path(&format!("{fixture}.mlpackage")), &target);
        let told: Vec<String> = told(&tree)
            .into_iter()
            .filter(|one| one.contains("forward"))
            .collect();
        assert_eq!(told, expected, "{fixture}");
    }
}
