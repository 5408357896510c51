//! Finds products of 8-bit numbers whose sums saturate on processors without VNNI.
//!
//! On such processors the library's kernels add pairs of products of unsigned and signed bytes in
//! 16 bits. Its option `session.x64quantprecision` rewrites signed weights as unsigned ones, which
//! have exact kernels. Measured with ONNX Runtime 1.31.1, the option does not reach computed
//! weights, graphs within a node, `QLinearMatMul` of opset 21, and weights that are also inputs.
//! Operators between conversions are also exact while they are not fused into one operator on
//! bytes.
//!
//! Invariant: products that the file does not prove exact count as saturating.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::byte_sums::CONVERTED_PRODUCTS;
use crate::tensor::{DType, Signature};
use pkgtool_model::onnx::{OnnxNode, StoredTensor};

/// `TensorProto.DataType.UINT8`.
const UINT8: i64 = 2;
/// `TensorProto.DataType.INT8`.
const INT8: i64 = 3;

/// Maximum number of nodes to follow from a value to its origin.
const MAX_STEPS: usize = 16;

/// An operator's name, the input index of its unsigned side, and those of its signed sides with
/// their zero points.
type ProductSides = (&'static str, Option<usize>, &'static [(usize, usize)]);

/// Operators on bytes. The first index is the side that saturates if it is unsigned. The pairs are
/// the sides that saturate if they are signed, each with its zero point. The operator itself
/// quantises a side without an index, as unsigned.
const PRODUCTS: &[ProductSides] = &[
    ("MatMulInteger", Some(0), &[(1, 3)]),
    // The weights are the left side of its product.
    ("ConvInteger", Some(1), &[(0, 2)]),
    ("QLinearConv", Some(0), &[(3, 5)]),
    ("QLinearMatMul", Some(0), &[(3, 5)]),
    ("com.microsoft::QLinearConv", Some(0), &[(3, 5)]),
    ("com.microsoft::QGemm", Some(0), &[(3, 5)]),
    ("com.microsoft::QAttention", Some(0), &[(1, 7)]),
    ("com.microsoft::MatMulIntegerToFloat", Some(0), &[(1, 5)]),
    ("com.microsoft::DynamicQuantizeMatMul", None, &[(1, 3)]),
    (
        "com.microsoft::DynamicQuantizeLSTM",
        None,
        &[(1, 9), (2, 11)],
    ),
];

/// Operators that only move elements and are computed at load time if their inputs are stored.
const FOLDED_MOVES: &[&str] = &[
    "Flatten",
    "Identity",
    "Reshape",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Operators that only move elements, past which the library moves conversions.
const MOVES: &[&str] = &[
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Input indices of the zero points that determine the type of the result.
const RESULT_ZERO_POINTS: &[(&str, usize)] = &[
    ("QuantizeLinear", 2),
    ("com.microsoft::QuantizeLinear", 2),
    ("QLinearConv", 7),
    ("QLinearMatMul", 7),
    ("com.microsoft::QLinearConv", 7),
    ("com.microsoft::QGemm", 8),
    ("com.microsoft::QLinearAdd", 7),
    ("com.microsoft::QLinearMul", 7),
    ("com.microsoft::QLinearConcat", 1),
    ("com.microsoft::QLinearAveragePool", 4),
    ("com.microsoft::QLinearGlobalAveragePool", 4),
    ("com.microsoft::QLinearLeakyRelu", 4),
    ("com.microsoft::QLinearSigmoid", 4),
    ("com.microsoft::QLinearSoftmax", 4),
];

/// The settings that a model's products of bytes need for exact sums without VNNI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a model may have several of these needs"
)]
pub(crate) struct ByteNeeds {
    /// Is `true` if the model has such products.
    pub(crate) any: bool,
    /// Operators on bytes need signed weights to be rewritten as unsigned ones.
    pub(crate) unsigned_weights: bool,
    /// Fused operators on bytes need that, too.
    pub(crate) unsigned_fused_weights: bool,
    /// Operators must not be fused into operators on bytes.
    pub(crate) unfused: bool,
    /// Operators whose sums no setting makes exact, sorted, each once.
    pub(crate) beyond: Vec<String>,
}

impl ByteNeeds {
    /// Returns `true` if a sum saturates with default settings.
    pub(crate) fn is_needed(&self) -> bool {
        self.unsigned_weights
            || self.unsigned_fused_weights
            || self.unfused
            || !self.beyond.is_empty()
    }
}

/// A product of bytes.
struct WrongProduct {
    operator: String,
    unsigned: Option<String>,
    /// The signed sides, each with its zero point or an empty name.
    signed: Vec<[String; 2]>,
    is_nested: bool,
}

/// A product of floats that the library may fuse into one of bytes.
struct Fused {
    sides: [String; 2],
    is_nested: bool,
}

/// A conversion of bytes to floats.
struct Converted {
    bytes: String,
    scale: String,
    /// Empty if the zero point is omitted.
    zero_point: String,
}

/// The facts about bytes that the walk over the model collects.
#[derive(Default)]
pub(super) struct ByteFacts {
    types: HashMap<String, i64>,
    /// For a value, the name of another value of the same type.
    like: HashMap<String, String>,
    /// For a value, the value that it was moved from.
    moved: HashMap<String, String>,
    /// The same, for moves that are computed at load time if the source is stored.
    folded: HashMap<String, String>,
    stored: HashMap<String, Vec<u64>>,
    inputs: HashSet<String>,
    quantised: HashMap<String, String>,
    converted: HashMap<String, Converted>,
    uses: HashMap<String, u32>,
    products: Vec<WrongProduct>,
    fused: Vec<Fused>,
    ir: i64,
    opset: i64,
}

impl ByteFacts {
    /// Records the dtypes in the signature.
    pub(super) fn start(&mut self, signature: &Signature) {
        for spec in &signature.inputs {
            let kind = match spec.dtype {
                DType::Uint8 => UINT8,
                DType::Int8 => INT8,
                _ => continue,
            };
            self.types.insert(spec.name.clone(), kind);
        }
    }

    /// Records the name of an input of the main graph.
    pub(super) fn input(&mut self, name: String) {
        self.inputs.insert(name);
    }

    /// Records the IR version of the file.
    pub(super) fn ir(&mut self, version: i64) {
        self.ir = version;
    }

    /// Records the version of ONNX's own operator set.
    pub(super) fn opset(&mut self, version: i64) {
        self.opset = self.opset.max(version);
    }

    /// Records a stored tensor of any graph.
    pub(super) fn store(&mut self, name: &str, stored: &StoredTensor) {
        self.types.insert(name.to_owned(), stored.dtype);
        self.stored.insert(name.to_owned(), stored.dims.clone());
    }

    /// Records the name of an output of any graph.
    pub(super) fn output(&mut self, name: &str) {
        self.used(name);
    }

    /// Records a node.
    pub(super) fn node(&mut self, node: &OnnxNode) {
        for name in node.inputs.iter().filter(|name| !name.is_empty()) {
            self.used(name);
        }
        self.result(node);
        self.product(node);
    }

    fn used(&mut self, name: &str) {
        let uses = self.uses.entry(name.to_owned()).or_default();
        *uses = uses.saturating_add(1);
    }

    /// Records the origin of a node's first output.
    fn result(&mut self, node: &OnnxNode) {
        let Some(output) = node.outputs.first().cloned() else {
            return;
        };
        let operator = node.operator.as_str();
        if let Some((_, place)) = RESULT_ZERO_POINTS
            .iter()
            .find(|(name, _)| *name == operator)
        {
            if operator.ends_with("QuantizeLinear") {
                let from = node.inputs.first().cloned().unwrap_or_default();
                self.quantised.insert(output.clone(), from);
            }
            match node.attribute("output_dtype").and_then(|it| it.int) {
                Some(kind) if kind != 0 => {
                    self.types.insert(output, kind);
                }
                _ if node.has_input(*place) => {
                    self.like.insert(output, node.inputs[*place].clone());
                }
                _ => {
                    self.types.insert(output, UINT8);
                }
            }
            return;
        }
        match operator {
            "DynamicQuantizeLinear" => {
                self.types.insert(output, UINT8);
            }
            "Cast" => {
                self.types.insert(output, node.int("to"));
            }
            "DequantizeLinear" | "com.microsoft::DequantizeLinear" => {
                let input = |place: usize| node.inputs.get(place).cloned().unwrap_or_default();
                let converted = Converted {
                    bytes: input(0),
                    scale: input(1),
                    zero_point: input(2),
                };
                self.converted.insert(output, converted);
            }
            _ => {
                if let Some(input) = node.inputs.first() {
                    if MOVES.contains(&operator) {
                        self.moved.insert(output.clone(), input.clone());
                    }
                    if FOLDED_MOVES.contains(&operator) {
                        self.folded.insert(output.clone(), input.clone());
                    }
                    self.like.insert(output, input.clone());
                }
            }
        }
    }

    fn product(&mut self, node: &OnnxNode) {
        let operator = node.operator.as_str();
        let input = |place: usize| node.inputs.get(place).cloned().unwrap_or_default();
        if let Some((_, unsigned, signed)) = PRODUCTS.iter().find(|it| it.0 == operator) {
            self.products.push(WrongProduct {
                operator: operator.to_owned(),
                unsigned: unsigned.map(input),
                signed: signed
                    .iter()
                    .map(|(side, zero)| [input(*side), input(*zero)])
                    .collect(),
                is_nested: node.is_nested,
            });
        } else if CONVERTED_PRODUCTS.contains(&operator) {
            self.fused.push(Fused {
                sides: [input(0), input(1)],
                is_nested: node.is_nested,
            });
        }
    }

    /// Returns the settings that the model needs.
    pub(super) fn needs(&self) -> ByteNeeds {
        let mut needs = ByteNeeds::default();
        let mut beyond = BTreeSet::new();
        for product in &self.products {
            needs.any = true;
            let unsigned = product.unsigned.as_deref();
            if unsigned.is_some_and(|name| self.kind(name) == Some(INT8)) {
                continue;
            }
            for [name, zero_point] in &product.signed {
                if self.kind(name) == Some(UINT8) {
                    continue;
                }
                if self.is_rewritten(product, name, zero_point) {
                    needs.unsigned_weights = true;
                } else {
                    beyond.insert(product.operator.clone());
                }
            }
        }
        for fused in &self.fused {
            self.add_fused_needs(fused, &mut needs);
        }
        needs.beyond = beyond.into_iter().collect();
        needs
    }

    /// Returns `true` if the library's option rewrites these weights.
    fn is_rewritten(&self, product: &WrongProduct, name: &str, zero_point: &str) -> bool {
        let covers = match product.operator.as_str() {
            "ConvInteger" => false,
            "QLinearMatMul" => self.opset < 21,
            _ => true,
        };
        covers && !product.is_nested && self.is_weight(name) && self.is_known(zero_point)
    }

    /// Adds the needs of a product of floats that were converted from bytes.
    fn add_fused_needs(&self, fused: &Fused, needs: &mut ByteNeeds) {
        let [Some((left, _)), Some((right, is_direct))] =
            [0, 1].map(|side| self.converted(&fused.sides[side]))
        else {
            return;
        };
        let kind = self.kind(&right.bytes);
        if self
            .kind(&left.bytes)
            .is_some_and(|it| it != INT8 && it != UINT8)
            || kind.is_some_and(|it| it != INT8 && it != UINT8)
        {
            return;
        }
        needs.any = true;
        if kind == Some(UINT8) {
            return;
        }
        let from = self.quantised.get(&right.bytes);
        let is_weight = self.is_weight(&right.bytes) || from.is_some_and(|it| self.is_weight(it));
        if is_weight {
            // With this option the library fails if it has to create zero points for several
            // channels.
            let zero_point = &right.zero_point;
            let is_fine = !zero_point.is_empty() || self.is_single(&right.scale);
            if is_fine && self.is_known(zero_point) && !fused.is_nested {
                needs.unsigned_fused_weights = true;
            } else {
                needs.unfused = true;
            }
            return;
        }
        // The library itself makes them unsigned if nothing else uses them.
        let once = |name: &str| self.uses.get(name) == Some(&1);
        let is_made_unsigned = from.is_some() && is_direct && once(&right.bytes);
        if !(is_made_unsigned && once(&fused.sides[1])) {
            needs.unfused = true;
        }
    }

    /// Returns the conversion that a value comes from, and `true` if the value is its direct
    /// result.
    fn converted(&self, name: &str) -> Option<(&Converted, bool)> {
        let mut name = name;
        for step in 0..MAX_STEPS {
            if let Some(found) = self.converted.get(name) {
                return Some((found, step == 0));
            }
            name = self.moved.get(name)?;
        }
        None
    }

    /// Returns the element type of a value, if the file shows it.
    fn kind(&self, name: &str) -> Option<i64> {
        let mut name = name;
        for _ in 0..MAX_STEPS {
            if let Some(kind) = self.types.get(name) {
                return Some(*kind);
            }
            name = self.like.get(name)?;
        }
        None
    }

    /// Returns `true` if a zero point is omitted or a weight.
    fn is_known(&self, zero_point: &str) -> bool {
        zero_point.is_empty() || self.is_weight(zero_point)
    }

    /// Returns `true` if a value is stored, or moved from a stored one, and callers cannot replace
    /// it. Before IR version 4 every stored tensor was also listed as an input.
    fn is_weight(&self, name: &str) -> bool {
        let mut name = name;
        for _ in 0..MAX_STEPS {
            if self.stored.contains_key(name) {
                return self.ir < 4 || !self.inputs.contains(name);
            }
            match self.folded.get(name) {
                Some(before) => name = before,
                None => return false,
            }
        }
        false
    }

    /// Returns `true` if a stored tensor has one element.
    fn is_single(&self, name: &str) -> bool {
        let dims = self.stored.get(name);
        dims.is_some_and(|dims| dims.iter().all(|size| *size == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(operator: &str, inputs: &[&str], output: &str) -> OnnxNode {
        OnnxNode {
            operator: operator.to_owned(),
            inputs: inputs.iter().map(|name| (*name).to_owned()).collect(),
            outputs: vec![output.to_owned()],
            ..OnnxNode::default()
        }
    }

    /// Returns the needs of nodes where `a` has unsigned bytes, and `w` and `zero` are stored as
    /// signed ones.
    fn needs(opset: i64, nodes: &[OnnxNode]) -> ByteNeeds {
        let mut bytes = ByteFacts::default();
        bytes.ir(10);
        bytes.opset(opset);
        bytes.types.insert("a".to_owned(), UINT8);
        for node in nodes {
            bytes.node(node);
        }
        // Files may list them after the nodes.
        for (name, dtype, dims) in [
            ("w", INT8, vec![4, 4]),
            ("zero", INT8, Vec::new()),
            ("scale", 1, Vec::new()),
            ("scales", 1, vec![4]),
        ] {
            let stored = StoredTensor {
                dtype,
                dims,
                ..StoredTensor::default()
            };
            bytes.store(name, &stored);
        }
        bytes.needs()
    }

    #[test]
    fn stored_weights_are_rewritten_where_the_option_reaches_them() {
        let product = |weights: &str| node("MatMulInteger", &["a", weights], "y");
        assert!(needs(18, &[product("w")]).unsigned_weights);
        let turned = [node("Transpose", &["w"], "t"), product("t")];
        assert!(needs(18, &turned).unsigned_weights);
        let looked_up = [node("Gather", &["w", "a"], "g"), product("g")];
        assert_eq!(needs(18, &looked_up).beyond, ["MatMulInteger"]);
        let mut nested = product("w");
        nested.is_nested = true;
        assert_eq!(needs(18, &[nested]).beyond, ["MatMulInteger"]);
        let zero = node("MatMulInteger", &["a", "w", "", "b"], "y");
        assert_eq!(needs(18, &[zero]).beyond, ["MatMulInteger"]);
    }

    #[test]
    fn the_option_does_not_know_newer_products() {
        let inputs = ["a", "scale", "za", "w", "scale", "zero", "scale", "zy"];
        let product = || node("QLinearMatMul", &inputs, "y");
        assert!(needs(20, &[product()]).unsigned_weights);
        assert_eq!(needs(21, &[product()]).beyond, ["QLinearMatMul"]);
    }

    #[test]
    fn products_between_conversions_need_no_more_than_they_must() {
        let left = || node("DequantizeLinear", &["a", "scale", "za"], "fa");
        let product = || node("MatMul", &["fa", "fw"], "y");
        let with = |inputs: &[&str]| {
            let right = node("DequantizeLinear", inputs, "fw");
            needs(18, &[left(), right, product()])
        };
        assert!(with(&["w", "scale", "zero"]).unsigned_fused_weights);
        assert!(with(&["w", "scale"]).unsigned_fused_weights);
        // The option fails for several channels without zero points.
        assert!(with(&["w", "scales"]).unfused);
        assert!(with(&["other", "scale"]).unfused);
        assert!(!needs(18, &[left(), product()]).any);
    }

    #[test]
    fn computed_bytes_are_fine_where_only_the_product_looks_at_them() {
        let nodes = |more: &[OnnxNode]| {
            let mut nodes = vec![
                node("DequantizeLinear", &["a", "scale"], "fa"),
                node("QuantizeLinear", &["x", "scale", "zero"], "q"),
                node("DequantizeLinear", &["q", "scale", "zero"], "fq"),
                node("MatMul", &["fa", "fq"], "y"),
            ];
            nodes.extend(more.iter().map(|it| node(&it.operator, &["q"], "z")));
            needs(18, &nodes)
        };
        assert!(!nodes(&[]).is_needed());
        assert!(nodes(&[node("Cast", &[], "z")]).unfused);
    }
}
