//! Parses the names of model files and directories into tokens.
//!
//! The naming convention is `<model>[_<size>][_<component>]_<backend>_<precision>`. Names are
//! parsed from the end, because model tokens and sizes are arbitrary, while backends and precisions
//! are known words.

use pkgtool_base::package::{Backend, PrecisionList};

/// The parts of a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameParts {
    /// The part before backend and precision: model, size, component.
    pub(super) head: String,
    /// The backend.
    pub(super) backend: Option<Backend>,
    /// The precision, a token of the list.
    pub(super) precision: Option<String>,
}

/// Parses the name of a model file.
pub(super) fn parse_name(file_name: &str, list: &PrecisionList) -> NameParts {
    let stem = file_name
        .rsplit_once('.')
        .map_or(file_name, |(stem, _)| stem);
    let name = token(stem);
    let backends = Backend::ALL.into_iter();
    let backend = backends
        .filter_map(|backend| Some((last_place(&name, backend.name())?, backend)))
        .max_by_key(|(at, _)| *at);
    let behind = backend.map_or(0, |(at, _)| at);
    let precisions = list
        .tokens()
        .filter_map(|token| Some((last_place(&name, token)?, token)));
    // A precision after the backend takes precedence; then the longest token, such as `qat_lora`
    // rather than a part of it.
    let precision = precisions.max_by_key(|(at, token)| (*at > behind, token.len(), *at));
    let places = [backend.map(|(at, _)| at), precision.map(|(at, _)| at)];
    let end = places.into_iter().flatten().min().unwrap_or(name.len());
    NameParts {
        head: name[..end].trim_end_matches('_').to_owned(),
        backend: backend.map(|(_, backend)| backend),
        precision: precision.map(|(_, token)| token.to_owned()),
    }
}

/// Converts a name to a token: lower case, `_` for everything but letters and digits.
pub(super) fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            token.push(c.to_ascii_lowercase());
        } else if !token.is_empty() && !token.ends_with('_') {
            token.push('_');
        }
    }
    token.truncate(token.trim_end_matches('_').len());
    token
}

/// Returns `text` without `token` at its end; `None` if `token` is missing or the rest would be
/// empty.
pub(super) fn strip_end<'t>(text: &'t str, token: &str) -> Option<&'t str> {
    let rest = text.strip_suffix(token)?.strip_suffix('_')?;
    (!rest.is_empty()).then_some(rest)
}

/// Returns the part of `text` after a leading `token`; empty if `text` equals `token`.
pub(super) fn rest_after<'t>(text: &'t str, token: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(token)?;
    if rest.is_empty() || token.is_empty() {
        return Some(rest);
    }
    rest.strip_prefix('_')
}

/// Returns the tokens with which all of `heads` begin.
pub(super) fn common_beginning(heads: &[&str]) -> String {
    let mut heads = heads.iter();
    let Some(first) = heads.next() else {
        return String::new();
    };
    let mut common: Vec<&str> = first.split('_').collect();
    for head in heads {
        let same = common.iter().zip(head.split('_'));
        let length = same.take_while(|(one, other)| **one == *other).count();
        common.truncate(length);
    }
    common.join("_")
}

fn last_place(name: &str, token: &str) -> Option<usize> {
    if token.is_empty() {
        return None;
    }
    let places = name.rmatch_indices(token);
    let mut places = places.map(|(at, _)| at);
    places.find(|at| {
        let end = at + token.len();
        let before = *at == 0 || name.as_bytes()[at - 1] == b'_';
        before && (end == name.len() || name.as_bytes()[end] == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::{common_beginning, parse_name, token};
    use pkgtool_base::package::PrecisionList;

    #[test]
    fn names_come_apart() {
        let list = PrecisionList::embedded();
        for (name, head, backend, precision) in [
            ("glimpse_xnnpack_fp32.pte", "glimpse", "xnnpack", "fp32"),
            ("lraspp_xnnpack_fp32_256.pte", "lraspp", "xnnpack", "fp32"),
            ("yolo_sm8650_qnn_int8.pte", "yolo_sm8650", "qnn", "int8"),
            (
                "llama_1b_xnnpack_qat_lora.pte",
                "llama_1b",
                "xnnpack",
                "qat_lora",
            ),
            (
                "Llama-3.2-1B.XNNPACK-8da4w.pte",
                "llama_3_2_1b",
                "xnnpack",
                "8da4w",
            ),
            (
                "int8_study_xnnpack_fp32.pte",
                "int8_study",
                "xnnpack",
                "fp32",
            ),
            ("m_fp32_vulkan.pte", "m", "vulkan", "fp32"),
            ("qnn_bench_qnn_fp16.onnx", "qnn_bench", "qnn", "fp16"),
            ("model.onnx", "model", "", ""),
            ("xnnpack_fp32.pte", "", "xnnpack", "fp32"),
        ] {
            let parts = parse_name(name, &list);
            assert_eq!(parts.head, head, "{name}");
            assert_eq!(parts.backend.map_or("", |it| it.name()), backend, "{name}");
            assert_eq!(parts.precision.unwrap_or_default(), precision, "{name}");
        }
        assert_eq!(token("  Whisper--tiny.en! "), "whisper_tiny_en");
        assert_eq!(token("…"), "");
        assert_eq!(common_beginning(&["a_b_c", "a_b_d", "a_bc"]), "a");
    }
}
