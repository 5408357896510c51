//! Checks a decoded ONNX model before the tract library builds it.
//!
//! It rejects unsupported operators, operators with known wrong results, and values that would make
//! the library panic, hang or allocate without bounds.

use std::collections::{BTreeSet, HashSet};

use tract_onnx::Onnx;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::graph::{Stored, each_graph, each_node, each_tensor_mut, node_name, operator};
use super::known_wrong::known_wrong;
use super::{fused, sequences};
use crate::EngineError;
use crate::graph::guard::LibraryFailure;
use crate::graph::{failed, unsupported};
use crate::tensor::MAX_TENSOR_BYTES;

/// Maximum absolute value of an axis; no tensor has more dimensions.
const MAX_AXIS: i64 = 64;

/// ONNX element types that the library does not support.
const MISSING_TYPES: &[(i32, &str)] = &[
    (14, "complex64"),
    (15, "complex128"),
    (16, "bfloat16"),
    (17, "float8e4m3fn"),
    (18, "float8e4m3fnuz"),
    (19, "float8e5m2"),
    (20, "float8e5m2fnuz"),
    (21, "uint4"),
    (22, "int4"),
    (23, "float4e2m1"),
    (24, "float8e8m0"),
    (25, "uint2"),
    (26, "int2"),
];

/// Supported operators outside the default domain. The library looks up operators without their
/// domain, so any other one would run as its namesake.
const DOMAINS: &[(&str, &[&str])] = &[
    (
        "ai.onnx.ml",
        &[
            "ArrayFeatureExtractor",
            "CategoryMapper",
            "LinearClassifier",
            "LinearRegressor",
            "Normalizer",
            "TreeEnsembleClassifier",
        ],
    ),
    (
        "com.microsoft",
        &[
            "BiasGelu",
            "DequantizeLinear",
            "DynamicQuantizeLSTM",
            "FastGelu",
            "GatherBlockQuantized",
            "Gelu",
            "GroupQueryAttention",
            "MatMulNBits",
            "QuantizeLinear",
            "QuickGelu",
            "RotaryEmbedding",
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        ],
    ),
];

/// Operators of other domains that the default domain has, too.
const OF_SEVERAL_DOMAINS: [&str; 5] = [
    "DequantizeLinear",
    "Gelu",
    "QuantizeLinear",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
];

/// Operators of the library that no standard has.
const WITHOUT_STANDARD: [&str; 4] = ["ConstantLike", "ParametricSoftplus", "Rsqrt", "ScaledTanh"];

/// Checks the whole model. The library may read it afterwards.
pub(crate) fn check(model: &mut ModelProto, library: &Onnx) -> Result<(), EngineError> {
    if let Some((names, reason)) = gaps(model, library) {
        return Err(unsupported(names, &reason));
    }
    check_types(model)?;
    let mut first = Ok(());
    each_graph(model, &mut |graph| {
        if first.is_ok() {
            first = check_outputs(graph);
        }
    });
    each_node(model, &mut |node| {
        if first.is_ok() {
            first = check_attributes(node);
        }
    });
    each_tensor_mut(model, &mut |tensor| {
        if first.is_ok() {
            first = check_size(tensor);
        }
    });
    first.map_err(|failure| failed(&failure))
}

/// Returns the operators that are not supported, and why.
pub(crate) fn gaps(model: &ModelProto, library: &Onnx) -> Option<(BTreeSet<String>, String)> {
    missing_operators(model, library).or_else(|| wrong_operators(model))
}

fn missing_operators(model: &ModelProto, library: &Onnx) -> Option<(BTreeSet<String>, String)> {
    let mut missing = BTreeSet::new();
    let mut functions = BTreeSet::new();
    each_node(model, &mut |node| {
        let is_function = model.functions.iter().any(|function| {
            function.name() == node.op_type && function.domain() == node.domain.as_str()
        });
        if is_function {
            functions.insert(operator(node));
        } else if !is_supported(node, library) {
            missing.insert(operator(node));
        }
    });
    if !missing.is_empty() {
        return Some((missing, "no implementation".to_owned()));
    }
    let reason = "it does not expand functions of the model that use another operator set, have \
                  defaults of attributes, or call themselves";
    (!functions.is_empty()).then(|| (functions, reason.to_owned()))
}

fn is_supported(node: &NodeProto, library: &Onnx) -> bool {
    let name = node.op_type.as_str();
    match node.domain.as_str() {
        "" | "ai.onnx" => library.op_register.0.contains_key(name),
        domain => DOMAINS
            .iter()
            .any(|(known, names)| *known == domain && names.contains(&name)),
    }
}

fn wrong_operators(model: &ModelProto) -> Option<(BTreeSet<String>, String)> {
    let stored = Stored::of(model);
    let mut wrong = BTreeSet::new();
    let mut causes = BTreeSet::new();
    each_node(model, &mut |node| {
        if let Some(cause) = known_wrong(node, &stored) {
            wrong.insert(operator(node));
            causes.insert(cause);
        }
    });
    let causes: Vec<&str> = causes.into_iter().collect();
    let reason = format!("the answer would be wrong, {}", causes.join("; "));
    (!wrong.is_empty()).then_some((wrong, reason))
}

/// Returns the full names of all supported operators, sorted.
pub(crate) fn known_operators(library: &Onnx) -> Vec<String> {
    let is_of_runtime = |name: &str| {
        let mut domains = DOMAINS.iter().flat_map(|(_, names)| *names);
        domains.any(|known| *known == name) && !OF_SEVERAL_DOMAINS.contains(&name)
    };
    // Names of operators of this crate contain spaces or dots.
    let of_default = library.op_register.0.keys().map(|name| &**name);
    let of_default = of_default.filter(|name| {
        !name.contains([' ', '.']) && !is_of_runtime(name) && !WITHOUT_STANDARD.contains(name)
    });
    let of_domains = DOMAINS
        .iter()
        .flat_map(|(domain, names)| names.iter().map(move |name| format!("{domain}::{name}")));
    let names = of_default.map(str::to_owned).chain(of_domains);
    let names: BTreeSet<String> = names
        .chain(fused::names())
        .chain(sequences::names())
        .collect();
    names.into_iter().collect()
}

fn check_types(model: &mut ModelProto) -> Result<(), EngineError> {
    let mut found = BTreeSet::new();
    each_tensor_mut(model, &mut |tensor| {
        let missing = MISSING_TYPES
            .iter()
            .find(|(code, _)| *code == tensor.data_type);
        found.extend(missing.map(|(_, name)| *name));
    });
    match found.into_iter().collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => Ok(()),
        names => Err(unsupported(
            BTreeSet::new(),
            &format!("unsupported dtypes: {names}"),
        )),
    }
}

/// Rejects an output that nothing computes: the library would panic.
fn check_outputs(graph: &GraphProto) -> Result<(), LibraryFailure> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let stored = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let made = graph.node.iter().flat_map(|node| &node.output);
    let known: HashSet<&str> = inputs
        .chain(stored)
        .chain(made.map(String::as_str))
        // A subgraph may return a tensor of the outer graph only if one of its nodes uses it.
        .chain(
            graph
                .node
                .iter()
                .flat_map(|node| &node.input)
                .map(String::as_str),
        )
        .collect();
    for output in &graph.output {
        if output.name.is_empty() || !known.contains(output.name.as_str()) {
            return Err(LibraryFailure::new(format!(
                "no node of the graph `{}` computes its output `{}`",
                graph.name, output.name
            )));
        }
    }
    Ok(())
}

/// Rejects attributes that make the library fail: it counts up to any axis, loops forever on an
/// invalid permutation, and subtracts one from the size of a window.
fn check_attributes(node: &NodeProto) -> Result<(), LibraryFailure> {
    let fail = |reason: String| {
        let name = node_name(node).unwrap_or_default();
        Err(LibraryFailure::new(format!("node `{name}`: {reason}")).at(Some(operator(node))))
    };
    for attribute in &node.attribute {
        let is_of_windows = matches!(
            attribute.name.as_str(),
            "kernel_shape" | "strides" | "dilations"
        );
        if is_of_windows && attribute.ints.iter().any(|size| *size < 1) {
            let (name, sizes) = (&attribute.name, &attribute.ints);
            return fail(format!(
                "{name} {sizes:?}: sizes and steps of windows must be at least 1"
            ));
        }
        let single = [attribute.i];
        let values = match attribute.name.as_str() {
            "axis" => single.as_slice(),
            "axes" | "perm" | "scan_input_axes" | "scan_output_axes" => &attribute.ints,
            _ => continue,
        };
        let is_outside = |value: &&i64| value.unsigned_abs() > MAX_AXIS.unsigned_abs();
        if let Some(value) = values.iter().find(is_outside) {
            return fail(format!(
                "invalid axis {value}: a tensor has at most {MAX_AXIS} dimensions"
            ));
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        if attribute.name == "perm" && !sorted.into_iter().eq((0..).take(values.len())) {
            return fail(format!("{values:?} is not a permutation"));
        }
    }
    Ok(())
}

fn check_size(tensor: &mut TensorProto) -> Result<(), LibraryFailure> {
    let mut sizes = tensor.dims.iter().map(|size| u64::try_from(*size).ok());
    let elements = sizes.try_fold(1_u64, |product, size| product.checked_mul(size?));
    match elements {
        Some(elements) if elements <= MAX_TENSOR_BYTES => Ok(()),
        _ => Err(LibraryFailure::new(format!(
            "the stored tensor `{}` has the invalid shape {:?}",
            tensor.name, tensor.dims
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::AttributeProto;

    use super::*;

    fn transpose(permutation: &[i64]) -> NodeProto {
        NodeProto {
            op_type: "Transpose".to_owned(),
            name: "t".to_owned(),
            attribute: vec![AttributeProto {
                name: "perm".to_owned(),
                ints: permutation.to_vec(),
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        }
    }

    #[test]
    fn what_the_library_would_hang_at_is_refused() {
        assert_eq!(check_attributes(&transpose(&[1, 2, 0])), Ok(()));
        let failure = check_attributes(&transpose(&[0, 0, 1])).expect_err("0 stands twice");
        assert_eq!(
            failure.text(),
            "at `Transpose`: node `t`: [0, 0, 1] is not a permutation"
        );
        assert!(check_attributes(&transpose(&[0, 1 << 40])).is_err());
        let pool = |name: &str, sizes: &[i64]| {
            let mut node = transpose(sizes);
            name.clone_into(&mut node.attribute[0].name);
            check_attributes(&node)
        };
        assert_eq!(pool("kernel_shape", &[2, 1]), Ok(()));
        for name in ["kernel_shape", "strides", "dilations"] {
            assert!(pool(name, &[1, 0]).is_err());
            assert!(pool(name, &[-1]).is_err());
        }
    }

    #[test]
    fn operators_are_looked_up_with_their_domain() {
        let library = super::super::operators::reader();
        let node = |domain: &str, operator: &str| NodeProto {
            op_type: operator.to_owned(),
            domain: domain.to_owned(),
            ..NodeProto::default()
        };
        assert!(is_supported(&node("", "Add"), &library));
        assert!(is_supported(&node("com.microsoft", "QuickGelu"), &library));
        assert!(!is_supported(&node("com.example", "Add"), &library));
        for (domain, names) in DOMAINS {
            for name in *names {
                assert!(is_supported(&node(domain, name), &library));
                assert!(library.op_register.0.contains_key(*name), "{name}");
            }
        }
    }
}
