//! Compares the reader's result for every real program with an independent reading of it
//! (`expect.json`).

use std::fs::File;
use std::path::Path;

use pkgtool_base::source::FileSource;
use pkgtool_model::{
    Delegate, Dim, Dynamism, Method, ModelInfo, ModelValue, Segment, TensorInfo, ValueKind,
};
use serde_json::Value as Json;

use super::{HEADERS, fixture, inspect};

fn program(name: &str) -> ModelInfo {
    let Some((_, len)) = HEADERS.iter().find(|(known, _)| *known == name) else {
        let source = FileSource::open(&fixture(&format!("{name}.pte"))).expect("the fixture");
        return inspect(&source).expect("a sound program");
    };
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::copy(fixture(&format!("{name}.head.pte")), file.path()).expect("the header");
    let whole = File::options().write(true).open(file.path());
    whole.and_then(|file| file.set_len(*len)).expect("a hole");
    inspect(&FileSource::open(file.path()).expect("the file")).expect("a sound program")
}

fn expectations() -> Json {
    let text = std::fs::read_to_string(fixture("expect.json")).expect("the expectations");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn every_program_reads_as_expected() {
    let expected = expectations();
    let programs = expected.as_object().expect("an object");
    assert_eq!(programs.len(), 14);
    for (name, methods) in programs {
        let info = program(name);
        assert_eq!(
            (info.format, info.format_version.as_str()),
            ("executorch", "ET12")
        );
        assert!(info.names_methods);
        let methods = methods.as_object().expect("an object");
        assert_eq!(info.methods.len(), methods.len(), "{name}");
        for (method, expected) in methods {
            let found = info.method(method).expect("the method");
            check_method(found, expected, &format!("{name}.{method}"));
        }
    }
}

fn check_method(found: &Method, expected: &Json, name: &str) {
    assert_eq!(
        Json::from(found.constant),
        expected["constant_method"],
        "{name}"
    );
    let ids: Vec<&str> = found
        .delegates
        .iter()
        .map(|delegate| delegate.id.as_str())
        .collect();
    assert_eq!(Json::from(ids), expected["delegates"], "{name}");
    let calls: u64 = found.operators.values().sum();
    assert_eq!(Json::from(calls), expected["kernel_calls"], "{name}");
    for (side, values) in [("inputs", &found.inputs), ("outputs", &found.outputs)] {
        let expected = expected[side].as_array().expect("a list");
        assert_eq!(values.len(), expected.len(), "{name} {side}");
        for (value, expected) in values.iter().zip(expected) {
            check_value(value, expected, &format!("{name} {side}"));
        }
    }
}

fn check_value(found: &ModelValue, expected: &Json, name: &str) {
    assert_eq!(found.name, None);
    let (kind, value): (&str, Json) = match &found.kind {
        ValueKind::Tensor { info, .. } => {
            assert_eq!(info.element.name(), expected["dtype"], "{name}");
            let dims = info.dims.as_ref().expect("a rank");
            let sizes: Vec<u64> = dims.iter().map(stored_size).collect();
            assert_eq!(Json::from(sizes), expected["serialized_sizes"], "{name}");
            let dynamism = match info.dynamism {
                Dynamism::Static => "STATIC",
                Dynamism::Bounded => "DYNAMIC_BOUND",
                Dynamism::Symbolic => "not a dynamism of programs",
                Dynamism::Unbounded => "DYNAMIC_UNBOUND",
            };
            assert_eq!(dynamism, expected["dynamism"], "{name}");
            assert_eq!(
                Json::from(info.config_shape()),
                expected["config_shape"],
                "{name}"
            );
            return;
        }
        ValueKind::Int(value) => ("Int", (*value).into()),
        ValueKind::Double(value) => ("Double", (*value).into()),
        ValueKind::Bool(value) => ("Bool", (*value).into()),
        ValueKind::String(value) => ("String", value.as_str().into()),
        ValueKind::None => ("None", Json::Null),
        other => (other.name(), Json::Null),
    };
    assert_eq!(kind, expected["non_tensor"], "{name}");
    assert_eq!(value, expected["value"], "{name}");
}

fn stored_size(dim: &Dim) -> u64 {
    match dim {
        Dim::Fixed(size) | Dim::Maybe { bound: size, .. } => *size,
        Dim::Dynamic { bound, .. } => bound.expect("a bound"),
    }
}

#[test]
fn segments_delegates_and_weights_are_measured() {
    let info = program("dyn_batch_xnnpack_fp32");
    let segment = |name: &str, offset, size| Segment {
        name: name.to_owned(),
        offset,
        size,
    };
    let expected = [
        segment("program", 0, 2048),
        segment("delegate XnnpackBackend", 2048, 1264),
        segment("delegate XnnpackBackend", 3328, 720),
        segment("named data 4534fc6bccd2…", 4096, 864),
        segment("named data dfafa3a59fb9…", 4992, 32),
        segment("named data 8336b33aa6e6…", 5120, 128),
        segment("named data 365a4f901d08…", 5248, 16),
    ];
    assert_eq!(info.segments, expected);
    assert_eq!(info.weight_bytes, 864 + 32 + 128 + 16);
    let delegate = |size| Delegate {
        id: "XnnpackBackend".to_owned(),
        payload_bytes: Some(size),
    };
    let forward = info.method("forward").expect("the method exists");
    assert_eq!(forward.delegates, [delegate(1264), delegate(720)]);
    let operators: Vec<(&str, u64)> = forward
        .operators
        .iter()
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    let expected = [
        ("aten::sym_size.int", 1),
        ("executorch_prim::et_view.default", 1),
    ];
    assert_eq!(operators, expected);
    assert_eq!(program("llama_tiny_kv_xnnpack_fp32").segments.len(), 1 + 28);
}

#[test]
fn a_constant_tensor_comes_with_its_elements() {
    let info = program("multi_method_xnnpack_fp32");
    let bounds = info.method("get_bounds").expect("get_bounds");
    let ValueKind::Tensor { data, .. } = &bounds.outputs[0].kind else {
        panic!("a tensor");
    };
    let from_runtime: Vec<Json> = vec![1.into(), 32.into(), 1.into()];
    assert_eq!(data.as_ref(), Some(&from_runtime));
    assert_eq!(info.segments[1].name, "constants");
    let names: Vec<&str> = info
        .methods
        .iter()
        .map(|method| method.name.as_str())
        .collect();
    let in_order = [
        "decode",
        "encode",
        "get_hidden",
        "get_scale",
        "get_name",
        "use_bias",
        "get_bounds",
    ];
    assert_eq!(names, in_order);
}

#[test]
fn external_tensors_are_counted() {
    let info = program("external_ptd");
    let [external] = info.external.as_slice() else {
        panic!("one kind of data");
    };
    assert_eq!((&external.location, external.tensors), (&None, 2));
    let named = external.named.iter().map(|named| {
        let tensor = named.tensor.as_ref().map(ToString::to_string);
        (named.name.as_str(), tensor.unwrap_or_default())
    });
    let named: Vec<_> = named.collect();
    let expected = [("bias", "float32[4]"), ("weight", "float32[4, 8]")];
    assert_eq!(named, expected.map(|(name, kind)| (name, kind.to_owned())));
    assert_eq!(info.weight_bytes, 0);
    assert_eq!(info.segments.len(), 1);
    assert!(program("add_linear_portable").external.is_empty());
}

#[test]
fn a_bundled_program_is_read_through() {
    let path = fixture("bundled_program.bpte");
    let source = FileSource::open(&path).expect("the fixture");
    let info = pkgtool_model::inspect(Path::new("no-name"), &source)
        .expect("a sound program")
        .expect("recognised by its first bytes");
    let metadata = [("bundled program", "BP08"), ("test cases of forward", "1")];
    assert_eq!(
        info.metadata,
        metadata.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    let forward = info.method("forward").expect("the method exists");
    let shape = |value: &ModelValue| value.tensor().and_then(TensorInfo::config_shape);
    assert_eq!(shape(&forward.inputs[0]), Some(vec![1, 8]));
    assert_eq!(shape(&forward.outputs[0]), Some(vec![1, 4]));
    assert_eq!(info.segments[0].offset, 0x40);
    assert_eq!(info.segments[1].offset, 0x40 + 0x600);
    assert_eq!(info.weight_bytes, 0x90);
}
