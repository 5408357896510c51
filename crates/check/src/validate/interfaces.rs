//! Compares the interfaces of two files of the same model: methods, tensor counts, element types
//! and shapes.
//!
//! Invariant: differences that a change of precision or backend implies are accepted. These are
//! floats of another size, integers for quantised inputs, and fixed sizes within the other file's
//! range. Between backends, integers of another size are accepted too.

use std::collections::{HashMap, HashSet};

use pkgtool_base::package::DType;
use pkgtool_model::{Dim, Dynamism, ElementType, Method, ModelInfo, ModelValue, TensorInfo};

/// The relation between two compared files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// Variants of one config.
    Precisions {
        /// True if one of them is quantised.
        quantised: bool,
    },
    /// Models of two configs.
    Backends {
        /// True if outputs are compared as well as inputs.
        outputs: bool,
    },
}

/// One of two compared files, with its header.
#[derive(Clone, Copy)]
pub(super) struct InterfaceSide<'a> {
    /// The file's name in messages, in backticks.
    pub(super) name: &'a str,
    pub(super) info: &'a ModelInfo,
}

/// Describes the first difference between the interfaces of `one` and `other`, as a sentence
/// without a full stop.
pub(super) fn difference(
    one: InterfaceSide<'_>,
    other: InterfaceSide<'_>,
    between: Relation,
) -> Option<String> {
    let (mine, theirs) = (callable_methods(one.info), callable_methods(other.info));
    if mine.is_empty() || theirs.is_empty() {
        return None;
    }
    if one.info.names_methods && other.info.names_methods {
        let names = |methods: &[&Method]| -> HashSet<String> {
            methods.iter().map(|method| method.name.clone()).collect()
        };
        if !matches!(between, Relation::Backends { .. }) {
            let (here, there) = (names(&mine), names(&theirs));
            let lacking = theirs.iter().find(|method| !here.contains(&method.name));
            let more = mine.iter().find(|method| !there.contains(&method.name));
            let (lacks, has, method) = match (lacking, more) {
                (Some(method), _) => (one, other, method),
                (None, Some(method)) => (other, one, method),
                (None, None) => return pairs_difference((one, other), (&mine, &theirs), between),
            };
            return Some(format!(
                "{} has no method `{}`, but {} has",
                lacks.name, method.name, has.name
            ));
        }
        return pairs_difference((one, other), (&mine, &theirs), between);
    }
    // A file that does not name its methods has exactly one.
    match (&mine[..], &theirs[..]) {
        ([mine], [theirs]) => method_difference((one, other), (mine, theirs), between),
        _ => None,
    }
}

/// Describes the first difference between methods of the same name.
fn pairs_difference(
    sides: (InterfaceSide<'_>, InterfaceSide<'_>),
    (mine, theirs): (&[&Method], &[&Method]),
    between: Relation,
) -> Option<String> {
    let by_name: HashMap<&str, &Method> = theirs
        .iter()
        .map(|method| (&*method.name, *method))
        .collect();
    mine.iter().find_map(|method| {
        let same = by_name.get(&*method.name)?;
        method_difference(sides, (method, same), between)
    })
}

fn callable_methods(info: &ModelInfo) -> Vec<&Method> {
    info.methods
        .iter()
        .filter(|method| !method.constant)
        .collect()
}

fn method_difference(
    (one, other): (InterfaceSide<'_>, InterfaceSide<'_>),
    (mine, theirs): (&Method, &Method),
    between: Relation,
) -> Option<String> {
    let sides = [
        ("input", "takes", &mine.inputs, &theirs.inputs),
        ("output", "returns", &mine.outputs, &theirs.outputs),
    ];
    let compared = if between == (Relation::Backends { outputs: false }) {
        1
    } else {
        2
    };
    sides
        .into_iter()
        .take(compared)
        .find_map(|(side, verb, mine_values, their_values)| {
            let (here, there) = (tensors(mine_values), tensors(their_values));
            let method = &mine.name;
            if here.len() != there.len() {
                return Some(format!(
                    "method `{method}` of {} {verb} {} {}, but that of {} {}",
                    one.name,
                    here.len(),
                    plural("tensor", here.len()),
                    other.name,
                    there.len()
                ));
            }
            let pairs = here.iter().zip(&there).enumerate();
            let mut different = pairs.filter(|(_, (a, b))| !tensors_agree(a, b, between));
            let (index, (a, b)) = different.next()?;
            Some(format!(
                "{side} {index} of method `{method}` is {a} in {}, but {b} in {}",
                one.name, other.name
            ))
        })
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

fn tensors(values: &[ModelValue]) -> Vec<&TensorInfo> {
    values.iter().filter_map(ModelValue::tensor).collect()
}

fn tensors_agree(one: &TensorInfo, other: &TensorInfo, between: Relation) -> bool {
    elements_agree(&one.element, &other.element, between) && shapes_agree(one, other)
}

/// The class of an element type, regardless of its size.
#[derive(PartialEq, Eq, Clone, Copy)]
enum ElementClass {
    Float,
    Int,
    Bool,
}

fn class(element: &ElementType) -> Option<ElementClass> {
    let ElementType::Known(dtype) = element else {
        return None;
    };
    Some(match dtype {
        DType::Float16 | DType::Bfloat16 | DType::Float32 | DType::Float64 => ElementClass::Float,
        DType::Bool => ElementClass::Bool,
        _ => ElementClass::Int,
    })
}

fn elements_agree(one: &ElementType, other: &ElementType, between: Relation) -> bool {
    // Types that a config cannot express are specific to a format or a backend.
    let (Some(mine), Some(theirs)) = (class(one), class(other)) else {
        return true;
    };
    if one == other || (mine == ElementClass::Float && theirs == ElementClass::Float) {
        return true;
    }
    let is_small = |element: &ElementType| {
        matches!(
            element,
            ElementType::Known(DType::Int8 | DType::Uint8 | DType::Int16)
        )
    };
    let steps = (is_small(one) && theirs == ElementClass::Float)
        || (is_small(other) && mine == ElementClass::Float)
        || (is_small(one) && is_small(other));
    match between {
        Relation::Precisions { quantised } => quantised && steps,
        // Core ML and QNN lack 64-bit integers, and some delegates lack booleans.
        Relation::Backends { .. } => {
            steps || (mine != ElementClass::Float && theirs != ElementClass::Float)
        }
    }
}

fn shapes_agree(one: &TensorInfo, other: &TensorInfo) -> bool {
    let (Some(mine), Some(theirs)) = (&one.dims, &other.dims) else {
        return true;
    };
    if mine.len() != theirs.len() {
        return false;
    }
    if one.dynamism == Dynamism::Unbounded || other.dynamism == Dynamism::Unbounded {
        return true;
    }
    mine.iter().zip(theirs).all(|pair| match pair {
        (Dim::Fixed(a), Dim::Fixed(b)) => a == b,
        // A file may fix a size that the other leaves open. Its own config declares that
        // restriction.
        (Dim::Fixed(size), other) | (other, Dim::Fixed(size)) => {
            max_size(other).is_none_or(|most| *size <= most)
        }
        _ => true,
    })
}

/// Returns the largest size of a dimension, if it is bounded.
fn max_size(dim: &Dim) -> Option<u64> {
    match dim {
        Dim::Fixed(size) | Dim::Maybe { bound: size, .. } => Some(*size),
        Dim::Dynamic { bound, .. } => *bound,
    }
}
