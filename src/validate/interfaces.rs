//! Interfaces of model files of one model, held against each other: methods, numbers of tensors, types, shapes.
//!
//! Invariant: a difference that a precision or a backend brings by its nature is none: floats of another size,
//! integers for quantised inputs, sizes that one file fixes within the range of the other, and between backends
//! integers of another size.

use std::collections::{HashMap, HashSet};

use crate::model::{Dim, Dynamism, ElementType, Method, ModelInfo, TensorInfo, Value};
use crate::package::DType;

/// What two files are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// Variants of one config.
    Precisions {
        /// Whether one of them is quantised.
        quantised: bool,
    },
    /// Models of two configs.
    Backends {
        /// Whether outputs are held against each other, too.
        outputs: bool,
    },
}

/// A file and what its header says.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    /// What it is called in a text, in backticks.
    pub(super) name: &'a str,
    pub(super) info: &'a ModelInfo,
}

/// The first thing in which the interface of `one` is not that of `other`, in a sentence without its end.
pub(super) fn difference(one: Side<'_>, other: Side<'_>, between: Between) -> Option<String> {
    let (mine, theirs) = (callable(one.info), callable(other.info));
    if mine.is_empty() || theirs.is_empty() {
        return None;
    }
    if one.info.names_methods && other.info.names_methods {
        let names = |methods: &[&Method]| -> HashSet<String> {
            methods.iter().map(|method| method.name.clone()).collect()
        };
        if !matches!(between, Between::Backends { .. }) {
            let (here, there) = (names(&mine), names(&theirs));
            let lacking = theirs.iter().find(|method| !here.contains(&method.name));
            let more = mine.iter().find(|method| !there.contains(&method.name));
            let (lacks, has, method) = match (lacking, more) {
                (Some(method), _) => (one, other, method),
                (None, Some(method)) => (other, one, method),
                (None, None) => return pairs_difference((one, other), (&mine, &theirs), between),
            };
            return Some(format!(
                "{} has no method `{}`, {} has",
                lacks.name, method.name, has.name
            ));
        }
        return pairs_difference((one, other), (&mine, &theirs), between);
    }
    // A file that does not name its methods has one.
    match (&mine[..], &theirs[..]) {
        ([mine], [theirs]) => method_difference((one, other), (mine, theirs), between),
        _ => None,
    }
}

/// The first difference between methods of one name.
fn pairs_difference(
    sides: (Side<'_>, Side<'_>),
    (mine, theirs): (&[&Method], &[&Method]),
    between: Between,
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

fn callable(info: &ModelInfo) -> Vec<&Method> {
    info.methods
        .iter()
        .filter(|method| !method.constant)
        .collect()
}

fn method_difference(
    (one, other): (Side<'_>, Side<'_>),
    (mine, theirs): (&Method, &Method),
    between: Between,
) -> Option<String> {
    let sides = [
        ("input", "takes", &mine.inputs, &theirs.inputs),
        ("output", "gives", &mine.outputs, &theirs.outputs),
    ];
    let compared = if between == (Between::Backends { outputs: false }) {
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
                    "method `{method}` of {} {verb} {} {}, that of {} {}",
                    one.name,
                    here.len(),
                    plural("tensor", here.len()),
                    other.name,
                    there.len()
                ));
            }
            let pairs = here.iter().zip(&there).enumerate();
            let mut different = pairs.filter(|(_, (a, b))| !agree(a, b, between));
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

fn tensors(values: &[Value]) -> Vec<&TensorInfo> {
    values.iter().filter_map(Value::tensor).collect()
}

fn agree(one: &TensorInfo, other: &TensorInfo, between: Between) -> bool {
    elements_agree(&one.element, &other.element, between) && shapes_agree(one, other)
}

/// What a type is, its size left out.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Class {
    Float,
    Int,
    Bool,
}

fn class(element: &ElementType) -> Option<Class> {
    let ElementType::Known(dtype) = element else {
        return None;
    };
    Some(match dtype {
        DType::Float16 | DType::Bfloat16 | DType::Float32 | DType::Float64 => Class::Float,
        DType::Bool => Class::Bool,
        _ => Class::Int,
    })
}

fn elements_agree(one: &ElementType, other: &ElementType, between: Between) -> bool {
    // Types that a config cannot name belong to a format or a backend.
    let (Some(mine), Some(theirs)) = (class(one), class(other)) else {
        return true;
    };
    if one == other || (mine == Class::Float && theirs == Class::Float) {
        return true;
    }
    let is_small = |element: &ElementType| {
        matches!(
            element,
            ElementType::Known(DType::Int8 | DType::Uint8 | DType::Int16)
        )
    };
    let steps = (is_small(one) && theirs == Class::Float)
        || (is_small(other) && mine == Class::Float)
        || (is_small(one) && is_small(other));
    match between {
        Between::Precisions { quantised } => quantised && steps,
        // Core ML and QNN have no integers of 64 bits, some delegates no booleans.
        Between::Backends { .. } => steps || (mine != Class::Float && theirs != Class::Float),
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
        // One file fixes what the other leaves open: it takes less, which its config says.
        (Dim::Fixed(size), other) | (other, Dim::Fixed(size)) => {
            most(other).is_none_or(|most| *size <= most)
        }
        _ => true,
    })
}

/// The largest size of a dimension that may vary.
fn most(dim: &Dim) -> Option<u64> {
    match dim {
        Dim::Fixed(size) | Dim::Maybe { bound: size, .. } => Some(*size),
        Dim::Dynamic { bound, .. } => *bound,
    }
}
