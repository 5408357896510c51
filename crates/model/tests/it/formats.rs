//! Tests of the safetensors, GGUF and TensorFlow Lite readers.
//!
//! Files of `tests/fixtures/formats` (see `make.py`) are compared with what their own libraries
//! report. Other tests use hand-broken, mutated and random files.

mod converted;
mod named;
mod random;

use std::fs;
use std::io;
use std::path::Path;

use pkgtool_base::source::ReadAt;
use pkgtool_model::gguf::ggml_type;
use pkgtool_model::{FORMATS, ModelError, ModelFormat, ModelInfo, TensorInfo, format_of};
use serde_json::Value;

use crate::counted::Counted;
use pkgtool_testing::fixture;

const FIXTURES: [(&str, &str); 5] = [
    ("safetensors", "small.safetensors"),
    ("gguf", "small.gguf"),
    ("tflite", "dense_float.tflite"),
    ("tflite", "dense_int8.tflite"),
    ("tflite", "signatures.tflite"),
];

fn bytes(name: &str) -> Vec<u8> {
    fs::read(fixture("formats").join(name)).expect("a fixture")
}

fn expected() -> Value {
    let text = fs::read_to_string(fixture("formats/expect.json")).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

/// Reads bytes as this format. Reads must stay in bounds, and errors must name a place in the file.
fn inspect(format: &str, bytes: &[u8]) -> Result<ModelInfo, ModelError> {
    let found = FORMATS.iter().find(|known| known.name() == format);
    let source = Counted::new(bytes);
    let read = found.expect("a format").inspect(&source);
    let most = 64 * 1024 + 32 * bytes.len() as u64;
    assert!(source.read() <= most, "read {} bytes", source.read());
    if let Err(error) = &read {
        let text = error.to_string();
        assert!(!text.is_empty() && text.len() < 4000, "{text}");
    }
    read
}

#[track_caller]
fn refused(format: &str, bytes: &[u8]) -> String {
    inspect(format, bytes).expect_err("broken").to_string()
}

fn sizes(info: &TensorInfo) -> Value {
    serde_json::json!(info.config_shape())
}

#[test]
fn files_are_recognised_by_their_first_bytes_and_by_their_names() {
    for (format, name) in FIXTURES {
        let content = bytes(name);
        for path in [name, "model", "model.bin"] {
            let found = format_of(Path::new(path), &content).expect("the input is valid");
            assert_eq!(found.map(ModelFormat::name), Some(format), "{path}");
        }
        let named = format_of(Path::new(name), &vec![7; 100]).expect("the input is valid");
        assert_eq!(named.map(ModelFormat::name), Some(format), "{name}");
    }
}

#[test]
fn safetensors_say_what_their_library_reads() {
    let expected = &expected()["safetensors"];
    let info = inspect("safetensors", &bytes("small.safetensors")).expect("the input is valid");
    let tensors = expected["tensors"].as_object().expect("an object");
    assert_eq!(info.named.len(), tensors.len());
    for named in &info.named {
        let tensor = named.tensor.as_ref().expect("a tensor");
        let known = &tensors[&named.name];
        assert_eq!(sizes(tensor), known["shape"], "{}", named.name);
        let dtype = match known["dtype"].as_str().expect("a dtype") {
            "BOOL" => "bool",
            "I8" => "int8",
            "I64" => "int64",
            "U16" => "uint16",
            "F16" => "float16",
            "F32" => "float32",
            "F64" => "float64",
            other => panic!("{other}"),
        };
        assert_eq!(tensor.element.name(), dtype, "{}", named.name);
    }
    for (key, value) in expected["metadata"].as_object().expect("an object") {
        let key = format!("property {key}");
        let found = info.metadata.iter().find(|(known, _)| *known == key);
        assert_eq!(
            found.map(|(_, text)| text.as_str()),
            value.as_str(),
            "{key}"
        );
    }
    assert!(!info.has_signature());
    assert_eq!(info.weight_types["float32"], 128);
}

#[test]
fn gguf_says_what_its_library_reads() {
    let expected = &expected()["gguf"];
    let info = inspect("gguf", &bytes("small.gguf")).expect("the input is valid");
    let tensors = expected["tensors"].as_object().expect("an object");
    assert_eq!(info.named.len(), tensors.len());
    let mut total = 0;
    for named in &info.named {
        let tensor = named.tensor.as_ref().expect("a tensor");
        let known = &tensors[&named.name];
        assert_eq!(sizes(tensor), known["shape"], "{}", named.name);
        let dtype = match known["type"].as_str().expect("a type") {
            "f32" => "float32",
            "f16" => "float16",
            quantised => quantised,
        };
        assert_eq!(tensor.element.name(), dtype, "{}", named.name);
        total += known["bytes"].as_u64().expect("a size");
    }
    assert_eq!(info.weight_bytes, total);
    let first = tensors.values().map(|tensor| tensor["offset"].as_u64());
    assert_eq!(Some(info.segments[1].offset), first.min().expect("some"));
    for key in expected["keys"].as_array().expect("an array") {
        let key = key.as_str().expect("a key");
        assert!(info.metadata.iter().any(|(known, _)| known == key), "{key}");
    }
    assert!(!info.has_signature());
}

#[test]
fn sizes_of_ggmls_types_are_those_of_its_library() {
    let expected = expected();
    let types = expected["gguf"]["types"].as_object().expect("an object");
    assert!(types.len() > 28);
    for (number, row) in types {
        let known = ggml_type(number.parse().expect("a number")).expect("a known type");
        let found = serde_json::json!([known.name, known.block_elements, known.bytes]);
        assert_eq!(found, *row);
    }
    assert_eq!(ggml_type(4), None);
}

#[test]
fn tflite_says_what_its_library_reads() {
    let expected = &expected()["tflite"];
    for (_, name) in FIXTURES.iter().filter(|(format, _)| *format == "tflite") {
        let info = inspect("tflite", &bytes(name)).expect("the input is valid");
        let known = &expected[name];
        let signatures = known["signatures"].as_object().expect("an object");
        let graphs: Vec<(String, &Value)> = if signatures.is_empty() {
            vec![("forward".to_owned(), &known["subgraphs"][0])]
        } else {
            let named = signatures.iter();
            let at = |graph: &Value| {
                usize::try_from(graph.as_u64().expect("a place")).expect("the number fits")
            };
            named
                .map(|(name, graph)| (name.clone(), &known["subgraphs"][at(graph)]))
                .collect()
        };
        assert_eq!(info.methods.len(), graphs.len(), "{name}");
        assert_eq!(info.names_methods, graphs.len() > 1, "{name}");
        for (method, graph) in graphs {
            let method = info.method(&method).expect("the method");
            for (side, values) in [("inputs", &method.inputs), ("outputs", &method.outputs)] {
                let known = graph[side].as_array().expect("an array");
                assert_eq!(values.len(), known.len(), "{name} {side}");
                for (value, known) in values.iter().zip(known) {
                    let tensor = value.tensor().expect("a tensor");
                    assert_eq!(sizes(tensor), known["shape"], "{name}");
                    assert_eq!(tensor.element.name(), known["dtype"], "{name}");
                    if signatures.is_empty() {
                        assert_eq!(value.name.as_deref(), known["name"].as_str());
                    }
                }
            }
        }
    }
    let info = inspect("tflite", &bytes("signatures.tflite")).expect("the input is valid");
    let lookup = info.method("lookup").expect("a signature");
    let names: Vec<_> = lookup
        .inputs
        .iter()
        .map(|value| value.name.as_deref())
        .collect();
    assert_eq!(
        names,
        [Some("ids"), Some("flag")],
        "in the subgraph's order"
    );
    assert_eq!(lookup.operators["custom::Lookup"], 1);
    let int8 = inspect("tflite", &bytes("dense_int8.tflite")).expect("the input is valid");
    assert_eq!((int8.weight_types["int8"], int8.weight_bytes), (32, 32));
}

/// A safetensors file with this header and `data` bytes of data.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &vec![0; data]].concat()
}

fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[test]
fn broken_safetensors_are_named() {
    let one = |dtype: &str, shape: &str, begin, end| {
        format!("{{{}}}", entry("w", dtype, shape, begin, end))
    };
    let two = |a: (u64, u64), b: (u64, u64)| {
        format!(
            "{{{},{}}}",
            entry("a", "U8", "[4]", a.0, a.1),
            entry("b", "U8", "[4]", b.0, b.1)
        )
    };
    let many: String = vec!["1"; 65].join(",");
    for (content, said) in [
        (vec![1, 2, 3], "needs 8 bytes, but the file has 3"),
        (
            u64::MAX.to_le_bytes().to_vec(),
            "expected at most 0 bytes, found 18446744073709551615",
        ),
        (safetensors("", 0), "expected `{`, found no header"),
        (safetensors("[]", 0), "expected `{`, found byte 0x5b"),
        (safetensors("{\"w\":", 0), "EOF"),
        (safetensors("{} x", 0), "trailing characters"),
        (
            safetensors(r#"{"w":{"dtype":"F32","shape":[1]}}"#, 4),
            "missing field `data_offsets`",
        ),
        (
            safetensors(
                r#"{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
                4,
            ),
            "invalid value",
        ),
        (
            safetensors(r#"{"__metadata__":{"a":1}}"#, 0),
            "expected a string",
        ),
        (
            safetensors(&one("F31", "[1]", 0, 4), 4),
            r#"header.w.dtype: expected a safetensors dtype, found "F31""#,
        ),
        (
            safetensors(&one("F32", "[2]", 0, 4), 4),
            "expected 8 bytes for F32[2], found 0 to 4",
        ),
        (
            safetensors(&one("F32", "[1]", 4, 0), 4),
            "expected 4 bytes for F32[1], found 4 to 0",
        ),
        (
            safetensors(&one("F4", "[3]", 0, 2), 2),
            "expected a whole number of bytes",
        ),
        (
            safetensors(&one("F32", "[4294967296,4294967296]", 0, 4), 4),
            "fits 64 bits",
        ),
        (
            safetensors(&one("F32", &format!("[{many}]"), 0, 4), 4),
            "at most 64 dimensions",
        ),
        (
            safetensors(&one("F32", "[1]", 0, 4), 3),
            "need 4 bytes after the header, but the file has 3",
        ),
        (
            safetensors(&one("F32", "[1]", 0, 4), 9),
            "need 4 bytes after the header, but the file has 9",
        ),
        (
            safetensors(&two((0, 4), (2, 6)), 6),
            "header.b.data_offsets",
        ),
        (
            safetensors(&two((0, 4), (5, 9)), 9),
            "begin at 4, where that of the preceding tensor ends, found 5",
        ),
        (
            safetensors(&format!("{{{0},{0}}}", entry("a", "U8", "[4]", 0, 4)), 4),
            "duplicate name \"a\"",
        ),
    ] {
        let text = refused("safetensors", &content);
        assert!(text.contains(said), "{text:?} does not contain {said:?}");
    }
    inspect("safetensors", &safetensors("{}", 0)).expect("no tensors");
    inspect("safetensors", &safetensors("{}     ", 0)).expect("padded");
    let metadata = r#"{"__metadata__":{"b":"2","a":"1"}}"#;
    let info = inspect("safetensors", &safetensors(metadata, 0)).expect("metadata alone");
    assert_eq!(info.metadata[1].0, "property a");
}

/// A GGUF file of version 3 with these bytes after its header.
fn gguf(tensors: u64, entries: u64, rest: &[&[u8]]) -> Vec<u8> {
    let head = [
        &b"GGUF"[..],
        &3_u32.to_le_bytes(),
        &tensors.to_le_bytes(),
        &entries.to_le_bytes(),
    ];
    [head.concat(), rest.concat()].concat()
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let rank = u32::try_from(dims.len()).expect("the number fits");
    let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    [
        text(name),
        rank.to_le_bytes().to_vec(),
        dims,
        kind.to_le_bytes().to_vec(),
        offset.to_le_bytes().to_vec(),
    ]
    .concat()
}

fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name)[..], &kind.to_le_bytes(), value].concat()
}

#[test]
fn broken_gguf_is_named() {
    let pad = [0; 256];
    let nested = [
        9_u32.to_le_bytes(),
        1_u32.to_le_bytes(),
        0_u32.to_le_bytes(),
    ]
    .concat()
    .repeat(20);
    let word = |number: u32| number.to_le_bytes().to_vec();
    for (content, said) in [
        (b"GGU".to_vec(), "magic: needs 4 bytes"),
        (b"GGML....".to_vec(), "expected \"GGUF\", found \"GGML\""),
        (
            [&b"GGUF"[..], &[0, 0, 0, 3]].concat(),
            "found 3 in big-endian",
        ),
        ([&b"GGUF"[..], &[1, 0, 0, 0]].concat(), "found 1"),
        (
            gguf(u64::MAX, 0, &[]),
            "tensor_count at offset 8: a count of 18446744073709551615 does not fit",
        ),
        (gguf(0, 1 << 40, &[]), "metadata_kv_count at offset 16"),
        (
            gguf(0, 1, &[&(1_u64 << 50).to_le_bytes(), &pad]),
            "needs 1125899906842624 bytes",
        ),
        (
            gguf(0, 1, &[&key("k", 13, &pad)]),
            "expected a type from 0 to 12, found 13",
        ),
        (
            gguf(0, 1, &[&key("k", 7, &[2]), &pad]),
            "metadata[0] (k) at offset 37: expected a bool, 0 or 1, found 2",
        ),
        (
            gguf(
                0,
                1,
                &[&key("k", 9, &[word(4), vec![255; 8]].concat()), &pad],
            ),
            "does not fit",
        ),
        (
            gguf(0, 1, &[&key("k", 9, &nested), &pad]),
            "at most 8 nested arrays",
        ),
        (
            gguf(0, 2, &[&key("k", 0, &[1]), &key("k", 0, &[1]), &pad]),
            "duplicate name \"k\"",
        ),
        (
            gguf(0, 1, &[&key("general.alignment", 4, &word(3)), &pad]),
            "a power of two of at least 8, found 3",
        ),
    ] {
        let text = refused("gguf", &content);
        assert!(text.contains(said), "{text:?} does not contain {said:?}");
    }
    let huge = key("general.alignment", 10, &(1_u64 << 63).to_le_bytes());
    inspect("gguf", &gguf(0, 1, &[&huge])).expect("no tensors to align");
    inspect("gguf", &gguf(0, 0, &[])).expect("nothing in it");
}

#[test]
fn broken_tensors_of_gguf_are_named() {
    let pad = [0; 256];
    for (content, said) in [
        (
            gguf(1, 0, &[&tensor("w", &[1, 1, 1, 1, 1], 0, 0), &pad]),
            "at most 4 dimensions, found 5",
        ),
        (
            gguf(1, 0, &[&tensor("w", &[33], 2, 0), &pad]),
            "rows of a multiple of 32 elements for q4_0, found 33",
        ),
        (
            gguf(1, 0, &[&tensor("w", &[u64::MAX, 2], 0, 0), &pad]),
            "fits 63 bits",
        ),
        (
            gguf(1, 0, &[&tensor("w", &[4], 0, 8), &pad]),
            "expected a multiple of 32, found 8",
        ),
        (
            gguf(1, 0, &[&tensor("w", &[4096], 0, 0), &pad]),
            "extends past the end of the file",
        ),
        (
            gguf(
                2,
                0,
                &[&tensor("a", &[16], 0, 0), &tensor("b", &[4], 0, 32), &pad],
            ),
            "inside that of \"a\", which ends at 64",
        ),
        (
            gguf(
                2,
                0,
                &[&tensor("a", &[4], 0, 0), &tensor("a", &[4], 0, 32), &pad],
            ),
            "duplicate name \"a\"",
        ),
        (
            gguf(1, 0, &[&[2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe], &pad]),
            "expected a name in UTF-8",
        ),
    ] {
        let text = refused("gguf", &content);
        assert!(text.contains(said), "{text:?} does not contain {said:?}");
    }
    let info =
        inspect("gguf", &gguf(1, 0, &[&tensor("w", &[4], 99, 0), &pad])).expect("a newer type");
    assert_eq!(
        info.weight_types.keys().next().map(String::as_str),
        Some("ggml type 99")
    );
}

#[test]
fn broken_tflite_is_named() {
    let whole = bytes("dense_float.tflite");
    let mut other = whole.clone();
    other[4..8].copy_from_slice(b"TFL2");
    assert_eq!(
        refused("tflite", &other),
        "identifier at offset 4: expected TFL3, found \"TFL2\""
    );
    assert!(refused("tflite", b"TFL").contains("found a file of 3 bytes"));
    let mut outside = whole.clone();
    outside[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused("tflite", &outside).starts_with("Model at offset 0"));
    // The sizes 4, 8 occur only in the shape of the weights.
    let shape = [2_u32, 4, 8].map(u32::to_le_bytes).concat();
    let at = whole
        .windows(12)
        .position(|bytes| bytes == shape)
        .expect("a shape");
    let with = |sizes: [i32; 2]| {
        let mut changed = whole.clone();
        changed[at + 4..at + 12].copy_from_slice(&sizes.map(i32::to_le_bytes).concat());
        changed
    };
    let text = refused("tflite", &with([5, 8]));
    assert!(
        text.starts_with("Model.subgraphs[0].tensors[1].buffer at offset"),
        "{text}"
    );
    assert!(
        text.contains("a buffer of 160 bytes") && text.contains("128"),
        "{text}"
    );
    let signatures = bytes("signatures.tflite");
    let place = signatures
        .windows(7)
        .position(|bytes| bytes == b"lookup\0")
        .expect("a name");
    let mut twice = signatures.clone();
    twice[place..place + 6].copy_from_slice(b"encode");
    assert!(refused("tflite", &twice).contains("encode"));
}

#[test]
fn what_is_cut_off_is_refused() {
    for (format, name) in FIXTURES {
        let whole = bytes(name);
        // The file stays valid without the padding at its end.
        let needed = if format == "gguf" {
            whole.len() - 32
        } else {
            whole.len() - 8
        };
        for size in 0..needed {
            assert!(
                inspect(format, &whole[..size]).is_err(),
                "{name}: {size} bytes"
            );
        }
    }
}

#[test]
fn headers_of_large_files_cost_no_more_than_themselves() {
    struct Large(Vec<u8>, u64);
    impl ReadAt for Large {
        fn len(&self) -> u64 {
            self.1
        }
        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            assert!(offset < 1 << 20, "tensor data was read at {offset}");
            for (at, byte) in (offset..).zip(buffer) {
                *byte = usize::try_from(at)
                    .ok()
                    .and_then(|at| self.0.get(at))
                    .copied()
                    .unwrap_or(0);
            }
            Ok(())
        }
    }
    let gib = 5_u64 << 30;
    let header = format!("{{{}}}", entry("w", "U8", &format!("[{gib}]"), 0, gib));
    let head = safetensors(&header, 0);
    let whole = head.len() as u64 + gib;
    let of = |name: &str| {
        *FORMATS
            .iter()
            .find(|format| format.name() == name)
            .expect("a format")
    };
    let info = of("safetensors")
        .inspect(&Large(head, whole))
        .expect("the input is valid");
    assert_eq!(info.weight_bytes, gib);
    let head = gguf(1, 0, &[&tensor("w", &[1 << 30], 0, 0)]);
    let info = of("gguf")
        .inspect(&Large(head, (4 << 30) + 64))
        .expect("the input is valid");
    assert_eq!(info.weight_bytes, 4 << 30);
}
