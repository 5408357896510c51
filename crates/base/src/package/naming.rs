//! The naming convention of model files:
//! `<model>[_<size>][_<component>]_<backend>_<precision>.<extension>`, lower case.
//!
//! Tokens may themselves contain `_` (`0_6b`, `qat_lora`), and publishers add free tokens (a chip
//! before `qnn`, a resolution at the end). So only the fixed parts are required: first the model,
//! then the backend, then the precision.

use super::Backend;

/// Words for the components of pipelines, in the order in which the components run.
pub const PARTS: [&str; 17] = [
    "scheduler",
    "tokenizer",
    "preprocessor",
    "text",
    "image",
    "vision",
    "audio",
    "encoder",
    "embedding",
    "detector",
    "unet",
    "transformer",
    "decoder",
    "joiner",
    "recognizer",
    "vae",
    "vocoder",
];

/// The expected parts of a file name.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedName<'a> {
    /// Model token.
    pub model: Option<&'a str>,
    /// Size token.
    pub size: Option<&'a str>,
    /// Component name, in a multi-component variant.
    pub component: Option<&'a str>,
    /// Target backend.
    pub backend: Backend,
    /// Precision token.
    pub precision: &'a str,
}

/// A deviation of a name from the convention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameFault {
    /// Characters other than `a-z`, `0-9` and `_` before the extension.
    Characters,
    /// Contains the name of another backend.
    OtherBackend(Backend),
    /// Contains another precision of the list.
    OtherPrecision(String),
    /// Does not begin with the model token.
    NoModel,
    /// Has no backend token after the model.
    NoBackend,
    /// Has no precision token.
    NoPrecision,
}

impl ExpectedName<'_> {
    /// Returns the conventional name with this extension.
    pub fn name(&self, extension: &str) -> String {
        let tokens = [
            self.model,
            self.size,
            self.component,
            Some(self.backend.name()),
            Some(self.precision),
        ];
        let stem = tokens.into_iter().flatten().collect::<Vec<_>>().join("_");
        format!("{stem}.{extension}")
    }

    /// Checks `file_name` against the convention; `known` are the tokens of the precision list.
    pub fn check<'k>(
        &self,
        file_name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Result<(), NameFault> {
        let stem = file_name
            .rsplit_once('.')
            .map_or(file_name, |(stem, _)| stem);
        if !stem
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            return Err(NameFault::Characters);
        }
        let rest = match self.model {
            Some(model) => strip_token(stem, model),
            None => Some(stem),
        };
        let tail = rest.unwrap_or(stem);
        self.check_backend(tail)?;
        self.check_precision(tail, known)?;
        if rest.is_none() {
            return Err(NameFault::NoModel);
        }
        Ok(())
    }

    fn check_backend(&self, tail: &str) -> Result<(), NameFault> {
        if has_token(tail, self.backend.name()) {
            return Ok(());
        }
        let other = Backend::ALL
            .into_iter()
            .find(|backend| has_token(tail, backend.name()));
        Err(other.map_or(NameFault::NoBackend, NameFault::OtherBackend))
    }

    fn check_precision<'k>(
        &self,
        tail: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Result<(), NameFault> {
        if has_token(tail, self.precision) {
            return Ok(());
        }
        // The longest token wins: `qat_lora` rather than a token that it contains.
        let other = known
            .filter(|token| has_token(tail, token))
            .max_by_key(|token| token.len());
        Err(other.map_or(NameFault::NoPrecision, |token| {
            NameFault::OtherPrecision(token.to_owned())
        }))
    }
}

/// Returns the rest of `stem` after the leading `token`.
fn strip_token<'s>(stem: &'s str, token: &str) -> Option<&'s str> {
    let rest = stem.strip_prefix(token)?;
    (rest.is_empty() || rest.starts_with('_')).then_some(rest)
}

/// Returns whether `text` contains `token` between `_` or the ends.
pub fn has_token(text: &str, token: &str) -> bool {
    let mut starts = std::iter::successors(Some(text), |rest| Some(rest.split_once('_')?.1));
    !token.is_empty() && starts.any(|rest| strip_token(rest, token).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [&str; 4] = ["int8", "8da4w", "qat_lora", "fp32"];

    fn check(model: &str, backend: Backend, precision: &str, name: &str) -> Result<(), NameFault> {
        let expected = ExpectedName {
            model: Some(model),
            size: None,
            component: None,
            backend,
            precision,
        };
        expected.check(name, TOKENS.into_iter())
    }

    #[test]
    fn names_in_the_wild_pass() {
        for (model, backend, precision, name) in [
            (
                "whisper_tiny_en",
                Backend::Xnnpack,
                "8da4w",
                "whisper_tiny_en_encoder_xnnpack_8da4w.pte",
            ),
            (
                "qwen_3",
                Backend::Xnnpack,
                "8da4w",
                "qwen_3_0_6b_xnnpack_8da4w.pte",
            ),
            ("yolo", Backend::Qnn, "int8", "yolo_sm8650_qnn_int8.pte"),
            (
                "lraspp",
                Backend::Xnnpack,
                "fp32",
                "lraspp_xnnpack_fp32_256.pte",
            ),
            (
                "llama",
                Backend::Xnnpack,
                "qat_lora",
                "llama_1b_xnnpack_qat_lora.pte",
            ),
        ] {
            assert_eq!(check(model, backend, precision, name), Ok(()), "{name}");
        }
    }

    #[test]
    fn departures_are_told_apart() {
        let at = |name| check("m", Backend::CoreMl, "fp32", name);
        assert_eq!(at("M_coreml_fp32.pte"), Err(NameFault::Characters));
        assert_eq!(
            at("m_xnnpack_fp32.pte"),
            Err(NameFault::OtherBackend(Backend::Xnnpack))
        );
        assert_eq!(
            at("m_coreml_qat_lora.pte"),
            Err(NameFault::OtherPrecision("qat_lora".to_owned()))
        );
        assert_eq!(at("other_coreml_fp32.pte"), Err(NameFault::NoModel));
        assert_eq!(at("m_fp32.pte"), Err(NameFault::NoBackend));
        assert_eq!(at("m_coreml.pte"), Err(NameFault::NoPrecision));
    }
}
