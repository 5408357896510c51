//! Rewrites of ONNX Runtime's optimiser that make a right graph wrong, and what they get wrong.
//!
//! Invariant: each is switched off by its name, only for models that have the pattern it gets wrong;
//! where a file does not show that it has not, it counts as having it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Values;
use crate::engine::Provider;
use crate::model::onnx::Node;
use crate::tensor::{DType, Signature};

use super::super::provider::full_name;

/// `TensorProto.DataType.DOUBLE`.
const DOUBLE: i64 = 11;

/// Longest way that is followed from a value to where it comes from.
const MAX_STEPS: usize = 16;

/// Nodes that another rewrite may take away, so that what is before them meets what is after them.
const TAKEN_AWAY: &[&str] = &[
    "Identity", "Dropout", "Cast", "Add", "Sub", "Mul", "Div", "Slice", "Expand", "Reshape",
];

/// Nodes whose results have not the type of what they take.
const OF_OTHER_TYPE: &[&str] = &[
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

/// What made a value.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a value may have been made by several of these"
)]
#[derive(Clone, Copy, Default)]
struct Made {
    /// A transposition whose first axis is the second one of its input.
    turned: bool,
    /// A cast of such a one.
    cast: bool,
    padded: bool,
    added: bool,
}

/// What the walk has seen that a rewrite gets wrong.
#[derive(Default)]
pub(super) struct Rewrites {
    wrong: BTreeSet<&'static str>,
    made: HashMap<String, Made>,
    /// The first input of what may be taken away, by its output.
    before: HashMap<String, String>,
    /// What is transposed.
    transposed: Vec<String>,
    outputs: HashSet<String>,
    /// Shapes that something is expanded to.
    shapes: Vec<String>,
    quantizes: bool,
    doubles: HashSet<String>,
}

impl Rewrites {
    /// Takes what the signature tells of types.
    pub(super) fn start(&mut self, signature: &Signature) {
        let specs = signature.inputs.iter().chain(&signature.outputs);
        let doubles = specs.filter(|spec| spec.dtype == DType::Float64);
        self.doubles.extend(doubles.map(|spec| spec.name.clone()));
    }

    /// Takes the name of an output of any graph.
    pub(super) fn output(&mut self, name: String) {
        self.outputs.insert(name);
    }

    /// Whether the file shows that the node computes in float64.
    pub(super) fn is_double(&self, node: &Node) -> bool {
        let mut names = node.inputs.iter().chain(&node.outputs);
        names.any(|name| self.doubles.contains(name))
    }

    /// Looks at a node; those before it have been looked at.
    pub(super) fn node(&mut self, node: &Node) {
        self.alone(node);
        self.after_others(node);
        self.in_float64(node);
        self.remember(node);
    }

    /// What the node itself shows.
    fn alone(&mut self, node: &Node) {
        match node.operator.as_str() {
            // Equal nodes are made one, samples of chance too.
            "Bernoulli" => {
                self.wrong.insert("CommonSubexpressionElimination");
            }
            // Steps are not looked at where axes are left out.
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

    /// What the node shows together with those that made its inputs.
    fn after_others(&mut self, node: &Node) {
        let made = |place: usize| {
            let name = node.inputs.get(place);
            name.and_then(|name| self.made.get(name))
                .copied()
                .unwrap_or_default()
        };
        match node.operator.as_str() {
            // The zeros of a pad become the least number, as a pool's own padding is.
            "MaxPool" if made(0).padded => {
                self.wrong.insert("Pad_Fusion");
            }
            // What is fused normalises the last axis, whichever it was.
            "LayerNormalization" if made(0).added => {
                let axis = node.attribute("axis").and_then(|axis| axis.int);
                if axis.is_some_and(|axis| axis != -1) {
                    self.wrong
                        .extend(["SkipLayerNormFusion", "EmbedLayerNormFusion"]);
                }
            }
            // It crashes when it puts the cast before the transposition.
            "MatMul" | "com.microsoft::FusedMatMul" if made(0).cast || made(1).cast => {
                self.wrong.insert("MatmulTransposeFusion");
            }
            _ => {}
        }
    }

    /// Numbers of float64 are read as float32 by some.
    fn in_float64(&mut self, node: &Node) {
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

    fn remember(&mut self, node: &Node) {
        let operator = node.operator.as_str();
        let made_by = |name: &String| self.made.get(name).copied();
        let mut made = Made::default();
        if TAKEN_AWAY.contains(&operator) {
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
            _ => !OF_OTHER_TYPE.contains(&operator) && self.is_double(node),
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

    /// Names of the rewrites to leave out.
    pub(super) fn wrong(mut self, values: &Values, provider: Provider) -> Vec<String> {
        let is_zero = |name: &String| {
            let stored = values.get(name).and_then(|stored| stored.ints.as_deref());
            stored.is_some_and(|sizes| sizes.contains(&0))
        };
        if self.shapes.iter().any(is_zero) {
            self.wrong.insert("ExpandElimination");
        }
        let mut names: Vec<String> = self.wrong.iter().map(|name| (*name).to_owned()).collect();
        if self.quantizes && self.transposed.iter().any(|name| self.is_output(name)) {
            // One runs early, one for each provider.
            let cpu = full_name(Provider::Cpu);
            names.push("TransposeOptimizer".to_owned());
            names.push(format!("TransposeOptimizer_{cpu}"));
            if provider != Provider::Cpu {
                names.push(format!("TransposeOptimizer_{}", full_name(provider)));
            }
        }
        names
    }

    /// Whether an output of a graph is what a name comes from. Before a transposition that is quantised, its
    /// input is quantised too, for everybody.
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
