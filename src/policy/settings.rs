//! What a project has settled: the contents of a `pkgtool.toml`, and what a command line says instead.
//!
//! Invariant: what is here was understood; what was not is among the findings of the file it stands in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::value::Date;

use super::globs::Glob;
use super::selector::{Level, Selector};
use crate::diagnostic::{Diagnostic, RuleMeta, SourceText};
use crate::package::{Backend, PrecisionList};
use crate::source::{JsonPath, Span};

/// What holds for the files below a directory.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The file that says so, from the file system's root, and its text; `None` for a command line alone.
    pub file: Option<(PathBuf, Arc<SourceText>)>,
    /// What paths and globs are relative to, from the file system's root.
    pub root: PathBuf,
    /// The keys of the file, and where they stand.
    pub keys: Vec<(String, Span)>,
    /// Nested files that tighten these settings, as reports show them, the outermost first.
    pub tightened_by: Vec<String>,
    /// Whether the file says `root`.
    pub says_root: bool,
    /// The rules that are looked at; `None` for all.
    pub select: Option<Vec<Selector>>,
    /// Rules that are not.
    pub ignore: Vec<Selector>,
    /// Levels of rules.
    pub severity: Vec<(Selector, Level)>,
    /// Rules that are not looked at in some files.
    pub per_path_ignores: Vec<(Glob, Vec<Selector>)>,
    /// What walks leave out.
    pub exclude: Vec<Glob>,
    /// Whether walks leave out what git ignores; `None` for not said.
    pub respect_gitignore: Option<bool>,
    /// Whether warnings count as errors.
    pub deny_warnings: bool,
    /// Precision tokens beside those of the list in force.
    pub extra: PrecisionList,
    /// Where the file names them.
    pub extra_places: Vec<(String, JsonPath, Span)>,
    /// The format's identifier that packages have in `$schema`; `None` for not said.
    pub schema_id: Option<String>,
    /// The licences that are allowed; `None` for any.
    pub licenses: Option<Vec<String>>,
    /// Backends that every model is to have.
    pub backends: Vec<Backend>,
    /// Capabilities that every model is to have.
    pub capabilities: Vec<String>,
    /// The file of known findings, from the file system's root, and where it is named.
    pub baseline: Option<(PathBuf, Span)>,
    /// Findings that are known and have a reason.
    pub exceptions: Vec<Exception>,
    /// What is wrong with the file.
    pub findings: Vec<Diagnostic>,
}

/// Findings of one rule at one place that are not told, and why.
#[derive(Debug, Clone)]
pub struct Exception {
    /// The file, relative to the root, with `/` between its parts.
    pub file: String,
    /// A JSON Pointer: there and below. `""` is the whole file.
    pub pointer: String,
    /// The rule.
    pub rule: &'static RuleMeta,
    /// Why.
    pub reason: String,
    /// The last day on which it holds.
    pub until: Option<Date>,
    /// Where it stands.
    pub place: (JsonPath, Span),
}

/// What a command line says; it wins over every file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Looks at these rules, whatever a file selects, ignores or switches off.
    pub select: Vec<Selector>,
    /// Not at these, besides those that a file ignores.
    pub ignore: Vec<Selector>,
    /// Levels of rules, before those of a file.
    pub severity: Vec<(Selector, Level)>,
    /// Leaves these out as well, relative to the working directory.
    pub exclude: Vec<Glob>,
    /// Whether walks go into what git ignores.
    pub no_gitignore: bool,
    /// Tokens beside those of files.
    pub extra: PrecisionList,
    /// Allows these licences and no other, if there are any.
    pub licenses: Vec<String>,
    /// Requires these instead of a file's, if there are any.
    pub backends: Vec<Backend>,
    /// Requires these instead of a file's, if there are any.
    pub capabilities: Vec<String>,
}

/// The setting that gives a rule another level than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'s> {
    /// `select` names others.
    Select,
    /// `ignore` names it so.
    Ignore(&'s Selector),
    /// `severity` names it so.
    Severity(&'s Selector),
}

impl Overrides {
    /// Whether nothing is said that concerns what files are checked for.
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

impl Settings {
    /// These settings after a command line had its word.
    #[must_use]
    pub fn overridden(mut self, by: &Overrides) -> Self {
        if !by.select.is_empty() {
            self.select = Some(by.select.clone());
            self.ignore.clear();
            self.severity.retain(|(_, level)| *level != Level::Off);
        }
        self.ignore.extend(by.ignore.iter().cloned());
        for (selector, level) in &by.severity {
            // A rule that a level is given for is meant to be told.
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

    /// Whether a rule is looked at in the file of this path, from the file system's root.
    pub fn looks_at(&self, rule: &RuleMeta, file: &Path) -> bool {
        self.is_selected(rule) && !self.is_ignored_in(rule, file)
    }

    /// Whether a rule is looked at anywhere.
    pub fn is_selected(&self, rule: &RuleMeta) -> bool {
        self.in_force(rule).0 != Level::Off
    }

    /// The level of a rule, if one is set: what names it most exactly counts, and of equals the last.
    pub fn level(&self, rule: &RuleMeta) -> Option<Level> {
        self.leveled(rule).map(|(_, level)| *level)
    }

    /// The level at which findings of a rule are told, and the setting that makes it another than the rule's own.
    pub fn in_force(&self, rule: &RuleMeta) -> (Level, Option<Cause<'_>>) {
        let names = |list: &[Selector]| list.iter().any(|one| one.matches(rule));
        if !self.select.as_deref().is_none_or(names) {
            return (Level::Off, Some(Cause::Select));
        }
        if let Some(one) = self.ignore.iter().find(|one| one.matches(rule)) {
            return (Level::Off, Some(Cause::Ignore(one)));
        }
        let own = Level::At(rule.severity);
        match self.leveled(rule) {
            Some((one, level)) if *level != own => (*level, Some(Cause::Severity(one))),
            _ => (own, None),
        }
    }

    /// The globs of files in which a rule is not looked at.
    pub fn not_looked_at(&self, rule: &RuleMeta) -> impl Iterator<Item = &str> {
        let ignores = self.per_path_ignores.iter();
        let ignores = ignores.filter(|(_, rules)| rules.iter().any(|one| one.matches(rule)));
        ignores.map(|(glob, _)| glob.text())
    }

    fn leveled(&self, rule: &RuleMeta) -> Option<&(Selector, Level)> {
        let named = self.severity.iter().filter(|(one, _)| one.matches(rule));
        named.max_by_key(|(one, _)| one.precision())
    }

    /// A path relative to the root, with `/` between its parts; `None` outside of it.
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
    /// Whether it still holds on a day.
    pub fn holds_on(&self, today: Date) -> bool {
        let order = |day: Date| (day.year, day.month, day.day);
        self.until.is_none_or(|until| order(today) <= order(until))
    }

    /// Whether a finding of its rule is at its place: `pointers` are the ways to write that.
    pub fn is_at(&self, file: &str, pointers: [&str; 2]) -> bool {
        let below = |pointer: &str| {
            let rest = pointer.strip_prefix(self.pointer.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.file == file && pointers.into_iter().any(below)
    }
}

impl<'s> Cause<'s> {
    /// The setting's key in a file of settings.
    pub fn key(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Ignore(_) => "ignore",
            Self::Severity(_) => "severity",
        }
    }

    /// The rules as the setting names them; `None` where it does not name them.
    pub fn rules(self) -> Option<&'s str> {
        match self {
            Self::Select => None,
            Self::Ignore(one) | Self::Severity(one) => Some(one.text()),
        }
    }
}

/// Whether all that one selector means is meant by another.
fn is_within(one: &Selector, other: &Selector) -> bool {
    let rules = crate::validate::rule_metas();
    rules
        .iter()
        .all(|rule| !one.matches(rule) || other.matches(rule))
}
