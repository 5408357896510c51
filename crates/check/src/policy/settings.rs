//! The settings of a project: the contents of a `pkgtool.toml`, and the overrides of a command
//! line.
//!
//! Invariant: settings contain only valid values. Errors are recorded as findings of the settings
//! file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::value::Date;

use super::globs::Glob;
use super::selector::{RuleLevel, Selector};
use crate::validate::Overlay;
use pkgtool_base::diagnostic::{Diagnostic, RuleMeta, SourceText};
use pkgtool_base::package::{Backend, PrecisionList};
use pkgtool_base::source::{JsonPath, Span};

/// The settings for the files below a directory.
#[derive(Debug, Clone, Default)]
pub struct PolicySettings {
    /// Absolute path and text of the settings file; `None` for a command line alone.
    pub file: Option<(PathBuf, Arc<SourceText>)>,
    /// Absolute path of the directory that paths and globs are relative to.
    pub root: PathBuf,
    /// The keys in the file and their spans.
    pub keys: Vec<(String, Span)>,
    /// Nested files that tighten these settings, as reports show them, outermost first.
    pub tightened_by: Vec<String>,
    /// Set if the file has the key `root`.
    pub has_root: bool,
    /// The enabled rules; `None` for all.
    pub select: Option<Vec<Selector>>,
    /// The disabled rules.
    pub ignore: Vec<Selector>,
    /// The levels of rules.
    pub severity: Vec<(Selector, RuleLevel)>,
    /// Rules that are disabled for some files.
    pub per_path_ignores: Vec<(Glob, Vec<Selector>)>,
    /// Paths that walks exclude.
    pub exclude: Vec<Glob>,
    /// Set if walks exclude paths that Git ignores; `None` if unspecified.
    pub respect_gitignore: Option<bool>,
    /// Set if warnings count as errors.
    pub deny_warnings: bool,
    /// Precision tokens in addition to the list in force.
    pub extra: PrecisionList,
    /// The locations of these tokens in the file.
    pub extra_places: Vec<(String, JsonPath, Span)>,
    /// The required value of `$schema`, an identifier of the format; `None` if unspecified.
    pub schema_id: Option<String>,
    /// Schemas that configs satisfy in addition to the built-in one, that of the outermost file
    /// first.
    pub overlays: Vec<Arc<Overlay>>,
    /// The allowed licences; `None` for any.
    pub licenses: Option<Vec<String>>,
    /// Backends that every model must have.
    pub backends: Vec<Backend>,
    /// Capabilities that every model must have.
    pub capabilities: Vec<String>,
    /// Absolute path of the baseline, and its location in the file.
    pub baseline: Option<(PathBuf, Span)>,
    /// Known findings with a reason.
    pub exceptions: Vec<Exception>,
    /// Errors in the file.
    pub findings: Vec<Diagnostic>,
}

/// An exception: suppresses the findings of one rule at one location, with a reason.
#[derive(Debug, Clone)]
pub struct Exception {
    /// Path of the file relative to the root, with `/` as the separator.
    pub file: String,
    /// JSON pointer of the location, which includes everything below it. `""` is the whole file.
    pub pointer: String,
    /// The suppressed rule.
    pub rule: &'static RuleMeta,
    /// The reason.
    pub reason: String,
    /// The last day on which the exception takes effect.
    pub until: Option<Date>,
    /// Location in the settings file.
    pub place: (JsonPath, Span),
}

/// The options of a command line, which override every settings file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Enables only these rules, even if a file disables them.
    pub select: Vec<Selector>,
    /// Disables these rules, in addition to those that a file disables.
    pub ignore: Vec<Selector>,
    /// Sets the levels of rules, overriding those of a file.
    pub severity: Vec<(Selector, RuleLevel)>,
    /// Excludes these paths as well, relative to the working directory.
    pub exclude: Vec<Glob>,
    /// Makes walks enter paths that Git ignores.
    pub no_gitignore: bool,
    /// Precision tokens in addition to those of files.
    pub extra: PrecisionList,
    /// If not empty, allows only these licences.
    pub licenses: Vec<String>,
    /// If not empty, requires these instead of a file's.
    pub backends: Vec<Backend>,
    /// If not empty, requires these instead of a file's.
    pub capabilities: Vec<String>,
}

/// The setting that changes the level of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'s> {
    /// `select` does not include the rule.
    Select,
    /// `ignore` lists the rule.
    Ignore(&'s Selector),
    /// `severity` lists the rule.
    Severity(&'s Selector),
}

impl Overrides {
    /// Returns whether no option affects the requirements on files.
    pub fn is_silent(&self) -> bool {
        self.select.is_empty()
            && self.ignore.is_empty()
            && self.severity.is_empty()
            && self.extra.tokens().next().is_none()
            && self.licenses.is_empty()
            && self.backends.is_empty()
            && self.capabilities.is_empty()
    }
}

impl PolicySettings {
    /// Applies the overrides of a command line.
    #[must_use]
    pub fn overridden(mut self, by: &Overrides) -> Self {
        if !by.select.is_empty() {
            self.select = Some(by.select.clone());
            self.ignore.clear();
            self.severity.retain(|(_, level)| *level != RuleLevel::Off);
        }
        self.ignore.extend(by.ignore.iter().cloned());
        for (selector, level) in &by.severity {
            // Setting the level of a rule on the command line enables the rule.
            self.severity
                .retain(|(known, _)| !is_within(known, selector));
            self.severity.push((selector.clone(), *level));
        }
        self.extra = by.extra.with(&self.extra);
        if !by.licenses.is_empty() {
            self.licenses = Some(by.licenses.clone());
        }
        if !by.backends.is_empty() {
            self.backends.clone_from(&by.backends);
        }
        if !by.capabilities.is_empty() {
            self.capabilities.clone_from(&by.capabilities);
        }
        self
    }

    /// Returns whether a rule is enabled for the file at this absolute path.
    pub fn is_enabled_for(&self, rule: &RuleMeta, file: &Path) -> bool {
        self.is_enabled(rule) && !self.is_ignored_in(rule, file)
    }

    /// Returns whether a rule is enabled for any file.
    pub fn is_enabled(&self, rule: &RuleMeta) -> bool {
        self.in_force(rule).0 != RuleLevel::Off
    }

    /// Returns the level of a rule, if one is set. The most specific selector takes effect, or the
    /// last of several equally specific ones.
    pub fn level(&self, rule: &RuleMeta) -> Option<RuleLevel> {
        self.level_entry(rule).map(|(_, level)| *level)
    }

    /// Returns the level of a rule in force, and the setting that makes it differ from the default.
    pub fn in_force(&self, rule: &RuleMeta) -> (RuleLevel, Option<Cause<'_>>) {
        let names = |list: &[Selector]| list.iter().any(|one| one.matches(rule));
        if !self.select.as_deref().is_none_or(names) {
            return (RuleLevel::Off, Some(Cause::Select));
        }
        if let Some(one) = self.ignore.iter().find(|one| one.matches(rule)) {
            return (RuleLevel::Off, Some(Cause::Ignore(one)));
        }
        let own = RuleLevel::At(rule.severity);
        match self.level_entry(rule) {
            Some((one, level)) if *level != own => (*level, Some(Cause::Severity(one))),
            _ => (own, None),
        }
    }

    /// Returns the globs of files for which a rule is disabled.
    pub fn disabled_globs(&self, rule: &RuleMeta) -> impl Iterator<Item = &str> {
        let ignores = self.per_path_ignores.iter();
        let ignores = ignores.filter(|(_, rules)| rules.iter().any(|one| one.matches(rule)));
        ignores.map(|(glob, _)| glob.text())
    }

    fn level_entry(&self, rule: &RuleMeta) -> Option<&(Selector, RuleLevel)> {
        let named = self.severity.iter().filter(|(one, _)| one.matches(rule));
        named.max_by_key(|(one, _)| one.specificity())
    }

    /// Returns a path relative to the root, or `None` if it is outside.
    pub fn relative<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.root).ok()
    }

    fn is_ignored_in(&self, rule: &RuleMeta, file: &Path) -> bool {
        let Some(file) = self.relative(file) else {
            return false;
        };
        self.per_path_ignores
            .iter()
            .any(|(glob, rules)| rules.iter().any(|one| one.matches(rule)) && glob.covers(file))
    }
}

impl Exception {
    /// Returns whether the exception takes effect on a day.
    pub fn holds_on(&self, today: Date) -> bool {
        let order = |day: Date| (day.year, day.month, day.day);
        self.until.is_none_or(|until| order(today) <= order(until))
    }

    /// Returns whether a finding of its rule is at its location. `pointers` are the two equivalent
    /// forms of the finding's pointer.
    pub fn is_at(&self, file: &str, pointers: [&str; 2]) -> bool {
        let below = |pointer: &str| {
            let rest = pointer.strip_prefix(self.pointer.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.file == file && pointers.into_iter().any(below)
    }
}

impl<'s> Cause<'s> {
    /// Returns the key of the setting.
    pub fn key(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Ignore(_) => "ignore",
            Self::Severity(_) => "severity",
        }
    }

    /// Returns the selector in the setting, if there is one.
    pub fn rules(self) -> Option<&'s str> {
        match self {
            Self::Select => None,
            Self::Ignore(one) | Self::Severity(one) => Some(one.text()),
        }
    }
}

/// Returns whether one selector matches only rules that the other matches, too.
fn is_within(one: &Selector, other: &Selector) -> bool {
    let rules = crate::validate::rule_metas();
    rules
        .iter()
        .all(|rule| !one.matches(rule) || other.matches(rule))
}
