//! Infers the precision of a model file from its stored weights, if its name does not contain it.

use std::collections::BTreeMap;
use std::path::Path;

use pkgtool_base::package::{DType, PrecisionList};
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::body::ProgramBody;
use pkgtool_model::executorch::{PayloadSummary, contents};
use pkgtool_model::precision::{ModelWeights, NumberPrecision, PrecisionClaim};
use pkgtool_model::{ElementType, ModelInfo};

/// A precision and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InferredPrecision {
    pub(super) token: &'static str,
    pub(super) evidence: String,
    /// True if it is only likely.
    pub(super) guess: bool,
}

/// Returns the precision of the file as a token of the list, unless the weights contradict it.
pub(super) fn of_contents(
    path: &Path,
    info: &ModelInfo,
    list: &PrecisionList,
) -> Option<InferredPrecision> {
    let weights = ModelWeights::of(path, info);
    let stored = if info.format == "executorch" {
        // Delegate payloads record the type of computation, which counts of weights do not.
        of_program(&info.weight_types).or_else(|| of_payloads(path, info))
    } else {
        of_weights(&weights, list)
    };
    let stored = stored.or_else(|| of_values(info))?;
    let is_contradicted = |stored: &InferredPrecision| {
        let meaning = PrecisionClaim::of_token(stored.token);
        meaning.is_some_and(|meaning| weights.contradiction(meaning).is_some())
    };
    let fits = |stored: &InferredPrecision| list.contains(stored.token) && !is_contradicted(stored);
    if fits(&stored) {
        return Some(stored);
    }
    of_weights(&weights, list).filter(fits)
}

/// Infers the precision from the most frequent kind of weights; `None` if some weights were not
/// counted.
fn of_weights(weights: &ModelWeights, list: &PrecisionList) -> Option<InferredPrecision> {
    if !weights.is_complete {
        return None;
    }
    let counted = if weights.elements.is_empty() {
        &weights.tables
    } else {
        &weights.elements
    };
    let (kind, _) = counted.iter().max_by_key(|(_, count)| **count)?;
    let tokens: &[&str] = match kind {
        NumberPrecision::Float32 => &["fp32"],
        NumberPrecision::Float16 => &["fp16"],
        NumberPrecision::Bfloat16 => &["bf16"],
        NumberPrecision::EightBits => &["int8"],
        NumberPrecision::FourBits
            if weights
                .computation_precisions
                .contains(&NumberPrecision::EightBits) =>
        {
            &["8da4w"]
        }
        NumberPrecision::FourBits => &["int4", "4w"],
    };
    let token = tokens.iter().find(|token| list.contains(token))?;
    Some(InferredPrecision {
        token,
        evidence: format!("most of the stored weights are {kind}"),
        guess: false,
    })
}

/// Infers the precision from the most frequent type of a program's constants. Integers may be sizes
/// or positions, so they are ignored.
fn of_program(types: &BTreeMap<String, u64>) -> Option<InferredPrecision> {
    let known = types.iter().filter_map(|(name, count)| {
        let token = token_of(name)?;
        Some((*count, name, token))
    });
    let (_, name, token) = known.max_by_key(|(count, ..)| *count)?;
    Some(InferredPrecision {
        token,
        evidence: format!("most of the stored weights are {name}"),
        guess: false,
    })
}

fn token_of(element: &str) -> Option<&'static str> {
    match element {
        "float32" => Some("fp32"),
        "float16" => Some("fp16"),
        "bfloat16" => Some("bf16"),
        "int8" | "uint8" => Some("int8"),
        "int4" | "uint4" => Some("int4"),
        _ => None,
    }
}

/// Infers the precision from the payloads of delegates.
fn of_payloads(path: &Path, info: &ModelInfo) -> Option<InferredPrecision> {
    if info.format != "executorch" {
        return None;
    }
    let source = FileSource::open(path).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    let mut all = PayloadSummary::default();
    for method in &body.methods {
        for payload in contents(&source, &body, method).into_iter().flatten() {
            if let Ok(content) = &payload.content {
                all.add(content);
            }
        }
    }
    let mut few_bits = None;
    let mut largest: Option<(u64, String, u32)> = None;
    for (stored, count) in &all.weights {
        if stored.bits <= 4 {
            few_bits = Some(stored.to_string());
        }
        if largest
            .as_ref()
            .is_none_or(|(most, ..)| count.elements > *most)
        {
            largest = Some((count.elements, stored.element.clone(), stored.bits));
        }
    }
    if let Some(stored) = few_bits {
        let by_eight = all
            .computation_types
            .keys()
            .any(|name| name.contains("int8"));
        let token = if by_eight { "8da4w" } else { "int4" };
        return Some(InferredPrecision {
            token,
            evidence: format!("delegates hold {stored} weights"),
            guess: !by_eight,
        });
    }
    let (_, element, bits) = largest?;
    let token = token_of(&element).or((bits == 8).then_some("int8"))?;
    // Weights may be wide although all computation is in half precision.
    let halves = all.computation_types.keys().all(|name| name == "float16")
        && !all.computation_types.is_empty();
    let (token, evidence) = match (token, halves) {
        ("fp32", true) => ("fp16", "delegates compute in float16".to_owned()),
        _ => (
            token,
            format!("most weights of the delegates are {element}"),
        ),
    };
    Some(InferredPrecision {
        token,
        evidence,
        guess: false,
    })
}

/// Infers the precision from the types of inputs and outputs. It is a guess: a program may compute
/// in another type.
fn of_values(info: &ModelInfo) -> Option<InferredPrecision> {
    let methods = info.methods.iter().filter(|method| !method.constant);
    let mut floats: Vec<DType> = methods
        .flat_map(|method| method.inputs.iter().chain(&method.outputs))
        .filter_map(|value| match &value.tensor()?.element {
            ElementType::Known(dtype) => Some(*dtype),
            ElementType::Other(_) | ElementType::Pixels(_) => None,
        })
        .filter(|dtype| matches!(dtype, DType::Float32 | DType::Float16 | DType::Bfloat16))
        .collect();
    floats.dedup();
    let [dtype] = floats[..] else { return None };
    Some(InferredPrecision {
        token: token_of(dtype.name())?,
        evidence: format!("all floats of its inputs and outputs are {}", dtype.name()),
        guess: true,
    })
}

#[cfg(test)]
mod tests {
    use super::{ModelWeights, NumberPrecision, PrecisionList, of_program, of_weights};

    #[test]
    fn the_most_common_type_of_weights_decides() {
        let token = |types: &[(&str, u64)]| {
            let types = types
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            of_program(&types.collect()).map(|stored| stored.token)
        };
        assert_eq!(token(&[("float32", 10), ("int64", 400)]), Some("fp32"));
        assert_eq!(token(&[("float32", 10), ("int8", 400)]), Some("int8"));
        assert_eq!(token(&[("float16", 10)]), Some("fp16"));
        assert_eq!(token(&[("string", 10)]), None);
    }

    #[test]
    fn quantised_weights_are_counted_by_their_bits() {
        let list = PrecisionList {
            quantized: vec!["int8".to_owned(), "4w".to_owned()],
            non_quantized: vec!["fp32".to_owned()],
        };
        let stored = |kinds: &[(NumberPrecision, u64)], whole: bool| {
            let weights = ModelWeights {
                elements: kinds.iter().copied().collect(),
                is_complete: whole,
                ..ModelWeights::none()
            };
            of_weights(&weights, &list).map(|stored| stored.token)
        };
        let token = |kinds: &[(NumberPrecision, u64)]| stored(kinds, true);
        let most = |kind| token(&[(NumberPrecision::Float32, 10), (kind, 990)]);
        assert_eq!(most(NumberPrecision::EightBits), Some("int8"));
        assert_eq!(
            most(NumberPrecision::FourBits),
            Some("4w"),
            "the list has no int4"
        );
        assert_eq!(most(NumberPrecision::Float16), None, "the list has no fp16");
        assert_eq!(token(&[]), None);
        assert_eq!(
            stored(&[(NumberPrecision::Float32, 10)], false),
            None,
            "or others"
        );
    }
}
