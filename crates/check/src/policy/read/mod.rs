//! Parses a `pkgtool.toml`: every key and value with its location, and a finding for each error.
//!
//! Invariant: it accepts exactly the files that match `schemas/pkgtool.schema.json`, and also
//! checks the names of rules and globs. Invalid entries are ignored, and valid ones take effect.

mod exceptions;
mod overlay;

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::globs::{Glob, MAX_GLOBS};
use super::selector::{RuleLevel, Selector};
use super::settings::PolicySettings;
use super::words;
use crate::validate::{is_uri, settings_invalid};
use pkgtool_base::diagnostic::{Anchor, Finding, RuleMeta, Severity, SourceText};
use pkgtool_base::package::license::{self, License};
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{Backend, PrecisionList};
use pkgtool_base::source::{JsonPath, Span};

/// The keys of a `pkgtool.toml`.
pub const SETTINGS_KEYS: [&str; 18] = [
    "root",
    "select",
    "ignore",
    "severity",
    "per-path-ignores",
    "exclude",
    "respect-gitignore",
    "deny-warnings",
    "extra-precisions",
    "schema",
    "schema-id",
    "recipes",
    "allow-licenses",
    "require-backends",
    "require-capabilities",
    "baseline",
    "exception",
    "description",
];

/// The keys of `extra-precisions`.
pub const PRECISION_KEYS: [&str; 2] = ["quantized", "non-quantized"];

/// Maximum number of findings per file.
const MAX_FINDINGS: usize = 1000;

pub use exceptions::EXCEPTION_KEYS;

type SettingsValue<'a> = Spanned<DeValue<'a>>;

/// Parses settings from the text of `file`, an absolute path that reports show as `shown`.
pub(super) fn read(file: &Path, shown: String, text: String) -> PolicySettings {
    let source = Arc::new(SourceText::new(shown, text));
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = SettingsReader {
        directory: &directory,
        shown: &source.path,
        settings: PolicySettings {
            root: directory.clone(),
            ..PolicySettings::default()
        },
        findings: Vec::new(),
    };
    let (root, errors) = DeTable::parse_recoverable(&source.text);
    for error in errors.into_iter().take(MAX_FINDINGS) {
        let span = error.span().unwrap_or(0..0);
        let message = format!("invalid TOML: {}", error.message());
        let finding = settings_invalid(Anchor::Text(span.into()), message);
        let help = "the readable part of the file takes effect; https://toml.io describes TOML";
        reader.findings.push(finding.help(help));
    }
    reader.table(root.get_ref());
    let SettingsReader {
        mut settings,
        mut findings,
        ..
    } = reader;
    findings.truncate(MAX_FINDINGS);
    let located = findings.into_iter().map(|one| one.locate(&source, None));
    settings.findings = located.collect();
    settings.file = Some((file.to_owned(), source));
    settings
}

/// Returns the settings of an unreadable file, with a finding about the reason.
pub(super) fn unreadable(file: &Path, shown: String, reason: &str, help: &str) -> PolicySettings {
    let source = Arc::new(SourceText::new(shown, String::new()));
    let finding = settings_invalid(Anchor::File, reason).help(help);
    PolicySettings {
        root: file.parent().unwrap_or(Path::new("")).to_owned(),
        findings: vec![finding.locate(&source, None)],
        file: Some((file.to_owned(), source)),
        ..PolicySettings::default()
    }
}

struct SettingsReader<'a> {
    directory: &'a Path,
    /// Path of the file as reports show it.
    shown: &'a str,
    settings: PolicySettings,
    findings: Vec<Finding>,
}

impl SettingsReader<'_> {
    fn table(&mut self, table: &DeTable<'_>) {
        let root = JsonPath::root();
        for (key, value) in table {
            let path = root.key(key.get_ref());
            let name: &str = key.get_ref();
            self.settings
                .keys
                .push((name.to_owned(), key.span().into()));
            match key.get_ref().as_ref() {
                "description" => {
                    self.string(&path, value);
                }
                "root" => self.root(&path, value),
                "select" => self.settings.select = self.selectors(&path, value),
                "ignore" => self.settings.ignore = self.selectors(&path, value).unwrap_or_default(),
                "severity" => self.severity(&path, value),
                "per-path-ignores" => self.per_path(&path, value),
                "exclude" => self.exclude(&path, value),
                "respect-gitignore" => {
                    self.settings.respect_gitignore = self.boolean(&path, value);
                }
                "deny-warnings" => {
                    self.settings.deny_warnings = self.boolean(&path, value) == Some(true);
                }
                "extra-precisions" => self.extra(&path, value),
                "schema" => self.schema(&path, value),
                "schema-id" => self.schema_id(&path, value),
                "recipes" => self.recipes(&path, value),
                "allow-licenses" => self.licenses(&path, value),
                "require-backends" => self.backends(&path, value),
                "require-capabilities" => self.capabilities(&path, value),
                "baseline" => self.baseline(&path, value),
                "exception" => self.exceptions(&path, value),
                other => self.unknown_key(&path, key.span().into(), other, &SETTINGS_KEYS),
            }
        }
    }

    fn wrong(
        &mut self,
        path: &JsonPath,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let anchor = Anchor::At(path.clone(), span);
        self.findings
            .push(settings_invalid(anchor, message).help(help));
    }

    fn unknown_key(&mut self, path: &JsonPath, span: Span, key: &str, known: &[&str]) {
        let help = words::meant_or_all(key, known, "keys");
        self.wrong(
            path,
            span,
            format!("unknown key `{}`", words::cut(key)),
            help,
        );
    }

    fn expected(&mut self, path: &JsonPath, value: &SettingsValue<'_>, what: &str) {
        let message = format!("expected {what}, found {}", words::kind(value.get_ref()));
        let help = words::how_to_write(what, value.get_ref());
        self.wrong(path, value.span().into(), message, help);
    }

    fn string<'v>(&mut self, path: &JsonPath, value: &'v SettingsValue<'_>) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.expected(path, value, "a string");
        }
        text
    }

    /// Returns a string that is not empty.
    fn words<'v>(&mut self, path: &JsonPath, value: &'v SettingsValue<'_>) -> Option<&'v str> {
        let text = self.string(path, value)?;
        if text.trim().is_empty() {
            self.wrong(
                path,
                value.span().into(),
                "must not be empty",
                "write a value, or remove the key",
            );
            return None;
        }
        Some(text)
    }

    fn boolean(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<bool> {
        let answer = value.get_ref().as_bool();
        if answer.is_none() {
            self.expected(path, value, "true or false");
        }
        answer
    }

    /// Returns the strings of an array, each with its path and span.
    fn strings<'v>(
        &mut self,
        path: &JsonPath,
        value: &'v SettingsValue<'_>,
    ) -> Option<Vec<(JsonPath, Span, &'v str)>> {
        let Some(array) = value.get_ref().as_array() else {
            self.expected(path, value, "an array of strings");
            return None;
        };
        let mut strings = Vec::new();
        for (index, element) in array.iter().enumerate() {
            let path = path.index(index);
            if let Some(text) = self.string(&path, element) {
                strings.push((path, element.span().into(), text));
            }
        }
        Some(strings)
    }

    /// Returns the members of a table, each with its path and the span of its key.
    fn members<'v, 't>(
        &mut self,
        path: &JsonPath,
        value: &'v SettingsValue<'t>,
    ) -> Vec<(JsonPath, Span, &'v str, &'v SettingsValue<'t>)> {
        let Some(table) = value.get_ref().as_table() else {
            self.expected(path, value, "a table");
            return Vec::new();
        };
        let members = table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            (path.key(name), Span::from(key.span()), name, value)
        });
        members.collect()
    }

    fn root(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let Some(text) = self.file_name(path, value) else {
            return;
        };
        let root = normalize(&self.directory.join(text));
        if !root.is_dir() {
            let message = format!("no such directory: `{}`", words::cut(text));
            let help = "write a path relative to this file's directory, which is `.`";
            self.wrong(path, value.span().into(), message, help);
            return;
        }
        self.settings.root = root;
        self.settings.has_root = true;
    }

    fn baseline(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        if let Some(text) = self.file_name(path, value) {
            let file = normalize(&self.directory.join(text));
            self.settings.baseline = Some((file, value.span().into()));
        }
    }

    /// Checks that the recipes are files below the directory. `run` and `serve` read them.
    fn recipes(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        for (path, span, text) in self.strings(path, value).unwrap_or_default() {
            let help = "name a recipe (TOML), relative to this file";
            match self.below(&path, span, text, "put the recipe beside this file") {
                Some(text) if !self.directory.join(text).is_file() => {
                    let message = format!("no such file: `{}`", words::cut(text));
                    self.wrong(&path, span, message, help);
                }
                _ => {}
            }
        }
    }

    /// Returns a path that leads below the directory, without `./` in front.
    fn below<'v>(
        &mut self,
        path: &JsonPath,
        span: Span,
        text: &'v str,
        help: &str,
    ) -> Option<&'v str> {
        let text = text.strip_prefix("./").unwrap_or(text);
        let mut parts = text.split('/');
        if !text.starts_with('/') && !parts.any(|part| matches!(part, "" | "." | "..")) {
            return Some(text);
        }
        let message = format!(
            "expected a path below this directory, found `{}`",
            words::cut(text)
        );
        self.wrong(path, span, message, help);
        None
    }

    /// Returns a path with `/` as the separator.
    fn file_name<'v>(&mut self, path: &JsonPath, value: &'v SettingsValue<'_>) -> Option<&'v str> {
        let text = self.words(path, value)?;
        if text.contains('\\') {
            let help = format!("write \"{}\"", text.replace('\\', "/"));
            self.wrong(path, value.span().into(), "path with a backslash", help);
            return None;
        }
        Some(text)
    }

    fn selectors(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<Vec<Selector>> {
        let strings = self.strings(path, value)?;
        let read = strings.into_iter();
        Some(
            read.filter_map(|(path, span, text)| self.selector(&path, span, text))
                .collect(),
        )
    }

    fn selector(&mut self, path: &JsonPath, span: Span, text: &str) -> Option<Selector> {
        match Selector::parse(text) {
            Ok(selector) => Some(selector),
            Err(help) => {
                self.wrong(
                    path,
                    span,
                    format!("unknown rule `{}`", words::cut(text)),
                    help,
                );
                None
            }
        }
    }

    fn severity(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        for (path, span, name, value) in self.members(path, value) {
            let selector = self.selector(&path, span, name);
            let Some(text) = self.string(&path, value) else {
                continue;
            };
            let Some(level) = RuleLevel::from_name(text) else {
                let help = words::meant_or_all(text, &RuleLevel::NAMES, "levels");
                self.wrong(
                    &path,
                    value.span().into(),
                    format!("unknown level `{}`", words::cut(text)),
                    help,
                );
                continue;
            };
            let Some(selector) = selector else { continue };
            let twice = selector.rule().filter(|rule| {
                let mut known = self.settings.severity.iter();
                known.any(|(known, _)| known.rule().is_some_and(|known| known.code == rule.code))
            });
            if let Some(RuleMeta { name, code, .. }) = twice {
                let message = format!("`{name}` and `{code}` are the same rule");
                self.wrong(&path, span, message, "set its level only once");
                continue;
            }
            self.settings.severity.push((selector, level));
        }
    }

    fn per_path(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        for (number, (path, span, glob, value)) in self.members(path, value).into_iter().enumerate()
        {
            let glob = self.glob(number, &path, span, glob);
            let rules = self.selectors(&path, value);
            if let (Some(glob), Some(rules)) = (glob, rules) {
                self.settings.per_path_ignores.push((glob, rules));
            }
        }
    }

    fn exclude(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let strings = self.strings(path, value).unwrap_or_default();
        for (number, (path, span, text)) in strings.into_iter().enumerate() {
            let glob = self.glob(number, &path, span, text);
            self.settings.exclude.extend(glob);
        }
    }

    fn glob(&mut self, number: usize, path: &JsonPath, span: Span, text: &str) -> Option<Glob> {
        if number == MAX_GLOBS {
            let message = format!("too many globs: only the first {MAX_GLOBS} take effect");
            self.wrong(path, span, message, "combine several into one: `{a,b}/**`");
        }
        if number >= MAX_GLOBS {
            return None;
        }
        match Glob::parse(text) {
            Ok(glob) => Some(glob),
            Err((message, help)) => {
                self.wrong(path, span, message, help);
                None
            }
        }
    }

    fn extra(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let mut extra = PrecisionList::default();
        for (path, span, key, value) in self.members(path, value) {
            let (list, other) = match key {
                "quantized" => (&mut extra.quantized, &extra.non_quantized),
                "non-quantized" => (&mut extra.non_quantized, &extra.quantized),
                other => {
                    self.unknown_key(&path, span, other, &PRECISION_KEYS);
                    continue;
                }
            };
            for (path, span, token) in self.strings(&path, value).unwrap_or_default() {
                let is_token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
                if token.is_empty() || !token.bytes().all(is_token) {
                    let message = format!("invalid token `{}`", words::cut(token));
                    self.wrong(&path, span, message, "use only `a`–`z`, `0`–`9` and `_`");
                } else if other.iter().any(|known| known == token) {
                    let message = format!("`{token}` is listed as quantized and as non-quantized");
                    self.wrong(&path, span, message, "remove it from one of the two lists");
                } else {
                    list.push(token.to_owned());
                    let place = (token.to_owned(), path, span);
                    self.settings.extra_places.push(place);
                }
            }
        }
        self.settings.extra = extra;
    }

    fn schema_id(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let Some(text) = self.string(path, value) else {
            return;
        };
        if is_uri(text) {
            self.settings.schema_id = Some(text.to_owned());
        } else {
            let message = format!("invalid URI `{}`", words::cut(text));
            let help = "write the `$schema` of your packages, such as \"https://example.com/config.schema.json\"";
            self.wrong(path, value.span().into(), message, help);
        }
    }

    fn licenses(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let Some(strings) = self.strings(path, value) else {
            return;
        };
        let mut licenses = Vec::new();
        for (path, span, text) in strings {
            if text.trim().is_empty() {
                self.wrong(&path, span, "must not be empty", "write an SPDX identifier");
                continue;
            }
            let help = match license::classify(text) {
                License::Known => None,
                License::Meant(meant) => Some(format!("did you mean {}?", words::join_quoted(&meant))),
                License::Unknown => Some(
                    "see https://spdx.org/licenses, or write `LicenseRef-NAME` for your own licence"
                        .to_owned(),
                ),
            };
            if let Some(help) = help {
                let message = format!(
                    "unknown licence `{}`: expected an SPDX identifier or a short name of model cards",
                    words::cut(text)
                );
                let finding = settings_invalid(Anchor::At(path, span), message);
                self.findings
                    .push(finding.help(help).severity(Severity::Warning));
            }
            licenses.push(text.to_owned());
        }
        self.settings.licenses = Some(licenses);
    }

    fn backends(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let names = Backend::ALL.map(Backend::name);
        for name in self.known_words(path, value, "backend", &names) {
            self.settings.backends.extend(Backend::from_name(&name));
        }
    }

    fn capabilities(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let known = words::capabilities();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.settings.capabilities = self.known_words(path, value, "capability", &known);
    }

    fn known_words(
        &mut self,
        path: &JsonPath,
        value: &SettingsValue<'_>,
        noun: &str,
        known: &[&str],
    ) -> Vec<String> {
        let mut found = Vec::new();
        for (path, span, text) in self.strings(path, value).unwrap_or_default() {
            if known.contains(&text) {
                found.push(text.to_owned());
            } else {
                let help = words::meant_or_all(text, known, "words");
                let message = format!("unknown {noun} `{}`", words::cut(text));
                self.wrong(&path, span, message, help);
            }
        }
        found
    }
}
