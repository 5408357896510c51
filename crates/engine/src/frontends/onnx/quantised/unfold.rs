//! Rewrites ONNX Runtime's operators on bytes (`com.microsoft`) as groups: the inputs are
//! dequantised, the operator computes, and the result is quantised.
//!
//! The order of inputs is that of ONNX Runtime's documentation of its contributed operators. A node
//! with an attribute that the plain operator lacks stays, and is rejected by its name.

use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::constants::{Element, StoredConstants};
use super::node;
use crate::frontends::onnx::graph::{
    attribute, each_graph_mut, each_node, has_input, integer, opset,
};
use crate::frontends::onnx::weights::LoadTensor;

const DOMAIN: &str = "com.microsoft";

/// ONNX's codes of element types.
const FLOAT: i32 = 1;
const INT64: i32 = 7;

/// Versions of the operator set since which a mean has its axes as an input, and a softmax one
/// axis.
const AXES_AS_INPUT: i64 = 18;
const SOFTMAX_OF_ONE_AXIS: i64 = 13;

/// The tensors of an operator. Each is followed by its scale and zero point.
struct OperatorForm {
    word: &'static str,
    plain: &'static str,
    /// Number of input tensors. The scale and zero point of the output follow them.
    tensors: usize,
}

const FORMS: [OperatorForm; 8] = [
    form("QLinearAdd", "Add", 2),
    form("QLinearMul", "Mul", 2),
    form("QLinearAveragePool", "AveragePool", 1),
    form("QLinearGlobalAveragePool", "GlobalAveragePool", 1),
    form("QLinearLeakyRelu", "LeakyRelu", 1),
    form("QLinearReduceMean", "ReduceMean", 1),
    form("QLinearSigmoid", "Sigmoid", 1),
    form("QLinearSoftmax", "Softmax", 1),
];

const fn form(word: &'static str, plain: &'static str, tensors: usize) -> OperatorForm {
    OperatorForm {
        word,
        plain,
        tensors,
    }
}

/// Rewrites all operators without a plain form.
pub(crate) fn unfold(model: &mut ModelProto, load: &LoadTensor<'_>) {
    let mut has_one = false;
    each_node(model, &mut |node| {
        let named = node.op_type.starts_with("QLinear") || node.op_type == "QGemm";
        has_one |= node.domain == DOMAIN && named;
    });
    if !has_one {
        return;
    }
    let (constants, version) = (StoredConstants::of(model, load), opset(model));
    each_graph_mut(model, &mut |graph| {
        for node in std::mem::take(&mut graph.node) {
            let unfolded = (node.domain == DOMAIN)
                .then(|| unfolded(&node, &constants, version))
                .flatten();
            match unfolded {
                Some(unfolded) => unfolded.put(graph),
                None => graph.node.push(node),
            }
        }
    });
}

/// The replacement of one node.
struct Unfolded {
    of: NodeProto,
    nodes: Vec<NodeProto>,
    stored: Vec<TensorProto>,
}

impl Unfolded {
    fn new(of: &NodeProto) -> Self {
        Self {
            of: of.clone(),
            nodes: Vec::new(),
            stored: Vec::new(),
        }
    }

    fn put(self, graph: &mut GraphProto) {
        graph.node.extend(self.nodes);
        graph.initializer.extend(self.stored);
    }

    fn part(&self, name: &str) -> Option<String> {
        Some(format!("{}.{name}", self.of.output.first()?))
    }

    /// Returns the dequantised tensor of the bytes at this position; scale and zero point follow
    /// them.
    fn number(&mut self, place: usize, axis: i64) -> Option<String> {
        let given = |place| has_input(&self.of, place).then(|| self.of.input[place].clone());
        let (bytes, scale) = (given(place)?, given(place + 1)?);
        let zero = given(place + 2).unwrap_or_default();
        let number = self.part(&format!("number.{place}"))?;
        let mut made = node::new("DequantizeLinear", "", &[&bytes, &scale], &number);
        if !zero.is_empty() {
            made.input.push(zero);
        }
        node::put_integer(&mut made, "axis", axis);
        self.nodes.push(made);
        Some(number)
    }

    /// Quantises the result of `operator` to the output; scale and zero point are at this position.
    fn round(&mut self, mut operator: NodeProto, place: usize) -> Option<()> {
        operator.name.clone_from(&self.of.name);
        let output = self.of.output.first()?.clone();
        if !has_input(&self.of, place) {
            operator.output = vec![output];
            self.nodes.push(operator);
            return Some(());
        }
        let number = self.part("number")?;
        let mut inputs = vec![number.as_str(), &self.of.input[place]];
        if has_input(&self.of, place + 1) {
            inputs.push(&self.of.input[place + 1]);
        }
        let rounded = node::new("QuantizeLinear", "", &inputs, &output);
        operator.output = vec![number];
        self.nodes.extend([operator, rounded]);
        Some(())
    }

    fn store(&mut self, name: &str, tensor: TensorProto) -> Option<String> {
        let name = self.part(name)?;
        self.stored.push(TensorProto {
            name: name.clone(),
            ..tensor
        });
        Some(name)
    }
}

fn unfolded(node: &NodeProto, constants: &StoredConstants, version: i64) -> Option<Unfolded> {
    if integer(node, "channels_last", 0) != 0 {
        return None;
    }
    match node.op_type.as_str() {
        "QGemm" => gemm(node, constants),
        "QLinearConcat" => joined(node),
        "QLinearWhere" => selected(node),
        word => plain(FORMS.iter().find(|form| form.word == word)?, node, version),
    }
}

fn plain(form: &OperatorForm, node: &NodeProto, version: i64) -> Option<Unfolded> {
    let mut unfolded = Unfolded::new(node);
    let numbers = (0..form.tensors).map(|tensor| unfolded.number(3 * tensor, 1));
    let numbers: Vec<String> = numbers.collect::<Option<_>>()?;
    let inputs: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let mut operator = node::new(form.plain, "", &inputs, "");
    let own = ["channels_last", "opset"];
    let attributes = node.attribute.iter();
    let attributes = attributes.filter(|it| !own.contains(&it.name.as_str()));
    operator.attribute = attributes.cloned().collect();
    if form.plain == "AveragePool" {
        // ONNX Runtime also counts elements that `ceil_mode` adds beyond the padding.
        node::put_integer(&mut operator, node::COUNTS_WHOLE_WINDOWS, 1);
    }
    if form.plain == "Softmax" {
        // The softmax may be that of another version than the model's.
        let own = integer(node, "opset", 1);
        if (own >= SOFTMAX_OF_ONE_AXIS) != (version >= SOFTMAX_OF_ONE_AXIS) {
            return None;
        }
    }
    if form.plain == "ReduceMean" && version >= AXES_AS_INPUT {
        let axes = attribute(node, "axes")?.ints.clone();
        operator.attribute.retain(|it| it.name != "axes");
        let axes = unfolded.store(
            "axes",
            TensorProto {
                dims: vec![i64::try_from(axes.len()).ok()?],
                data_type: INT64,
                int64_data: axes,
                ..TensorProto::default()
            },
        )?;
        operator.input.push(axes);
    }
    unfolded.round(operator, 3 * form.tensors)?;
    Some(unfolded)
}

/// Concatenates tensors; the output's scale and zero point come first.
fn joined(node: &NodeProto) -> Option<Unfolded> {
    let mut unfolded = Unfolded::new(node);
    let count = node.input.len().checked_sub(2)? / 3;
    let numbers = (0..count).map(|tensor| unfolded.number(2 + 3 * tensor, 1));
    let numbers: Vec<String> = numbers.collect::<Option<_>>()?;
    let inputs: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let mut operator = node::new("Concat", "", &inputs, "");
    operator.attribute.clone_from(&node.attribute);
    unfolded.round(operator, 0)?;
    Some(unfolded)
}

/// Selects elements of two tensors by a condition.
fn selected(node: &NodeProto) -> Option<Unfolded> {
    let mut unfolded = Unfolded::new(node);
    let condition = node.input.first()?;
    let [yes, no] = [unfolded.number(1, 1)?, unfolded.number(4, 1)?];
    let operator = node::new("Where", "", &[condition, &yes, &no], "");
    unfolded.round(operator, 7)?;
    Some(unfolded)
}

/// Rewrites a product of matrices; its bias is in steps of its sums.
fn gemm(node: &NodeProto, constants: &StoredConstants) -> Option<Unfolded> {
    let mut unfolded = Unfolded::new(node);
    let turned = integer(node, "transB", 0) != 0;
    let a = unfolded.number(0, 1)?;
    let b = unfolded.number(3, i64::from(!turned))?;
    let mut operator = node::new("Gemm", "", &[&a, &b], "");
    let attributes = node.attribute.iter().cloned();
    operator.attribute = attributes.collect();
    if has_input(node, 6) {
        // ONNX Runtime applies the factor to the product only.
        let alpha = attribute(node, "alpha").map_or(1.0, |alpha| alpha.f);
        let a_scale = constants.float(&node.input[1])?;
        let scales = constants.list(&node.input[4], Element::Float)?;
        #[expect(clippy::cast_possible_truncation, reason = "float32 values")]
        let steps = scales.iter().map(|scale| alpha * a_scale * *scale as f32);
        let steps: Vec<f32> = steps.collect();
        let is_one = steps.len() == 1;
        let dims = if is_one {
            Vec::new()
        } else {
            vec![i64::try_from(steps.len()).ok()?]
        };
        let scale = unfolded.store(
            "bias.scale",
            TensorProto {
                dims,
                data_type: FLOAT,
                float_data: steps,
                ..TensorProto::default()
            },
        )?;
        let bias = unfolded.part("bias")?;
        let mut made = node::new("DequantizeLinear", "", &[&node.input[6], &scale], &bias);
        let rank = constants.get(&node.input[6])?.dims.len();
        node::put_integer(&mut made, "axis", i64::try_from(rank.max(1) - 1).ok()?);
        unfolded.nodes.push(made);
        operator.input.push(bias);
    }
    unfolded.round(operator, 7)?;
    Some(unfolded)
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::AttributeProto;

    use super::*;

    fn model(node: NodeProto) -> ModelProto {
        ModelProto {
            graph: Some(GraphProto {
                node: vec![NodeProto {
                    domain: DOMAIN.to_owned(),
                    ..node
                }],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        }
    }

    fn written(node: NodeProto) -> Vec<String> {
        let mut model = model(node);
        unfold(&mut model, &|_| None);
        let graph = model.graph.expect("it is still there");
        let nodes = graph.node.iter();
        let nodes = nodes.map(|node| {
            format!(
                "{}({}) {}",
                node.op_type,
                node.input.join(","),
                node.output[0]
            )
        });
        nodes.collect()
    }

    #[test]
    fn a_sum_becomes_a_group() {
        let inputs = ["a", "as", "az", "b", "bs", "", "ys", "yz"];
        assert_eq!(
            written(node::new("QLinearAdd", "n", &inputs, "y")),
            [
                "DequantizeLinear(a,as,az) y.number.0",
                "DequantizeLinear(b,bs) y.number.3",
                "Add(y.number.0,y.number.3) y.number",
                "QuantizeLinear(y.number,ys,yz) y",
            ]
        );
        let inputs = ["ys", "yz", "a", "as", "az"];
        assert_eq!(
            written(node::new("QLinearConcat", "n", &inputs, "y")),
            [
                "DequantizeLinear(a,as,az) y.number.2",
                "Concat(y.number.2) y.number",
                "QuantizeLinear(y.number,ys,yz) y",
            ]
        );
    }

    #[test]
    fn what_means_something_else_stays() {
        let inputs = ["x", "xs", "xz", "ys", "yz"];
        let mut last = node::new("QLinearGlobalAveragePool", "n", &inputs, "y");
        last.attribute.push(AttributeProto {
            name: "channels_last".to_owned(),
            i: 1,
            ..AttributeProto::default()
        });
        assert_eq!(written(last).len(), 1);
        let other = node::new("QLinearPad", "n", &inputs, "y");
        assert_eq!(written(other).len(), 1);
        let short = node::new("QLinearAdd", "n", &["a", "as"], "y");
        assert_eq!(written(short).len(), 1);
    }
}
