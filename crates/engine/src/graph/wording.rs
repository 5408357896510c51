//! Rewrites errors and panics of the tract library into short texts for users.
//!
//! The library's errors list every layer on the way, with rules, facts and conditions of its source
//! code. This module keeps the node that failed, the phase, and the cause, which comes last.
//!
//! Invariant: a text is one line of limited length, without source paths and without dumps of facts
//! or graphs.

use super::phrases::{reworded, with_dtypes};
use crate::refusal::reports_unsupported;

/// Maximum length of a message of the library, in characters.
const MAX_MESSAGE_CHARS: usize = 240;
/// Maximum length of a message with its context, in characters.
const MAX_REASON_CHARS: usize = 400;

/// A failure, described for users.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailureDescription {
    /// The library's name of the node that failed.
    pub(crate) node: Option<String>,
    /// The cause, without a full stop.
    pub(crate) reason: String,
}

/// The phase of the library that a layer of an error belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LibraryPhase {
    /// Inferring types, shapes and values.
    Fit,
    /// Converting a node to the library's own form.
    Form,
    /// Running a node.
    Run,
    /// Reading a node from the file.
    Read,
}

/// Prefixes of the layers' texts.
const LAYER_PREFIXES: [(&str, LibraryPhase); 10] = [
    ("Building node ", LibraryPhase::Read),
    ("Failed analyse for node", LibraryPhase::Fit),
    ("Infering facts", LibraryPhase::Fit),
    ("Applying rule", LibraryPhase::Fit),
    ("Translating node", LibraryPhase::Form),
    ("translating", LibraryPhase::Form),
    ("in output_facts invocation", LibraryPhase::Form),
    ("ToTypedTranslator", LibraryPhase::Form),
    ("Evaluating #", LibraryPhase::Run),
    ("Evaluating node", LibraryPhase::Run),
];

/// Starts of dumps within the library's messages.
const DUMP_STARTS: [&str; 8] = [
    " TypedFact",
    " InferenceFact",
    " TypedModel",
    " { ",
    ", a_trans",
    " #",
    "[Outlet",
    "\u{1b}[",
];

/// Describes an error by its texts, the outermost first.
pub(crate) fn of_error<'a>(texts: impl Iterator<Item = &'a str>) -> FailureDescription {
    let mut node = None;
    let mut about = None;
    let mut told: Vec<String> = Vec::new();
    for text in texts {
        let layer = LAYER_PREFIXES
            .iter()
            .find(|(start, _)| text.starts_with(start));
        if let Some((_, layer)) = layer {
            about = about.or(Some(*layer));
            node = node
                .or_else(|| quoted_node(text))
                .or_else(|| read_node(text));
            continue;
        }
        let text = clean(text);
        if !text.is_empty() && told.last() != Some(&text) {
            told.push(text);
        }
    }
    let said = match &told[..] {
        [] => "no reason given".to_owned(),
        [.., cause] if about.is_some() => cause.clone(),
        all => truncated(&all.join(": "), MAX_REASON_CHARS),
    };
    let reason = match about {
        Some(LibraryPhase::Fit) => format!("its types, shapes or values are inconsistent ({said})"),
        Some(LibraryPhase::Form) => format!("planning fails for these types and shapes ({said})"),
        Some(LibraryPhase::Run | LibraryPhase::Read) | None => said,
    };
    FailureDescription { node, reason }
}

/// Describes a panic by its message.
pub(crate) fn of_panic(message: &str) -> String {
    let said = clean(message);
    if said.is_empty() {
        return "internal error of the library".to_owned();
    }
    if said.starts_with("attempt to divide by zero")
        || said.starts_with("attempt to calculate the remainder with a divisor of zero")
    {
        return "an integer is divided by zero".to_owned();
    }
    // The library panics for some unsupported operators.
    if reports_unsupported(&said) {
        return said;
    }
    format!("internal error of the library ({said})")
}

/// Returns the node's name in `Failed analyse for node #3 "conv1" Conv`.
fn quoted_node(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('#')?;
    let (_, rest) = rest.split_once('"')?;
    rest.split_once('"').map(|(name, _)| name.to_owned())
}

/// Returns the node's name in `Building node conv1 (Conv)`.
fn read_node(text: &str) -> Option<String> {
    let (node, _) = text.strip_prefix("Building node ")?.rsplit_once(" (")?;
    Some(node.to_owned()).filter(|node| !node.is_empty())
}

/// Returns the library's message without internal details, translated if its phrase is known.
fn clean(text: &str) -> String {
    let unwrapped = "called `Result::unwrap()` on an `Err` value: ";
    let text = text.strip_prefix(unwrapped).unwrap_or(text);
    match reworded(text) {
        Some(told) => with_dtypes(&truncated(
            plain_values(&told).trim_end_matches('.'),
            MAX_MESSAGE_CHARS,
        )),
        None => with_dtypes(&cleaned(text)),
    }
}

/// Returns the library's message without source paths and dumps.
fn cleaned(text: &str) -> String {
    let is_source = |word: &&str| word.contains(".rs:") || word.contains("/src/");
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !is_source(word))
        .collect();
    let line = words.join(" ");
    let end = DUMP_STARTS.iter().filter_map(|dump| line.find(dump)).min();
    let line = plain_values(&line[..end.unwrap_or(line.len())]);
    let line = line.trim_end_matches([' ', '.', ',', ':', '(', '[']);
    let line = line.trim_end_matches(" at");
    if let Some((left, right)) = line
        .strip_prefix("Impossible to unify ")
        .and_then(|rest| rest.split_once(" with "))
    {
        return truncated(
            &format!("{left} and {right} must be equal"),
            MAX_MESSAGE_CHARS,
        );
    }
    if let Some((_, rest)) = line
        .strip_prefix("Condition failed: `")
        .and_then(|rest| rest.split_once('`'))
    {
        // The rest lists the compared values.
        return truncated(
            &format!("an internal condition does not hold{rest}"),
            MAX_MESSAGE_CHARS,
        );
    }
    truncated(line, MAX_MESSAGE_CHARS)
}

/// Rewrites `Val(2)` and `Sym(batch)` as `2` and `batch`.
fn plain_values(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    let next = |text: &str| {
        let found = ["Val(", "Sym(", "Only("].map(|start| (text.find(start), start.len()));
        found
            .into_iter()
            .filter_map(|(at, length)| Some((at?, length)))
            .min()
    };
    while let Some((at, length)) = next(rest) {
        let Some(end) = rest[at..].find(')') else {
            break;
        };
        plain.push_str(&rest[..at]);
        plain.push_str(&rest[at + length..at + end]);
        rest = &rest[at + end + 1..];
    }
    plain.push_str(rest);
    plain
}

/// Returns one line of at most `size` characters.
fn truncated(text: &str, size: usize) -> String {
    if text.chars().count() <= size {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(size).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &[&str]) -> (Option<String>, String) {
        let FailureDescription { node, reason } = of_error(texts.iter().copied());
        (node, reason)
    }

    #[test]
    fn the_cause_is_kept_and_the_layers_are_not() {
        let (node, reason) = told(&[
            "Failed analyse for node #4 \"y\" InferenceConcat",
            "Infering facts",
            "Applying rule inputs[0].shape[2] == inputs[1].shape[2]",
            "Impossible to unify Val(2) with Val(1)",
        ]);
        assert_eq!(node.as_deref(), Some("y"));
        assert_eq!(
            reason,
            "its types, shapes or values are inconsistent (2 and 1 must be equal)"
        );
        let (node, reason) = told(&[
            "Translating node #2 \"conv 1\" ConvHir ToTypedTranslator",
            "in output_facts invocation for conv 1: Conv",
            "Condition failed: `inputs[2].datum_type == i32::datum_type()` (F32 vs I32)",
        ]);
        assert_eq!(node.as_deref(), Some("conv 1"));
        assert_eq!(
            reason,
            "planning fails for these types and shapes (an internal condition does not hold \
             (float32 vs int32))"
        );
        let (node, reason) = told(&["Evaluating #3 \"y\" ScatterNd", "Bool is not a number"]);
        assert_eq!(
            (node.as_deref(), reason.as_str()),
            (Some("y"), "bool is not a number")
        );
    }

    #[test]
    fn dumps_and_paths_are_removed() {
        let dump = "Reshaping TypedFact { datum_type: F32, shape: [1, 2] } by [Val(2), Val(-1)]";
        assert_eq!(clean(dump), "Reshaping");
        assert_eq!(
            clean("no way at /home/builder/.cargo/registry/src/index/tract-core-1/src/a.rs:12:3"),
            "no way"
        );
        assert_eq!(
            of_panic(
                "called `Result::unwrap()` on an `Err` value: Inconsistent matmul: a: 1,1 b: 6,2, a_trans: false"
            ),
            "internal error of the library (matrices of the shapes [1,1] and [6,2] cannot be \
             multiplied)"
        );
        assert_eq!(of_panic(" \n"), "internal error of the library");
        assert_eq!(
            of_panic("not yet implemented: f16"),
            "not yet implemented: f16"
        );
        let long = "graph ".repeat(1000);
        assert!(clean(&long).chars().count() <= MAX_MESSAGE_CHARS + 1);
    }

    #[test]
    fn a_node_that_cannot_be_read_is_named_and_the_rest_is_reworded() {
        let (node, reason) = told(&[
            "Building node a (b) (QuantizeLinear)",
            "Tensor datum type error: tensor is U16, accessed as I8",
        ]);
        assert_eq!(node.as_deref(), Some("a (b)"));
        assert_eq!(
            reason,
            "the dtype uint16 is not supported here: expected int8"
        );
    }

    #[test]
    fn own_texts_are_kept() {
        for text in [
            "a shift of 8 bits by 9 would be computed wrongly",
            "no node of the graph computes a, b",
            "the index 1040 of `aten::embedding` is not below 1000",
        ] {
            assert_eq!(told(&[text]), (None, text.to_owned()));
        }
        let (_, both) = told(&["reading the weights", "there are 3 bytes instead of 4"]);
        assert_eq!(both, "reading the weights: there are 3 bytes instead of 4");
    }
}
