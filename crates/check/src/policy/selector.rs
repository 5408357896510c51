//! Selectors of rules on the command line and in settings: a code, a name, a prefix of either, or
//! `all`.
//!
//! Invariant: a selector matches at least one rule.

use crate::validate::{find_rule, rule_metas};
use pkgtool_base::diagnostic::{RuleMeta, Severity};
use pkgtool_base::source::suggest;

/// The word for all rules.
const ALL: &str = "all";

/// A selector of rules: `PKG019`, `size-mismatch`, `PKG03`, `tensor`, `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(String);

/// The level at which findings of a rule are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleLevel {
    /// Reported with this severity.
    At(Severity),
    /// Not reported.
    Off,
}

impl Selector {
    /// Parses a selector, or returns a hint about the correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let selector = Self(text.to_owned());
        let metas = rule_metas();
        if metas.iter().any(|rule| selector.matches(rule)) {
            return Ok(selector);
        }
        let known = metas.iter().flat_map(|rule| [rule.name, rule.code]);
        let upper = text.to_ascii_uppercase();
        let meant =
            suggest::nearest(text, known.chain([ALL])).filter(|_| !upper.starts_with("PKG"));
        Err(match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => {
                "expected a rule's code or name, a prefix of one (`PKG03`, `tensor`), or `all`; \
                     `pkgtool rules` lists them"
                    .to_owned()
            }
        })
    }

    /// Returns the selector as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns whether the selector matches a rule.
    pub fn matches(&self, rule: &RuleMeta) -> bool {
        let Self(text) = self;
        if text == ALL || text == rule.name {
            return true;
        }
        // A prefix of a name must end at a word: `file` does not match `files-…`.
        let words = text.trim_end_matches('-');
        let below = rule.name.strip_prefix(words).filter(|_| !words.is_empty());
        let code = rule.code.get(..text.len()).unwrap_or_default();
        below.is_some_and(|rest| rest.starts_with('-'))
            || text.len() >= 3 && code.eq_ignore_ascii_case(text)
    }

    /// Returns the rule, if the selector is its whole code or name.
    pub fn rule(&self) -> Option<&'static RuleMeta> {
        find_rule(&self.0).ok()
    }

    /// Returns how specific the selector is. The most specific selector of a rule takes effect.
    pub fn specificity(&self) -> usize {
        match self.rule() {
            Some(_) => usize::MAX,
            None if self.0 == ALL => 0,
            None => self.0.len(),
        }
    }
}

impl RuleLevel {
    /// The names of the levels.
    pub const NAMES: [&str; 4] = ["error", "warning", "note", "off"];

    /// Returns the level of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        let found = severities.into_iter().find(|one| one.name() == name);
        found.map(Self::At).or((name == "off").then_some(Self::Off))
    }

    /// Returns `error`, `warning`, `note` or `off`.
    pub fn name(self) -> &'static str {
        match self {
            Self::At(severity) => severity.name(),
            Self::Off => "off",
        }
    }
}
