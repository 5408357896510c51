//! Small hand-written ONNX models whose work depends on their inputs.

use std::fs;
use std::path::PathBuf;

use pkgtool_engine::Carrying;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_model as model;
use pkgtool_serve::service::engine::EndpointModel;
use pkgtool_text::decoder::DecoderModel;
use tempfile::TempDir;

use crate::support::graph::node;
use pkgtool_testing::onnx::{int, model as onnx, part};

/// Edge of a matrix with which [`powers`] runs for longer than any test.
pub(super) const ENDLESS: u64 = 4000;

/// Number of matrix products in [`powers`].
const PRODUCTS: usize = 100;

const FLOAT: u64 = 1;
const INT64: u64 = 7;

/// A temporary model file.
pub(super) struct Model {
    directory: TempDir,
}

impl Model {
    fn new(graph: &[&[u8]]) -> Self {
        Self::of(&onnx(graph))
    }

    /// Writes a model file with these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let directory = TempDir::new().expect("a directory");
        fs::write(directory.path().join("m.onnx"), bytes).expect("a file");
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("m.onnx")
    }

    pub(super) fn endpoint(&self) -> EndpointModel {
        of_file(self.path())
    }
}

/// Returns the endpoint's description of a model file.
pub(super) fn of_file(path: PathBuf) -> EndpointModel {
    let (info, _) = model::open(&path).expect("it is a model");
    EndpointModel {
        service: "test".to_owned(),
        format: info.format,
        signature: Signature::of(&info.methods[0], None).expect("it takes tensors"),
        backend: None,
        weight_bytes: info.weight_bytes,
        carrying: Carrying::default(),
        first: Vec::new(),
        model: path,
    }
}

/// Returns a decoder that carries its keys and values from step to step.
pub(super) fn decoder() -> EndpointModel {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/decoders");
    let mut model = of_file(PathBuf::from(fixtures).join("cached.onnx"));
    let (info, _) = model::open(&model.model).expect("it is a model");
    let found = DecoderModel::recognise(&model.model, &info, &model.signature, None);
    model.carrying = found.expect("it is a decoder").carrying;
    model
}

/// Returns a square matrix with this edge for [`powers`].
pub(super) fn endless(size: u64) -> Tensor {
    Tensor::zeros(DType::Float32, vec![size, size]).expect("there is memory for it")
}

/// Returns the model `y = -x` on `[n, 2]`, which can be batched.
pub(super) fn negation() -> Model {
    Model::new(&[
        &node("Neg", &["x"], "y", &[]),
        &value(11, "x", FLOAT, &["n", "2"]),
        &value(12, "y", FLOAT, &["n", "2"]),
    ])
}

/// Returns the model `y = -x` on `[n, m]`.
pub(super) fn open_negation() -> Model {
    Model::new(&[
        &node("Neg", &["x"], "y", &[]),
        &value(11, "x", FLOAT, &["n", "m"]),
        &value(12, "y", FLOAT, &["n", "m"]),
    ])
}

/// Returns cumulative sums along the first dimension of `[n, 2]`, which cannot be batched.
pub(super) fn running_sum() -> Model {
    let axis = [
        int(2, INT64),
        part(8, &[b"axis"]),
        part(9, &[&0_i64.to_le_bytes()]),
    ];
    Model::new(&[
        &node("CumSum", &["x", "axis"], "y", &[]),
        &part(5, &[&axis.concat()]),
        &value(11, "x", FLOAT, &["n", "2"]),
        &value(12, "y", FLOAT, &["n", "2"]),
    ])
}

/// Returns softmax over the first dimension of `[n, 2]`, which cannot be batched.
pub(super) fn softmax() -> Model {
    let axis = part(5, &[&part(1, &[b"axis"]), &int(3, 0), &int(20, 2)]);
    Model::new(&[
        &node("Softmax", &["x"], "y", &[&axis]),
        &value(11, "x", FLOAT, &["n", "2"]),
        &value(12, "y", FLOAT, &["n", "2"]),
    ])
}

/// Returns a lookup in a table of ten rows, `[n]` to `[n, 2]`. A batch fails if any index is out of
/// range.
pub(super) fn table() -> Model {
    let rows: Vec<u8> = (0..10_u8)
        .flat_map(|row| [f32::from(row) * 10.0, f32::from(row) * 10.0 + 1.0])
        .flat_map(f32::to_le_bytes)
        .collect();
    let table = [
        int(1, 10),
        int(1, 2),
        int(2, FLOAT),
        part(8, &[b"table"]),
        part(9, &[&rows]),
    ];
    Model::new(&[
        &node("Gather", &["table", "x"], "y", &[]),
        &part(5, &[&table.concat()]),
        &value(11, "x", INT64, &["n"]),
        &value(12, "y", FLOAT, &["n", "2"]),
    ])
}

/// Returns a high power of a square matrix by repeated products; its run time grows with the
/// matrix.
pub(super) fn powers() -> Model {
    let name = |place: usize| match place {
        0 => "x".to_owned(),
        PRODUCTS => "y".to_owned(),
        place => format!("p{place}"),
    };
    let mut graph = Vec::new();
    for place in 0..PRODUCTS {
        let (from, to) = (name(place), name(place + 1));
        graph.extend(node("MatMul", &[&from, "x"], &to, &[]));
    }
    Model::new(&[
        &graph,
        &value(11, "x", FLOAT, &["n", "n"]),
        &value(12, "y", FLOAT, &["n", "n"]),
    ])
}

/// Returns `[n, 1] x [1, m]`: small inputs with an output of any size.
pub(super) fn outer_product() -> Model {
    Model::new(&[
        &node("MatMul", &["a", "b"], "y", &[]),
        &value(11, "a", FLOAT, &["n", "1"]),
        &value(11, "b", FLOAT, &["1", "m"]),
        &value(12, "y", FLOAT, &["n", "m"]),
    ])
}

/// Returns a standard operator with sizes that no engine loads, because it requires matrices.
pub(super) fn unknown_operator() -> Model {
    Model::new(&[
        &node("Det", &["x"], "y", &[]),
        &value(11, "x", FLOAT, &["n"]),
        &value(12, "y", FLOAT, &["n"]),
    ])
}

/// Encodes an input (field 11) or output (field 12); a size that is not a number becomes a symbol.
fn value(field: u64, name: &str, element: u64, shape: &[&str]) -> Vec<u8> {
    let sizes: Vec<Vec<u8>> = shape
        .iter()
        .map(|size| match size.parse::<u64>() {
            Ok(size) => part(1, &[&int(1, size)]),
            Err(_) => part(1, &[&part(2, &[size.as_bytes()])]),
        })
        .collect();
    let tensor = [int(1, element), part(2, &[&sizes.concat()])].concat();
    let kind = part(2, &[&part(1, &[&tensor])]);
    part(field, &[&part(1, &[name.as_bytes()]), &kind])
}
