//! Carries tensors of element types that the library lacks in wider ones: floats of at most 16 bits
//! in float32, integers of two and four bits in bytes.
//!
//! Stored tensors are decoded. Operators that compute such numbers are followed by a rounding to
//! the type. The quantisations know the type by their attribute `output_dtype`.

mod format;

use std::collections::HashMap;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::type_proto::Value;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use tract_onnx::tract_core::internal::*;

pub(crate) use format::NarrowType;

use super::graph::{UINT8, UINT16, attribute, each_graph, integer, step};
use super::node_operator::{Built, same_shape};
use super::steps::int;
use super::weights::LoadTensor;
use crate::graph::kernel::Kernel;

/// The operator that rounds numbers to a narrow type.
pub(crate) const ROUNDED: &str = "pkgtool rounded";

/// Builds [`ROUNDED`].
pub(crate) fn build_rounded(_: &ParsingContext, node: &NodeProto) -> Built {
    let narrow = NarrowType::of(integer(node, "to", 0)).context("the type is unknown")?;
    let saturates = integer(node, "saturate", 1) != 0;
    same_shape(ROUNDED, 1, [None; 2], move |prefix, model, inputs| {
        let dtype = model.outlet_fact(inputs[0])?.datum_type;
        let kernel = Kernel::of_elements("Rounded", dtype, move |inputs| {
            let numbers = inputs[0].cast_to::<f32>()?;
            let numbers = numbers.try_as_plain_ram()?;
            let numbers = numbers.as_slice::<f32>()?.iter();
            let rounded: Vec<f32> = numbers.map(|it| narrow.rounded(*it, saturates)).collect();
            let rounded = Tensor::from_shape(inputs[0].shape(), &rounded)?;
            Ok(tvec!(rounded.cast_to_dt(dtype)?.into_owned()))
        });
        model.wire_node(prefix, kernel, inputs)
    })
}

/// Operators whose results are elements of their inputs.
const MOVES: [&str; 43] = [
    "Abs",
    "Constant",
    "ConstantOfShape",
    "Compress",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "GlobalMaxPool",
    "Identity",
    "If",
    "Loop",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "OneHot",
    "Pad",
    "QuantizeLinear",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Sign",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "TensorScatter",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// Operators whose results are not of the type of their first input.
const OTHER_RESULTS: [&str; 19] = [
    "ArgMax",
    "ArgMin",
    "BitCast",
    "DynamicQuantizeLinear",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "Shape",
    "Size",
    "MatMulInteger",
    "ConvInteger",
    "StringConcat",
];

/// Operators of which only the first result is of the type of an input.
const FIRST_RESULT: [&str; 4] = ["Dropout", "MaxPool", "TopK", "Unique"];

/// Widens all such tensors of a model.
pub(crate) fn widen(model: &mut ModelProto, load: &LoadTensor<'_>) {
    if !has_narrow(model) {
        return;
    }
    if let Some(graph) = &mut model.graph {
        widen_graph(graph, &HashMap::new(), load);
    }
}

fn has_narrow(model: &ModelProto) -> bool {
    let mut found = false;
    let is_narrow = |code: i64| NarrowType::of(code).is_some();
    each_graph(model, &mut |graph| {
        found |= graph
            .initializer
            .iter()
            .any(|tensor| is_narrow(tensor.data_type.into()));
        found |= graph.input.iter().any(|input| of_value(input).is_some());
        let attributes = graph.node.iter().flat_map(|node| &node.attribute);
        found |= attributes.into_iter().any(|it| {
            let of_tensor = it.t.as_ref().map_or(0, |tensor| tensor.data_type);
            let names_type = matches!(it.name.as_str(), "to" | "dtype" | "output_dtype");
            is_narrow(of_tensor.into()) || names_type && is_narrow(it.i)
        });
    });
    found
}

/// The narrow types of tensors, by name.
type Types = HashMap<String, NarrowType>;

fn of_value(value: &ValueInfoProto) -> Option<NarrowType> {
    match value.r#type.as_ref()?.value.as_ref()? {
        Value::TensorType(tensor) => NarrowType::of(tensor.elem_type.into()),
    }
}

/// Widens a graph and returns the types of its outputs; `outer` has those of the graphs around it.
fn widen_graph(
    graph: &mut GraphProto,
    outer: &Types,
    load: &LoadTensor<'_>,
) -> Vec<Option<NarrowType>> {
    let mut types = outer.clone();
    for value in &mut graph.input {
        let of = value.r#type.as_mut().and_then(|it| it.value.as_mut());
        let Some(Value::TensorType(tensor)) = of else {
            continue;
        };
        if let Some(narrow) = NarrowType::of(tensor.elem_type.into()) {
            tensor.elem_type = narrow.carrier();
            types.insert(value.name.clone(), narrow);
        }
    }
    for tensor in &mut graph.initializer {
        if let Some(narrow) = decode(tensor, load) {
            types.insert(tensor.name.clone(), narrow);
        }
    }
    for mut node in std::mem::take(&mut graph.node) {
        let saturates = integer(&node, "saturate", 1);
        let found = widen_node(&mut node, &types, load);
        let is_rounded = !MOVES.contains(&node.op_type.as_str());
        let mut after = Vec::new();
        for (output, narrow) in node.output.iter_mut().zip(found) {
            let Some(narrow) = narrow.filter(|_| !output.is_empty()) else {
                continue;
            };
            types.insert(output.clone(), narrow);
            if is_rounded {
                let wide = format!("{output}.wide");
                let mut rounded = step(ROUNDED, &[&wide], output);
                let code = narrow.code.into();
                rounded.attribute = vec![int("to", code), int("saturate", saturates)];
                after.push(rounded);
                *output = wide;
            }
        }
        graph.node.push(node);
        graph.node.extend(after);
    }
    let outputs = graph.output.iter();
    outputs
        .map(|output| types.get(&output.name).copied())
        .collect()
}

/// Widens what a node has of its own and returns the types of its outputs.
fn widen_node(
    node: &mut NodeProto,
    types: &Types,
    load: &LoadTensor<'_>,
) -> Vec<Option<NarrowType>> {
    let given = node.input.iter().map(|name| types.get(name).copied());
    let given: Vec<Option<NarrowType>> = given.collect();
    let of = |at: usize| given.get(at).copied().flatten();
    let named = |name: &str| NarrowType::of(integer(node, name, 0));
    let count = node.output.len();
    let found = match node.op_type.as_str() {
        "Cast" => named("to").inspect(|narrow| set(node, "to", narrow.carrier())),
        "CastLike" => of(1).inspect(|narrow| {
            "Cast".clone_into(&mut node.op_type);
            node.input.truncate(1);
            set(node, "to", narrow.carrier());
        }),
        "QuantizeLinear" => of(2).or_else(|| named("output_dtype")).inspect(|narrow| {
            set(node, "output_dtype", narrow.code);
        }),
        "DequantizeLinear" => named("output_dtype").or(of(1)).inspect(|narrow| {
            set(node, "output_dtype", narrow.carrier());
        }),
        "BitCast" => {
            // The bits of carried numbers are others.
            if of(0).or_else(|| named("to")).is_some() {
                "narrow types".clone_into(&mut node.domain);
            }
            None
        }
        "Where" => of(1),
        "OneHot" => of(2),
        "Constant" | "ConstantOfShape" => {
            let tensors = node.attribute.iter_mut().filter_map(|it| it.t.as_mut());
            return tensors.map(|tensor| decode(tensor, load)).collect();
        }
        "If" | "Loop" | "Scan" => {
            let mut outputs = Vec::new();
            for body in node.attribute.iter_mut().filter_map(|it| it.g.as_mut()) {
                outputs = widen_graph(body, types, load);
            }
            let first = usize::from(node.op_type == "Loop").min(outputs.len());
            return outputs.split_off(first);
        }
        other if OTHER_RESULTS.contains(&other) => None,
        other => {
            let is_first = FIRST_RESULT.contains(&other);
            let narrow = named("dtype").inspect(|narrow| set(node, "dtype", narrow.carrier()));
            let given = if attribute(node, "dtype").is_some() {
                None
            } else {
                of(0)
            };
            let narrow = narrow.or(given);
            return (0..count)
                .map(|at| narrow.filter(|_| at == 0 || !is_first))
                .collect();
        }
    };
    vec![found; count]
}

/// Sets an attribute to the code of an element type.
fn set(node: &mut NodeProto, name: &str, code: i32) {
    node.attribute.retain(|it| it.name != name);
    node.attribute.push(int(name, code.into()));
}

/// Decodes a stored tensor and returns its type, if the library lacks it.
fn decode(tensor: &mut TensorProto, load: &LoadTensor<'_>) -> Option<NarrowType> {
    let narrow = NarrowType::of(tensor.data_type.into())?;
    let sizes = tensor.dims.iter().map(|size| usize::try_from(*size).ok());
    let mut sizes = sizes.collect::<Option<Vec<usize>>>()?.into_iter();
    let count = sizes.try_fold(1_usize, usize::checked_mul)?;
    let (unit, code) = if narrow.bits == 16 {
        (2, UINT16)
    } else {
        (1, UINT8)
    };
    let length = count.checked_mul(narrow.bits as usize)?.div_ceil(8);
    let bytes = if tensor.int32_data.is_empty() {
        let stored = load(&TensorProto {
            data_type: code,
            dims: vec![i64::try_from(length / unit).ok()?],
            ..tensor.clone()
        })?;
        stored.try_as_plain_ram().ok()?.as_bytes().to_vec()
    } else {
        let elements = tensor.int32_data.iter();
        elements
            .flat_map(|it| it.to_le_bytes().into_iter().take(unit))
            .collect()
    };
    let numbers = narrow.unpacked(bytes.get(..length)?, count);
    let carried = tensor1(&numbers);
    let carried = carried.cast_to_dt(narrow.datum_type()).ok()?;
    *tensor = TensorProto {
        name: std::mem::take(&mut tensor.name),
        dims: std::mem::take(&mut tensor.dims),
        data_type: narrow.carrier(),
        raw_data: carried.try_as_plain_ram().ok()?.as_bytes().to_vec(),
        ..TensorProto::default()
    };
    Some(narrow)
}
