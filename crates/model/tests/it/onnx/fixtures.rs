//! The ONNX reader returns the expected contents of each fixture.

use std::path::Path;

use pkgtool_base::package::DType;
use pkgtool_base::source::FileSource;
use pkgtool_model::{Dim, Dynamism, ElementType, ExternalData, ModelInfo, ModelValue, ValueKind};

use super::{FIXTURES, bytes, format, inspect, path};

fn read(name: &str) -> ModelInfo {
    let path = path(name);
    let source = FileSource::open(&path).expect("a fixture");
    let info = pkgtool_model::inspect(&path, &source).expect("a sound model");
    info.expect("claimed by its extension")
}

fn names(values: &[ModelValue]) -> Vec<&str> {
    let names = values.iter().map(|value| value.name.as_deref());
    names.map(|name| name.expect("a name")).collect()
}

fn operators(info: &ModelInfo) -> Vec<(&str, u64)> {
    let operators = info.methods[0].operators.iter();
    operators.map(|(name, &n)| (name.as_str(), n)).collect()
}

fn dynamic(name: Option<&str>) -> Dim {
    Dim::Dynamic {
        bound: None,
        name: name.map(str::to_owned),
        allowed: None,
    }
}

#[test]
fn static_network() {
    let info = read("mlp");
    assert_eq!(info.format, "onnx");
    assert_eq!(info.format_version, "IR 10, opset 18");
    assert_eq!(info.producer.as_deref(), Some("pytorch 2.5.1"));
    assert!(!info.names_methods);
    assert_eq!(info.methods.len(), 1);
    assert_eq!(info.methods[0].name, "forward");
    assert!(!info.methods[0].constant);
    assert_eq!(names(&info.methods[0].inputs), ["x"]);
    assert_eq!(names(&info.methods[0].outputs), ["y"]);
    let x = info.methods[0].inputs[0].tensor().expect("a tensor");
    assert_eq!(x.element, ElementType::Known(DType::Float32));
    assert_eq!(x.dims, Some(vec![Dim::Fixed(1), Dim::Fixed(4)]));
    assert_eq!(x.dynamism, Dynamism::Static);
    assert_eq!(operators(&info), [("Gemm", 2), ("Relu", 1)]);
    assert_eq!(info.weight_bytes, (32 + 8 + 16) * 4);
    assert!(info.segments.is_empty() && info.external.is_empty());
    let metadata: Vec<_> = info
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        metadata,
        [
            ("graph", "mlp"),
            ("domain", "org.example"),
            ("model_version", "3"),
            ("doc_string", "20 bytes"),
            ("opset ai.onnx", "18"),
            ("opset com.microsoft", "1"),
            ("property author", "nobody"),
            ("property task", "none"),
        ]
    );
}

#[test]
fn dynamic_dimensions() {
    let info = read("dynamic");
    let [x, old] = &info.methods[0].inputs[..] else {
        panic!("two inputs");
    };
    let x = x.tensor().expect("a tensor");
    let dims = vec![dynamic(Some("batch")), dynamic(None), Dim::Fixed(3)];
    assert_eq!(x.dims.as_ref(), Some(&dims));
    assert_eq!(x.dynamism, Dynamism::Symbolic);
    assert_eq!(x.config_shape(), Some(vec![-1, -1, 3]));
    let old = old.tensor().expect("a tensor");
    assert_eq!(old.dims, Some(vec![dynamic(None), Dim::Fixed(0)]));
}

#[test]
fn initializers_are_not_inputs() {
    let info = read("initializer_inputs");
    assert_eq!(info.format_version, "IR 3, opset 8");
    assert_eq!(names(&info.methods[0].inputs), ["x"]);
    // Four weights, plus two values of a sparse tensor and their two indices.
    assert_eq!(info.weight_bytes, 4 * 4 + 2 * 4 + 2 * 8);
}

#[test]
fn external_data() {
    let info = read("external");
    let file = |location: &str, needs_bytes, tensors| ExternalData {
        location: Some(location.to_owned()),
        needs_bytes: Some(needs_bytes),
        tensors,
        named: Vec::new(),
    };
    let files = [
        file("sub/more.data", 4099, 1),
        file("external.data", 64 + 30, 2),
    ];
    assert_eq!(info.external, files);
    assert_eq!(info.weight_bytes, 0);
    let data = path("external").with_extension("data");
    assert_eq!(data.metadata().expect("a file").len(), 94);
}

#[test]
fn subgraphs_and_functions() {
    let info = read("subgraphs");
    assert_eq!(
        operators(&info),
        [
            ("Add", 3),
            ("Cast", 1),
            ("Constant", 1),
            ("If", 1),
            ("org.example::Twice", 1)
        ]
    );
    assert_eq!(info.weight_bytes, 8 + 16);
    let function = ("function".to_owned(), "org.example::Twice".to_owned());
    assert!(info.metadata.contains(&function));
    assert_eq!(names(&info.methods[0].outputs), ["y"]);
}

#[test]
fn element_types() {
    let info = read("dtypes");
    let inputs = info.methods[0].inputs.iter();
    let names: Vec<_> = inputs
        .map(|input| input.tensor().expect("a tensor").element.name())
        .collect();
    let expected = "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 \
                    float64 uint32 uint64 complex64 complex128 bfloat16 float8e4m3fn \
                    float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4 float4e2m1 float8e8m0 \
                    uint2 int2 float6e2m3 float6e3m2";
    assert_eq!(names.join(" "), expected);
    let known = info.methods[0].inputs.iter().filter(|input| {
        let element = &input.tensor().expect("a tensor").element;
        matches!(element, ElementType::Known(_))
    });
    assert_eq!(known.count(), DType::configurable().count());
}

#[test]
fn other_kinds_of_values() {
    let info = read("kinds");
    let kinds: Vec<_> = info.methods[0]
        .inputs
        .iter()
        .map(|input| match &input.kind {
            ValueKind::Other(kind) => kind.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        ["sequence", "optional", "map", "sparse_tensor", "opaque"]
    );
}

#[test]
fn scalars_and_unknown_ranks() {
    let info = read("shapes");
    let tensors: Vec<_> = info.methods[0]
        .inputs
        .iter()
        .map(|input| input.tensor().expect("a tensor"))
        .collect();
    assert_eq!(tensors[0].dims, Some(vec![]));
    assert_eq!(tensors[0].dynamism, Dynamism::Static);
    assert_eq!(tensors[1].dims, None);
    assert_eq!(tensors[1].dynamism, Dynamism::Unbounded);
    assert_eq!(tensors[1].config_shape(), None);
}

#[test]
fn claims() {
    assert!(format().matches(Path::new("a/Model.ONNX"), b""));
    assert!(!format().matches(Path::new("model.ort"), b""));
    assert!(!format().matches(Path::new("onnx"), b"\x08\x0a"));
    for name in FIXTURES {
        // Content detection requires that a graph begins with a node.
        let claimed = format().matches(Path::new("model"), &bytes(name));
        assert_eq!(claimed, name != "dtypes", "{name}");
    }
}

#[test]
fn long_properties_are_cut() {
    use pkgtool_testing::onnx::{model, part};
    let long = "é".repeat(100_000);
    let entry = part(
        14,
        &[&part(1, &[b"vocabulary"]), &part(2, &[long.as_bytes()])],
    );
    let info = inspect(&[model(&[]), entry].concat()).expect("a sound model");
    let (key, value) = info.metadata.last().expect("a property");
    assert_eq!(key, "property vocabulary");
    assert_eq!(value.chars().count(), 2049);
    assert!(value.ends_with("é…"));
}
