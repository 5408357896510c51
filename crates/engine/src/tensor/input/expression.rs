//! Parses dimensions that are sums of others, such as `past_sequence_length + sequence_length`.
//!
//! Exporters write such a sum as the name of a dimension, or imply it by conventional names.
//! Invariant: a definition refers only to symbols of the same inputs. Any other expression is
//! treated as a plain symbol. Values are handled elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pkgtool_model::Dim;

/// Names that exporters write for unnamed dimensions; equal ones do not mean equal sizes.
const PLACEHOLDER_NAMES: [&str; 4] = ["", "?", "None", "-1"];

/// Returns the symbol of a dimension, if it has a meaningful one.
pub(super) fn symbol(dim: &Dim) -> Option<&str> {
    let Dim::Dynamic { name, .. } = dim else {
        return None;
    };
    name.as_deref()
        .filter(|name| !PLACEHOLDER_NAMES.contains(name))
}

/// Prefixes of a total, followed by the name of its newest part: `total_sequence_length` is
/// `sequence_length` plus `past_sequence_length`.
const TOTAL_PREFIXES: [&str; 2] = ["total_", "attention_mask_"];
/// Prefix of the part that came before.
pub(super) const PAST_PREFIX: &str = "past_";

/// A linear expression: multiples of symbols plus a constant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LinearExpression {
    /// Symbols with their factors, none of which is 0.
    pub(super) terms: BTreeMap<String, i64>,
    /// The constant.
    pub(super) constant: i64,
}

/// Returns the symbols that others of them define, with their definitions.
pub(super) fn definitions(symbols: &BTreeSet<&str>) -> Vec<(String, LinearExpression)> {
    let defined = symbols.iter().filter_map(|symbol| {
        let linear = LinearExpression::parse(symbol)
            .filter(|linear| !linear.is(symbol))
            .or_else(|| total_definition(symbol, symbols))?;
        let known = |term: &String| term != symbol && symbols.contains(term.as_str());
        let is_definition = !linear.terms.is_empty() && linear.terms.keys().all(known);
        is_definition.then(|| ((*symbol).to_owned(), linear))
    });
    defined.collect()
}

/// Defines `total_sequence_length` if `past_sequence_length` and `sequence_length` exist.
fn total_definition(symbol: &str, symbols: &BTreeSet<&str>) -> Option<LinearExpression> {
    let newest = TOTAL_PREFIXES
        .iter()
        .find_map(|prefix| symbol.strip_prefix(prefix))?;
    let earlier = format!("{PAST_PREFIX}{newest}");
    let both = symbols.contains(newest) && symbols.contains(earlier.as_str());
    both.then(|| LinearExpression {
        terms: BTreeMap::from([(newest.to_owned(), 1), (earlier, 1)]),
        constant: 0,
    })
}

impl LinearExpression {
    /// Parses a sum with `+`, `-`, `*` and parentheses; returns `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser {
            rest: text,
            depth: 0,
        };
        let sum = parser.sum()?;
        parser.rest.trim_start().is_empty().then_some(sum)
    }

    /// Returns whether the expression is exactly this symbol.
    fn is(&self, symbol: &str) -> bool {
        self.constant == 0 && self.terms.len() == 1 && self.terms.get(symbol) == Some(&1)
    }

    /// Replaces a symbol with a number.
    pub(super) fn substitute(&mut self, symbol: &str, size: u64) -> Option<()> {
        if let Some(factor) = self.terms.remove(symbol) {
            let value = i64::try_from(size).ok()?.checked_mul(factor)?;
            self.constant = self.constant.checked_add(value)?;
        }
        Some(())
    }

    fn add(mut self, other: &Self, factor: i64) -> Option<Self> {
        self.constant = self
            .constant
            .checked_add(other.constant.checked_mul(factor)?)?;
        for (symbol, times) in &other.terms {
            let entry = self.terms.entry(symbol.clone()).or_default();
            *entry = entry.checked_add(times.checked_mul(factor)?)?;
        }
        self.terms.retain(|_, factor| *factor != 0);
        Some(self)
    }

    fn times(&self, other: &Self) -> Option<Self> {
        match (self.terms.is_empty(), other.terms.is_empty()) {
            (true, _) => Self::default().add(other, self.constant),
            (_, true) => Self::default().add(self, other.constant),
            _ => None,
        }
    }
}

/// Formats the expression in the syntax that `parse` accepts.
impl fmt::Display for LinearExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self
            .terms
            .iter()
            .map(|(symbol, factor)| match factor.unsigned_abs() {
                1 => (*factor, symbol.clone()),
                times => (*factor, format!("{times}*{symbol}")),
            });
        let constant = (self.constant, self.constant.unsigned_abs().to_string());
        let has_constant = self.constant != 0 || self.terms.is_empty();
        let parts = terms.chain(has_constant.then_some(constant));
        for (place, (sign, text)) in parts.enumerate() {
            match (place, sign < 0) {
                (0, false) => f.write_str(&text)?,
                (0, true) => write!(f, "-{text}")?,
                (_, false) => write!(f, " + {text}")?,
                (_, true) => write!(f, " - {text}")?,
            }
        }
        Ok(())
    }
}

/// Maximum nesting of parentheses.
const MAX_DEPTH: u32 = 16;

struct Parser<'t> {
    rest: &'t str,
    depth: u32,
}

impl Parser<'_> {
    fn sum(&mut self) -> Option<LinearExpression> {
        let first = if self.accept('-') { -1 } else { 1 };
        let mut sum = LinearExpression::default().add(&self.product()?, first)?;
        loop {
            let sign = if self.accept('+') {
                1
            } else if self.accept('-') {
                -1
            } else {
                return Some(sum);
            };
            sum = sum.add(&self.product()?, sign)?;
        }
    }

    fn product(&mut self) -> Option<LinearExpression> {
        let mut product = self.factor()?;
        while self.accept('*') {
            product = product.times(&self.factor()?)?;
        }
        Some(product)
    }

    fn factor(&mut self) -> Option<LinearExpression> {
        if self.accept('(') {
            self.depth += 1;
            let inner = (self.depth <= MAX_DEPTH).then(|| self.sum())??;
            self.depth -= 1;
            return self.accept(')').then_some(inner);
        }
        self.rest = self.rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let constant = word.parse().ok()?;
            return Some(LinearExpression {
                constant,
                ..LinearExpression::default()
            });
        }
        (!word.is_empty()).then(|| LinearExpression {
            terms: BTreeMap::from([(word.to_owned(), 1)]),
            constant: 0,
        })
    }

    fn accept(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        if let Some(rest) = rest {
            self.rest = rest;
        }
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Option<String> {
        LinearExpression::parse(text).map(|linear| linear.to_string())
    }

    #[test]
    fn sums_are_read_and_written() {
        for (text, expected) in [
            ("past + seq", Some("past + seq")),
            ("past+1", Some("past + 1")),
            ("2*(a + 3) - b", Some("2*a - b + 6")),
            ("a*4 - a", Some("3*a")),
            ("-a", Some("-a")),
            ("7", Some("7")),
            ("a*b", None),
            ("floor(a/2)", None),
            ("a +", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(written(text).as_deref(), expected, "{text}");
        }
        assert_eq!(written(&"(".repeat(100_000)), None);
    }

    #[test]
    fn only_symbols_that_are_there_define() {
        let defined = |symbols: &[&str]| -> Vec<String> {
            let symbols = symbols.iter().copied().collect();
            let all = definitions(&symbols).into_iter();
            all.map(|(symbol, linear)| format!("{symbol} = {linear}"))
                .collect()
        };
        assert_eq!(defined(&["batch-size", "batch"]), [""; 0]);
        assert_eq!(
            defined(&["past + seq", "past", "seq"]),
            ["past + seq = past + seq"]
        );
        assert_eq!(
            defined(&["total_n", "past_n", "n"]),
            ["total_n = n + past_n"]
        );
        assert_eq!(defined(&["total_n", "n"]), [""; 0]);
    }
}
