//! Passes of ONNX Runtime's optimiser that break a valid graph, and the patterns that they break.
//!
//! Invariant: a pass is disabled by its name, only for models with the pattern that it breaks. A
//! model counts as having the pattern unless the file proves the opposite.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::StoredValues;
use crate::Provider;
use crate::tensor::{DType, Signature};
use pkgtool_model::onnx::OnnxNode;

use super::super::provider::full_name;

/// `TensorProto.DataType.DOUBLE`.
const DOUBLE: i64 = 11;

/// Maximum number of nodes to follow from a value to its origin.
const MAX_STEPS: usize = 16;

/// Nodes that another pass may remove, which makes their neighbours adjacent.
const REMOVABLE: &[&str] = &[
    "Identity", "Dropout", "Cast", "Add", "Sub", "Mul", "Div", "Slice", "Expand", "Reshape",
];

/// Nodes whose results have another type than their inputs.
const TYPE_CHANGING: &[&str] = &[
    "Cast",
    "CastLike",
    "Shape",
    "Size",
    "ArgMax",
    "ArgMin",
    "Equal",
    "Greater",
    "Less",
    "GreaterOrEqual",
    "LessOrEqual",
    "IsNaN",
    "IsInf",
    "NonZero",
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "If",
    "Loop",
    "Scan",
];

/// The origin of a value.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a value may have several of these origins"
)]
#[derive(Clone, Copy, Default)]
struct ValueOrigin {
    /// A transposition whose first axis is the second one of its input.
    turned: bool,
    /// A cast of such a transposition.
    cast: bool,
    padded: bool,
    added: bool,
}

/// The patterns, seen by the walk, that passes break.
#[derive(Default)]
pub(super) struct BrokenPasses {
    wrong: BTreeSet<&'static str>,
    made: HashMap<String, ValueOrigin>,
    /// For a removable node, its first input, by its output.
    before: HashMap<String, String>,
    /// The transposed values.
    transposed: Vec<String>,
    outputs: HashSet<String>,
    /// Shapes of `Expand` nodes.
    shapes: Vec<String>,
    quantizes: bool,
    doubles: HashSet<String>,
}

impl BrokenPasses {
    /// Records the dtypes in the signature.
    pub(super) fn start(&mut self, signature: &Signature) {
        let specs = signature.inputs.iter().chain(&signature.outputs);
        let doubles = specs.filter(|spec| spec.dtype == DType::Float64);
        self.doubles.extend(doubles.map(|spec| spec.name.clone()));
    }

    /// Records the name of an output of any graph.
    pub(super) fn output(&mut self, name: String) {
        self.outputs.insert(name);
    }

    /// Returns `true` if the file shows that the node computes in float64.
    pub(super) fn is_double(&self, node: &OnnxNode) -> bool {
        let mut names = node.inputs.iter().chain(&node.outputs);
        names.any(|name| self.doubles.contains(name))
    }

    /// Records a node; its predecessors must have been recorded.
    pub(super) fn node(&mut self, node: &OnnxNode) {
        self.check_alone(node);
        self.check_with_inputs(node);
        self.check_float64(node);
        self.remember(node);
    }

    /// Detects patterns of the node alone.
    fn check_alone(&mut self, node: &OnnxNode) {
        match node.operator.as_str() {
            // The pass merges equal nodes, even random ones.
            "Bernoulli" => {
                self.wrong.insert("CommonSubexpressionElimination");
            }
            // The pass ignores steps if axes are omitted.
            "Slice" if node.has_input(4) && !node.has_input(3) => {
                self.wrong.insert("EliminateSlice");
            }
            // A size of 0 counts as one that changes nothing.
            "Expand" => self.shapes.extend(node.inputs.get(1).cloned()),
            "QuantizeLinear" | "com.microsoft::QuantizeLinear" => self.quantizes = true,
            "Transpose" => self.transposed.extend(node.inputs.first().cloned()),
            _ => {}
        }
    }

    /// Detects patterns of the node and the nodes that compute its inputs.
    fn check_with_inputs(&mut self, node: &OnnxNode) {
        let made = |place: usize| {
            let name = node.inputs.get(place);
            name.and_then(|name| self.made.get(name))
                .copied()
                .unwrap_or_default()
        };
        match node.operator.as_str() {
            // The zeros of a pad would become the least number, which is a pool's own padding.
            "MaxPool" if made(0).padded => {
                self.wrong.insert("Pad_Fusion");
            }
            // The fused operator always normalises the last axis.
            "LayerNormalization" if made(0).added => {
                let axis = node.attribute("axis").and_then(|axis| axis.int);
                if axis.is_some_and(|axis| axis != -1) {
                    self.wrong
                        .extend(["SkipLayerNormFusion", "EmbedLayerNormFusion"]);
                }
            }
            // The pass crashes when it moves the cast before the transposition.
            "MatMul" | "com.microsoft::FusedMatMul" if made(0).cast || made(1).cast => {
                self.wrong.insert("MatmulTransposeFusion");
            }
            _ => {}
        }
    }

    /// Detects passes that read float64 numbers as float32.
    fn check_float64(&mut self, node: &OnnxNode) {
        if !self.is_double(node) {
            return;
        }
        match node.operator.as_str() {
            "Add" | "Sub" | "Mul" | "Div" => {
                self.wrong.insert("NoopElimination");
            }
            "MatMul" => {
                self.wrong.insert("MatMulScaleFusion");
            }
            "ReduceMean" => self.wrong.extend([
                "LayerNormFusionL1",
                "LayerNormFusionL2",
                "SimplifiedLayerNormFusion",
            ]),
            _ => {}
        }
    }

    fn remember(&mut self, node: &OnnxNode) {
        let operator = node.operator.as_str();
        let made_by = |name: &String| self.made.get(name).copied();
        let mut made = ValueOrigin::default();
        if REMOVABLE.contains(&operator) {
            for before in node.inputs.iter().filter_map(made_by) {
                made.turned |= before.turned;
                made.cast |= before.cast;
                made.padded |= before.padded;
                made.added |= before.added;
            }
            if let (Some(to), Some(from)) = (node.outputs.first(), node.inputs.first()) {
                self.before.insert(to.clone(), from.clone());
            }
        }
        match operator {
            "Transpose" => {
                let perm = node.attribute("perm").map(|perm| perm.ints.as_slice());
                made.turned = perm.is_some_and(|perm| perm.len() > 2 && perm[0] == 1);
            }
            "Cast" => made.cast |= made.turned,
            "Pad" => made.padded = true,
            "Add" => made.added = true,
            _ => {}
        }
        let is_double = match operator {
            "Cast" => node.int("to") == DOUBLE,
            _ => !TYPE_CHANGING.contains(&operator) && self.is_double(node),
        };
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if made.turned || made.cast || made.padded || made.added {
                self.made.insert(output.clone(), made);
            }
            if is_double {
                self.doubles.insert(output.clone());
            }
        }
    }

    /// Returns the names of the passes to disable.
    pub(super) fn wrong(mut self, values: &StoredValues, provider: Provider) -> Vec<String> {
        let is_zero = |name: &String| {
            let stored = values.get(name).and_then(|stored| stored.ints.as_deref());
            stored.is_some_and(|sizes| sizes.contains(&0))
        };
        if self.shapes.iter().any(is_zero) {
            self.wrong.insert("ExpandElimination");
        }
        let mut names: Vec<String> = self.wrong.iter().map(|name| (*name).to_owned()).collect();
        if self.quantizes && self.transposed.iter().any(|name| self.is_output(name)) {
            // One runs early, and one per provider.
            let cpu = full_name(Provider::Cpu);
            names.push("TransposeOptimizer".to_owned());
            names.push(format!("TransposeOptimizer_{cpu}"));
            if provider != Provider::Cpu {
                names.push(format!("TransposeOptimizer_{}", full_name(provider)));
            }
        }
        names
    }

    /// Returns `true` if a value comes from an output of a graph. The pass also quantises the input
    /// of a quantised transposition for all its other users.
    fn is_output(&self, name: &str) -> bool {
        let mut name = name;
        for _ in 0..MAX_STEPS {
            if self.outputs.contains(name) {
                return true;
            }
            match self.before.get(name) {
                Some(before) => name = before,
                None => return false,
            }
        }
        true
    }
}
