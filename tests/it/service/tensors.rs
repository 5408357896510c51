//! Tests of tensors in requests and answers: accepted and rejected forms, the places of errors, and
//! robustness.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, Rgb, RgbImage};
use pkgtool_engine::runtime::parsers::Parsers;
use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;
use pkgtool_serve::service::tensors::{Encoding, decode, encode};
use pkgtool_serve::service::{CallError, Refusal};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::inputs::spec;
use pkgtool_testing::mutate::{JsonPart, changes};

fn signature(inputs: Vec<TensorSpec>) -> Signature {
    Signature {
        method: "forward".to_owned(),
        inputs,
        outputs: Vec::new(),
    }
}

fn open(name: &str) -> Dim {
    Dim::Dynamic {
        bound: None,
        name: Some(name.to_owned()),
        allowed: None,
    }
}

/// Returns the signature `ids: int64[batch, 3]`, `mask: bool[batch]`, `scale: float32[]`.
fn three() -> Signature {
    signature(vec![
        spec(
            "ids",
            DType::Int64,
            Some(vec![open("batch"), Dim::Fixed(3)]),
        ),
        spec("mask", DType::Bool, Some(vec![open("batch")])),
        spec("scale", DType::Float32, Some(vec![])),
    ])
}

fn inputs(body: &str, signature: &Signature) -> Result<Vec<Tensor>, Refusal> {
    decode(body.as_bytes(), signature, false).map(|decoded| decoded.inputs)
}

fn valid() -> Value {
    json!({"inputs": [
        {"name": "ids", "shape": [1, 3], "dtype": "int64", "data": [[9_007_199_254_740_993_i64, 2, -3]]},
        {"name": "mask", "data": [true]},
        {"name": "scale", "data": 0.5},
    ]})
}

#[test]
fn names_and_positions_find_their_inputs() {
    let expected = inputs(&valid().to_string(), &three()).expect("it is valid");
    assert_eq!(
        expected[0].bytes()[..8],
        9_007_199_254_740_993_i64.to_le_bytes()
    );
    assert_eq!(expected[0].shape(), [1, 3]);
    assert_eq!(expected[2].shape(), [0_u64; 0]);
    let ids = STANDARD.encode(expected[0].bytes());
    let mask = json!({"data": [1]});
    for body in [
        // Flat data with a shape; named inputs may come in any order.
        json!({"inputs": [
            {"name": "scale", "data": [0.5], "shape": []},
            {"name": "mask", "data": [true]},
            {"name": "ids", "shape": [1, 3], "data": [9_007_199_254_740_993_i64, 2, -3]},
        ]}),
        json!({"inputs": [
            {"shape": [1, 3], "data": ids, "encoding": "base64"}, mask, {"data": 5e-1},
        ]}),
        json!({"inputs": [
            {"shape": [1, 3], "data": ids.trim_end_matches('='), "encoding": "base64"},
            mask, {"data": "AAAAPw==", "encoding": "base64"},
        ], "encoding": "json"}),
    ] {
        let text = body.to_string();
        assert_eq!(inputs(&text, &three()), Ok(expected.clone()), "{text}");
        // One client encodes the body twice.
        let twice = Value::String(text).to_string();
        assert_eq!(inputs(&twice, &three()), Ok(expected.clone()), "{twice}");
    }
}

#[test]
fn the_answers_encoding_is_the_requests_choice() {
    let none = signature(Vec::new());
    for (body, encoding) in [
        (r#"{"inputs":[]}"#, Encoding::Json),
        (r#"{"inputs":[],"encoding":"json"}"#, Encoding::Json),
        (r#"{"encoding":"base64","inputs":[]}"#, Encoding::Base64),
    ] {
        let decoded = decode(body.as_bytes(), &none, false).expect(body);
        assert_eq!(decoded.encoding, encoding, "{body}");
    }
}

/// Rejected bodies: the body, the place of the error, and a part of the message.
const REFUSED: &[(&str, &str, &str)] = &[
    ("", "$", "expected an object"),
    ("[]", "$", "expected an object, got an array"),
    ("\"text\"", "$", "expected an object, got a string"),
    ("\"[1]\"", "$", "expected an object, got an array"),
    ("{}", "$", "the inputs are `ids`, `mask`, `scale`"),
    ("{\"inputs\":[]} x", "$", "trailing characters"),
    (
        "{\"inputs\":[],\"inputs\":[]}",
        "$",
        "duplicate key `inputs`",
    ),
    ("{\"input\":[]}", "$.input", "did you mean `inputs`?"),
    (
        "{\"image_base64\":\"\"}",
        "$.image_base64",
        "does not take pictures",
    ),
    (
        "{\"inputs\":{}}",
        "$.inputs",
        "expected an array, got an object",
    ),
    (
        "{\"inputs\":[],\"encoding\":\"hex\"}",
        "$.encoding",
        "unknown encoding `hex`",
    ),
    (
        "{\"inputs\":[1]}",
        "$.inputs[0]",
        "expected an object, got a number",
    ),
    ("{\"inputs\":[{}]}", "$.inputs[0]", "missing `data`"),
    (
        "{\"inputs\":[{\"data\":[],\"data\":[]}]}",
        "$.inputs[0]",
        "duplicate key `data`",
    ),
    (
        "{\"inputs\":[{\"dat\":[]}]}",
        "$.inputs[0].dat",
        "did you mean `data`?",
    ),
    (
        "{\"inputs\":[{\"name\":\"id\",\"data\":1}]}",
        "$.inputs[0].name",
        "did you mean `ids`?",
    ),
    (
        "{\"inputs\":[{\"name\":5,\"data\":1}]}",
        "$.inputs[0].name",
        "expected a string, got a number",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]]}]}",
        "$.inputs",
        "missing values for input 1 `mask`",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]]},{\"name\":\"ids\",\"data\":[[1,2,3]]}]}",
        "$.inputs[1]",
        "input 0 `ids` already has a value from $.inputs[0]",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]]},{\"data\":[true]},{\"data\":1},{\"data\":1}]}",
        "$.inputs[3]",
        "too many inputs",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]],\"dtype\":\"int32\"}]}",
        "$.inputs[0].dtype",
        "expected dtype int64, got int32",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]],\"dtype\":\"long\"}]}",
        "$.inputs[0].dtype",
        "unknown dtype `long`",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]],\"shape\":[3,1]}]}",
        "$.inputs[0].shape",
        "the shape is [3, 1], but the data has [1, 3]",
    ),
    (
        "{\"inputs\":[{\"data\":[1,2,3],\"shape\":[2,3]}]}",
        "$.inputs[0].shape",
        "as many elements",
    ),
    (
        "{\"inputs\":[{\"data\":[],\"shape\":[0,18446744073709551615]}]}",
        "$.inputs[0].shape",
        "as many elements",
    ),
    (
        "{\"inputs\":[{\"data\":[1],\"shape\":[-1]}]}",
        "$.inputs[0].shape[0]",
        "got `-1`",
    ),
    (
        "{\"inputs\":[{\"data\":[1],\"shape\":[1.5]}]}",
        "$.inputs[0].shape[0]",
        "got `1.5`",
    ),
    (
        "{\"inputs\":[{\"data\":[1],\"shape\":[1e99]}]}",
        "$.inputs[0].shape[0]",
        "got `1e99`",
    ),
    (
        "{\"inputs\":[{\"data\":[1],\"shape\":3}]}",
        "$.inputs[0].shape",
        "expected an array, got a number",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,\"3\"]]}]}",
        "$.inputs[0].data[0][2]",
        "not an integer",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2],[3]]}]}",
        "$.inputs[0].data[1]",
        "rows differ",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,99999999999999999999]]}]}",
        "$.inputs[0].data[0][2]",
        "out of range for int64",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2]]},{\"data\":[true]},{\"data\":1}]}",
        "$.inputs[0].data",
        "dimension 1 is 2 instead of 3",
    ),
    (
        "{\"inputs\":[{\"data\":[1,2],\"shape\":[1,2]},{\"data\":[true]},{\"data\":1}]}",
        "$.inputs[0].shape",
        "dimension 1 is 2 instead of 3",
    ),
    (
        "{\"inputs\":[{\"data\":[[1,2,3]]},{\"data\":[true,true]},{\"data\":1}]}",
        "$.inputs",
        "dimension `batch` is 1",
    ),
    (
        "{\"inputs\":[{\"data\":\"=\",\"encoding\":\"base64\"}]}",
        "$.inputs[0].data",
        "invalid base64",
    ),
    (
        "{\"inputs\":[{\"data\":\"AAAA\",\"encoding\":\"base64\"}]}",
        "$.inputs[0]",
        "needs `shape`",
    ),
    (
        "{\"inputs\":[{\"data\":\"AAAA\",\"encoding\":\"base64\",\"shape\":[1,3]}]}",
        "$.inputs[0].data",
        "has 24 bytes, but the data has 3",
    ),
    (
        "{\"inputs\":[{\"data\":[1],\"encoding\":\"base64\"}]}",
        "$.inputs[0].data",
        "expected a string, got an array",
    ),
    (
        "{\"inputs\":[{\"name\":\"mask\",\"data\":\"Ag==\",\"encoding\":\"base64\"}]}",
        "$.inputs[0].data",
        "expected 0 or 1 for a bool",
    ),
];

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (body, place, message) in REFUSED {
        let refusal = inputs(body, &three()).expect_err(body);
        assert_eq!(refusal.place.as_deref(), Some(*place), "{body}: {refusal}");
        assert!(refusal.message.contains(message), "{body}: {refusal}");
    }
    let not_text = decode(b"{\"inputs\": \xff}", &three(), false).expect_err("not UTF-8");
    assert!(
        not_text.message.contains("byte 11 is invalid UTF-8"),
        "{not_text}"
    );
}

#[test]
fn depth_and_size_are_bounded() {
    let deep = |open: &str, close: &str| open.repeat(10_000) + &close.repeat(10_000);
    for value in [deep("[", "]"), deep("{\"a\":", "}"), "[".repeat(10_000)] {
        for body in [
            value.clone(),
            format!("{{\"inputs\":{value}}}"),
            format!("{{\"inputs\":[{value}]}}"),
            format!("{{\"inputs\":[{{\"data\":{value}}}]}}"),
            format!("{{\"inputs\":[{{\"shape\":{value},\"data\":1}}]}}"),
            format!("{{\"inputs\":[{{\"name\":{value},\"data\":1}}]}}"),
            Value::String(format!("{{\"inputs\":[{{\"data\":{value}}}]}}")).to_string(),
        ] {
            inputs(&body, &three()).expect_err("too deep");
        }
    }
    let many = format!("{{\"inputs\":[{}1]}}", "1,".repeat(1_000_000));
    let refusal = inputs(&many, &three()).expect_err("too many");
    assert!(refusal.message.contains("more than"), "{refusal}");
    let keys: Vec<String> = (0..1000).map(|key| format!("\"{key}\":1")).collect();
    let refusal = inputs(&format!("{{{}}}", keys.join(",")), &three()).expect_err("too many");
    assert!(refusal.message.contains("more than 64 keys"), "{refusal}");
}

#[test]
fn what_json_cannot_write_is_a_string() {
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX];
    let bytes = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let tensor = Tensor::new(DType::Float32, vec![5], bytes).expect("five floats");
    let out = Signature {
        outputs: vec![spec("y", DType::Float32, None)],
        ..signature(Vec::new())
    };
    let text = encode(&out, std::slice::from_ref(&tensor), Encoding::Json);
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let expected = r#"{"outputs":[{"name":"y","shape":[5],"dtype":"float32","data":["NaN","Infinity","-Infinity",-0.0,3.4028235e+38]}]}"#;
    assert_eq!(text.replace("3.4028235e38", "3.4028235e+38"), expected);
    let back = signature(vec![spec("y", DType::Float32, Some(vec![open("n")]))]);
    let read = inputs(&text.replace("outputs", "inputs"), &back).expect("it is read back");
    assert_eq!(read[0].bytes(), tensor.bytes());
}

fn png() -> Vec<u8> {
    let picture = RgbImage::from_fn(2, 2, |x, y| {
        Rgb([[0, 255][x as usize], [0, 255][y as usize], 51])
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, ImageFormat::Png)
        .expect("it is written to memory");
    bytes.into_inner()
}

#[test]
fn a_picture_becomes_the_only_input() {
    let dims = [1, 3, 2, 2].map(Dim::Fixed).to_vec();
    let vision = signature(vec![spec("pixels", DType::Float32, Some(dims.clone()))]);
    let text = STANDARD.encode(png());
    let client = Parsers::new(env!("CARGO_BIN_EXE_pkgtool").into()).client(1);
    let pixels = |body: &Value| {
        let decoded = decode(body.to_string().as_bytes(), &vision, true)?;
        let picture = decoded.picture.expect("it is a picture");
        let tensor = picture.tensor(&client).map_err(|error| match error {
            CallError::Refused(refusal) => refusal,
            other => panic!("{other}"),
        })?;
        Ok::<_, Refusal>(tensor.to_f64().collect::<Vec<f64>>())
    };
    let plain = pixels(&json!({ "image_base64": text })).expect("a picture");
    assert_eq!(plain[..8], [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    assert!((plain[8] - 0.2).abs() < 1e-6);
    let url = format!("data:image/png;base64,{text}");
    let scaled =
        json!({"image_base64": url, "mean": [0.5, 0, 0], "std": 0.5, "encoding": "base64"});
    let scaled = pixels(&scaled).expect("a picture");
    assert_eq!(scaled[..6], [-1.0, 1.0, -1.0, 1.0, 0.0, 0.0]);
    for (body, place, message) in [
        (
            json!({"image_base64": "%"}),
            "$.image_base64",
            "invalid base64",
        ),
        (
            json!({"image_base64": "AAAA"}),
            "$.image_base64",
            "neither PNG, JPEG, WebP nor GIF",
        ),
        (
            json!({"image_base64": text[..40]}),
            "$.image_base64",
            "input 0 `pixels`",
        ),
        (
            json!({"image_base64": text, "std": 0}),
            "$.std",
            "division by 0",
        ),
        (
            json!({"image_base64": text, "mean": [1, 2]}),
            "$.mean",
            "3 channels",
        ),
        (
            json!({"image_base64": text, "mean": "x"}),
            "$.mean",
            "expected a number",
        ),
        (
            json!({"image_base64": text, "mean": [1, 2, 3, 4, 5]}),
            "$.mean",
            "more than 4",
        ),
        (
            json!({"image_base64": text, "inputs": []}),
            "$.inputs",
            "unknown key",
        ),
    ] {
        let refusal = pixels(&body).expect_err("refused");
        assert_eq!(refusal.place.as_deref(), Some(place), "{refusal}");
        assert!(refusal.message.contains(message), "{refusal}");
    }
    let two = ["a", "b"].map(|name| spec(name, DType::Float32, Some(dims.clone())));
    let body = json!({ "image_base64": text }).to_string();
    let refusal = decode(body.as_bytes(), &signature(two.into()), true).expect_err("two");
    assert!(
        refusal
            .message
            .contains("a single picture as its only input"),
        "{refusal}"
    );
}

/// Generates tensors of any dtype, with any bit pattern except for invalid booleans.
fn tensors() -> impl Strategy<Value = Tensor> {
    let shapes = prop_oneof![Just(vec![]), vec(0_u64..4, 1..4)];
    (prop::sample::select(&DType::ALL[..]), shapes).prop_flat_map(|(dtype, shape)| {
        let count: u64 = shape.iter().product();
        let size = usize::try_from(count * dtype.size()).expect("small");
        vec(any::<u8>(), size).prop_map(move |mut bytes| {
            if dtype == DType::Bool {
                for byte in &mut bytes {
                    *byte &= 1;
                }
            }
            Tensor::new(dtype, shape.clone(), bytes).expect("as many bytes as the shape says")
        })
    })
}

fn values(tensor: &Tensor) -> Vec<u64> {
    let quiet = |value: f64| if value.is_nan() { f64::NAN } else { value };
    tensor
        .to_f64()
        .map(|value| quiet(value).to_bits())
        .collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(tensor in tensors(), base64: bool) {
        let name = "\"ü\"\n";
        let out = Signature {
            outputs: vec![spec(name, tensor.dtype(), None)],
            ..signature(Vec::new())
        };
        let encoding = if base64 { Encoding::Base64 } else { Encoding::Json };
        let text = encode(&out, std::slice::from_ref(&tensor), encoding);
        let text = String::from_utf8(text).expect("JSON is UTF-8");
        serde_json::from_str::<Value>(&text).expect("it is JSON");
        let back = signature(vec![spec(name, tensor.dtype(), None)]);
        let body = text.replacen("outputs", "inputs", 1);
        let read = inputs(&body, &back).expect("it is read back");
        prop_assert_eq!(read[0].shape(), tensor.shape());
        prop_assert_eq!(read[0].dtype(), tensor.dtype());
        if base64 || !tensor.dtype().is_float() {
            prop_assert_eq!(read[0].bytes(), tensor.bytes());
        } else {
            prop_assert_eq!(values(&read[0]), values(&tensor));
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(body in vec(any::<u8>(), 0..200), pictures: bool) {
        let _ = decode(&body, &three(), pictures);
    }

    #[test]
    fn mutated_requests_do_no_harm(changes in changes()) {
        let mut tree = JsonPart::parse(&valid().to_string());
        for (at, change) in &changes {
            tree.apply(*at, change);
        }
        if let Ok(inputs) = inputs(&tree.text(), &three()) {
            pkgtool_engine::tensor::input::check(&three(), &inputs).expect("decoded inputs match the signature");
        }
    }
}
