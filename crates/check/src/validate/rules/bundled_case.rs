//! Rule `bundled-case`: reports bundled test cases that do not fit the program's methods.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_model::executorch::body::{BundledCase, BundledValue, bundled_cases};
use pkgtool_model::{Dim, Dynamism, ModelInfo, TensorInfo, ModelValue, ValueKind};
use pkgtool_base::source::FileSource;
use crate::validate::context::Context;

/// Maximum number of findings for one file.
const MAX_FINDINGS: usize = 20;

rule! {
    /// # What it checks
    /// The test cases in a bundled program (`.bpte`) fit its methods. Each case calls an existing
    /// method with the right number of inputs, and the inputs have the right kinds, dtypes, ranks
    /// and sizes. Expected outputs, if present, match the method's outputs in the same way.
    ///
    /// # Why
    /// A case that does not fit fails on every device, whatever the model computes, or belongs to
    /// another revision of the model. `pkgtool run --bundled` cannot run it.
    ///
    /// # Example
    /// A case for `forward` with `float32[2, 2]` where the method takes `float32[2]`.
    ///
    /// # Fix
    /// Bundle the program again with cases made for it.
    ///
    /// # What it does not see
    /// The values. `pkgtool run --bundled` checks whether the outputs are as expected.
    PKG052 "bundled-case" Warning "A bundled test case does not fit the program." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (file, info) in context.models() {
        let is_bundled = info.metadata.iter().any(|(key, _)| key == "bundled program");
        let Ok(facts) = &file.facts else { continue };
        if !is_bundled {
            continue;
        }
        // The file was readable before. Other rules report unreadable files.
        let Ok(source) = FileSource::open(&facts.path) else {
            continue;
        };
        let reference = &file.file.reference;
        let finding = |message: String| {
            let finding = RULE.meta.finding(Anchor::Value(file.file.path.clone()), message);
            finding.help("bundle the program again with cases made for it")
        };
        match bundled_cases(&source) {
            Ok(cases) => {
                let faults: Vec<String> = cases.iter().filter_map(|case| case_mismatch(case, info)).collect();
                let more = faults.len().saturating_sub(MAX_FINDINGS);
                for (index, fault) in faults.into_iter().take(MAX_FINDINGS).enumerate() {
                    let is_last = index + 1 == MAX_FINDINGS && more > 0;
                    let rest = if is_last { format!(" (and {more} more cases)") } else { String::new() };
                    findings.push(finding(format!("in `{reference}`, {fault}{rest}")));
                }
            }
            Err(error) => findings.push(finding(format!(
                "the test cases of `{reference}` cannot be read: {error}"
            ))),
        }
    }
}

/// Describes the first mismatch between a case and its method.
fn case_mismatch(case: &BundledCase, info: &ModelInfo) -> Option<String> {
    let BundledCase { method: name, index, inputs, expected } = case;
    let Some(method) = info.method(name) else {
        return Some(format!("case {index} is for a method `{name}`, which the program does not have"));
    };
    let which = format!("case {index} of `{name}`");
    if let Some(told) = value_mismatch(inputs, &method.inputs, ("gives", "input", "the method takes")) {
        return Some(format!("{which} {told}"));
    }
    if expected.is_empty() {
        return None;
    }
    let told = value_mismatch(expected, &method.outputs, ("expects", "output", "the method gives"))?;
    Some(format!("{which} {told}"))
}

fn value_mismatch(
    given: &[BundledValue],
    values: &[ModelValue],
    (verb, side, takes): (&str, &str, &str),
) -> Option<String> {
    if given.len() != values.len() {
        let s = if given.len() == 1 { "" } else { "s" };
        return Some(format!("{verb} {} {side}{s}, but {takes} {}", given.len(), values.len()));
    }
    let pairs = given.iter().zip(values).enumerate();
    let mut wrong = pairs.filter(|(_, (given, value))| !fits(given, &value.kind));
    let (index, (given, value)) = wrong.next()?;
    let wanted = match value.tensor() {
        Some(info) => info.to_string(),
        None => value.kind.name().to_owned(),
    };
    Some(format!("{verb} {} as {side} {index}, but {takes} {wanted}", shown(given)))
}

fn shown(given: &BundledValue) -> String {
    match given {
        BundledValue::Tensor { element, sizes, .. } => {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            format!("{}[{}]", element.name(), sizes.join(", "))
        }
        BundledValue::Int(_) => "int".to_owned(),
        BundledValue::Bool(_) => "bool".to_owned(),
        BundledValue::Double(_) => "double".to_owned(),
    }
}

fn fits(given: &BundledValue, kind: &ValueKind) -> bool {
    match (given, kind) {
        (BundledValue::Tensor { element, sizes, .. }, ValueKind::Tensor { info, .. }) => {
            info.element == *element && sizes_fit(sizes, info)
        }
        (BundledValue::Tensor { .. }, kind) => is_open(kind),
        (_, ValueKind::Tensor { .. }) => false,
        (BundledValue::Int(_), ValueKind::Int(_))
        | (BundledValue::Bool(_), ValueKind::Bool(_))
        | (BundledValue::Double(_), ValueKind::Double(_)) => true,
        (_, kind) => is_open(kind),
    }
}

/// Returns whether the program leaves open what it takes: an optional or a list accepts any value.
fn is_open(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::None | ValueKind::Other(_))
}

fn sizes_fit(sizes: &[u64], info: &TensorInfo) -> bool {
    let Some(dims) = &info.dims else {
        return true;
    };
    if dims.len() != sizes.len() {
        return false;
    }
    info.dynamism == Dynamism::Unbounded
        || sizes.iter().zip(dims).all(|(size, dim)| match dim {
            Dim::Fixed(fixed) => size == fixed,
            Dim::Dynamic { bound, .. } => bound.is_none_or(|bound| *size <= bound),
            Dim::Maybe { bound, .. } => size <= bound,
        })
}
