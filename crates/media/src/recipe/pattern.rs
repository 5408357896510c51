//! Patterns of tensors: `image: float[1?, 3, H, W]`.
//!
//! A dimension is a number, a symbol (a letter and further letters or digits), or a number with `?`, which may be
//! missing. Equal symbols stand for equal sizes. The dtype is `float` (any floating-point number), `int` (any
//! integer), `any`, or the name of a dtype.

use std::fmt;

use pkgtool_engine::tensor::{DType, TensorSpec};
use pkgtool_model::Dim;

use crate::operators::Symbols;

/// A named tensor of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorPattern {
    /// The name by which steps refer to it.
    pub(super) name: String,
    dtype: DTypePattern,
    dims: Vec<DimPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DTypePattern {
    Any,
    Float,
    Int,
    One(DType),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DimPattern {
    Size(u64),
    /// A leading size that may be missing.
    Optional(u64),
    Symbol(String),
}

impl TensorPattern {
    /// Parses a pattern.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected `name: dtype[sizes]`, such as `image: float[1?, 3, H, W]`";
        let wrong = |reason: &str| format!("invalid tensor `{text}`: {reason}");
        let parts = text.split_once(':').and_then(|(name, rest)| {
            let (dtype, dims) = rest.trim().strip_suffix(']')?.split_once('[')?;
            Some((name.trim(), dtype.trim(), dims))
        });
        let (name, dtype, dims) = parts.ok_or_else(|| wrong(FORM))?;
        if !is_name(name) {
            return Err(wrong(FORM));
        }
        let dtype = match dtype {
            "any" => DTypePattern::Any,
            "float" => DTypePattern::Float,
            "int" => DTypePattern::Int,
            name => {
                let known = DType::ALL
                    .into_iter()
                    .find(|dtype| dtype.to_string() == name);
                DTypePattern::One(known.ok_or_else(|| wrong(&format!("unknown dtype `{name}`")))?)
            }
        };
        let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
        let dims: Vec<_> = dims
            .map(|dim| {
                DimPattern::parse(dim).ok_or_else(|| wrong(&format!("invalid size `{dim}`")))
            })
            .collect::<Result<_, _>>()?;
        let is_optional = |dim: &&DimPattern| matches!(dim, DimPattern::Optional(_));
        let mut others = dims.iter().skip_while(is_optional);
        if others.any(|dim| is_optional(&dim)) {
            return Err(wrong("only the first sizes may be optional"));
        }
        let name = name.to_owned();
        Ok(Self { name, dtype, dims })
    }

    /// Returns whether a tensor fits, and adds the sizes of its symbols.
    pub(super) fn matches(&self, spec: &TensorSpec, symbols: &mut Symbols) -> bool {
        let Some(dims) = &spec.dims else {
            return false;
        };
        let dtype = match self.dtype {
            DTypePattern::Any => true,
            DTypePattern::Float => spec.dtype.is_float(),
            DTypePattern::Int => !spec.dtype.is_float() && spec.dtype != DType::Bool,
            DTypePattern::One(dtype) => dtype == spec.dtype,
        };
        let optional = self.dims.iter();
        let optional = optional.take_while(|dim| matches!(dim, DimPattern::Optional(_)));
        let missing = self.dims.len().checked_sub(dims.len());
        let Some(missing) = missing.filter(|missing| *missing <= optional.count()) else {
            return false;
        };
        dtype
            && self.dims[missing..]
                .iter()
                .zip(dims)
                .all(|(pattern, dim)| pattern.matches(dim, symbols))
    }

    /// Returns the size that stands for an open one at a place from the end, counted from 0.
    pub(super) fn size_from_end(&self, place: usize) -> u64 {
        match self.dims.iter().rev().nth(place) {
            Some(DimPattern::Size(size) | DimPattern::Optional(size)) => *size,
            _ => 1,
        }
    }

    /// Returns the position of a symbol among the sizes, counted from the last one.
    pub(super) fn place_from_end(&self, symbol: &str) -> Option<usize> {
        let is_it = |dim: &DimPattern| matches!(dim, DimPattern::Symbol(name) if name == symbol);
        self.dims.iter().rev().position(is_it)
    }
}

impl DimPattern {
    fn parse(text: &str) -> Option<Self> {
        if let Some(number) = text.strip_suffix('?') {
            return number.parse().ok().map(Self::Optional);
        }
        if let Ok(size) = text.parse() {
            return Some(Self::Size(size));
        }
        is_name(text).then(|| Self::Symbol(text.to_owned()))
    }

    fn matches(&self, dim: &Dim, symbols: &mut Symbols) -> bool {
        match self {
            Self::Size(wanted) | Self::Optional(wanted) => match dim {
                Dim::Fixed(size) => size == wanted,
                // One picture in a model that takes several.
                _ => *wanted == 1,
            },
            Self::Symbol(name) => {
                let size = match dim {
                    Dim::Fixed(size) => Some(*size),
                    _ => None,
                };
                let known = symbols.entry(name.clone()).or_insert(size);
                match (*known, size) {
                    (Some(known), Some(size)) => known == size,
                    (None, Some(_)) => {
                        *known = size;
                        true
                    }
                    _ => true,
                }
            }
        }
    }
}

/// Returns whether a text is a name: a letter, then letters, digits and underscores.
pub(super) fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for TensorPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = match &self.dtype {
            DTypePattern::Any => "any",
            DTypePattern::Float => "float",
            DTypePattern::Int => "int",
            DTypePattern::One(dtype) => return write!(f, "{dtype}[{}]", self.sizes()),
        };
        write!(f, "{dtype}[{}]", self.sizes())
    }
}

impl TensorPattern {
    fn sizes(&self) -> String {
        let sizes = self.dims.iter().map(|dim| match dim {
            DimPattern::Size(size) => size.to_string(),
            DimPattern::Optional(size) => format!("{size}?"),
            DimPattern::Symbol(name) => name.clone(),
        });
        sizes.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dtype: DType, dims: &[Option<u64>]) -> TensorSpec {
        let open = Dim::Dynamic {
            bound: None,
            name: None,
            allowed: None,
        };
        let dims = dims
            .iter()
            .map(|size| size.map_or(open.clone(), Dim::Fixed));
        TensorSpec {
            name: "x".to_owned(),
            dtype,
            dims: Some(dims.collect()),
            fixed: None,
            pixels: None,
        }
    }

    #[test]
    fn symbols_agree_across_tensors() {
        let image = TensorPattern::parse("image: float[1?, 3, H, W]").expect("a pattern");
        let mask = TensorPattern::parse("mask: float32[H, W]").expect("a pattern");
        let mut symbols = Symbols::new();
        let input = spec(DType::Float16, &[Some(1), Some(3), None, Some(8)]);
        assert!(image.matches(&input, &mut symbols));
        assert!(mask.matches(&spec(DType::Float32, &[Some(6), Some(8)]), &mut symbols));
        assert_eq!(symbols["H"], Some(6));
        assert!(!mask.matches(&spec(DType::Float32, &[Some(6), Some(9)]), &mut symbols));
        assert!(!mask.matches(&spec(DType::Float16, &[Some(6), Some(8)]), &mut symbols));
        let planes = spec(DType::Float32, &[Some(3), Some(6), Some(8)]);
        assert!(image.matches(&planes, &mut symbols));
        assert_eq!(image.place_from_end("H"), Some(1));
        assert_eq!(image.to_string(), "float[1?, 3, H, W]");
    }

    #[test]
    fn invalid_patterns_name_the_fault() {
        for (text, fault) in [
            ("image", "expected `name: dtype[sizes]`"),
            ("image: float[1", "expected `name: dtype[sizes]`"),
            ("image: real[1]", "unknown dtype `real`"),
            (
                "image: float[1, 2?]",
                "only the first sizes may be optional",
            ),
            ("image: float[-1]", "invalid size `-1`"),
            ("1mage: float[1]", "expected `name: dtype[sizes]`"),
        ] {
            let error = TensorPattern::parse(text).expect_err(text);
            assert!(error.contains(fault), "{text}: {error}");
        }
    }
}
