//! Parses the exceptions in a settings file.
//!
//! Invariant: an exception with an error has no effect, since it could hide more than intended.

use toml::de::DeValue;
use toml::value::Datetime;

use super::{SettingsReader, SettingsValue};
use crate::policy::settings::Exception;
use crate::policy::words;
use pkgtool_base::diagnostic::RuleMeta;
use pkgtool_base::source::JsonPath;

/// The keys of an exception. Those in `REQUIRED_EXCEPTION_KEYS` are mandatory.
pub const EXCEPTION_KEYS: [&str; 5] = ["file", "pointer", "rule", "reason", "until"];
const REQUIRED_EXCEPTION_KEYS: [&str; 3] = ["file", "rule", "reason"];

/// Maximum number of exceptions per file.
const MAX_EXCEPTIONS: usize = 10_000;

impl SettingsReader<'_> {
    pub(super) fn exceptions(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let Some(array) = value.get_ref().as_array() else {
            self.expected(path, value, "an array of tables");
            return;
        };
        for (index, one) in array.iter().enumerate() {
            let path = path.index(index);
            if index == MAX_EXCEPTIONS {
                let message =
                    format!("too many exceptions: only the first {MAX_EXCEPTIONS} take effect");
                self.wrong(
                    &path,
                    one.span().into(),
                    message,
                    "use a baseline for many known findings: --write-baseline",
                );
                return;
            }
            if let Some(exception) = self.exception(&path, one) {
                self.settings.exceptions.push(exception);
            }
        }
    }

    fn exception(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<Exception> {
        let before = self.findings.len();
        let members = self.members(path, value);
        let (mut file, mut rule, mut reason, mut until) = (None, None, None, None);
        let mut pointer = String::new();
        for (path, span, key, value) in &members {
            match *key {
                "file" => file = self.exception_file(path, value),
                "pointer" => pointer = self.pointer(path, value).unwrap_or_default(),
                "rule" => rule = self.rule(path, value),
                "reason" => reason = self.words(path, value),
                "until" => until = self.day(path, value),
                other => self.unknown_key(path, *span, other, &EXCEPTION_KEYS),
            }
        }
        let is_there = |key: &&str| members.iter().any(|(_, _, known, _)| known == key);
        let missing: Vec<&str> = REQUIRED_EXCEPTION_KEYS
            .into_iter()
            .filter(|key| !is_there(key))
            .collect();
        let is_table = value.get_ref().is_table();
        if is_table && !missing.is_empty() {
            let message = format!(
                "exception {} lacks {}",
                place_of(path),
                words::join_quoted(&missing)
            );
            let help = if missing.contains(&"reason") {
                "give a `reason`, so that others understand the exception later"
            } else {
                "an exception needs one rule and one file"
            };
            self.wrong(path, value.span().into(), message, help);
        }
        // An exception with an error could hide more than intended.
        if self.findings.len() > before {
            return None;
        }
        Some(Exception {
            file: file?,
            pointer,
            rule: rule?,
            reason: reason?.to_owned(),
            until: until.and_then(|day: Datetime| day.date),
            place: (path.clone(), value.span().into()),
        })
    }

    fn exception_file(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<String> {
        let text = self.file_name(path, value)?;
        let text = text.strip_prefix("./").unwrap_or(text);
        if text.starts_with('/') || text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            let help = "write it relative to `root`, which defaults to this file's directory";
            self.wrong(path, value.span().into(), "not a path below `root`", help);
            return None;
        }
        if text.contains(['*', '?']) {
            let help = "an exception needs one file; use `per-path-ignores` for globs";
            self.wrong(
                path,
                value.span().into(),
                "expected a file, found a glob",
                help,
            );
            return None;
        }
        Some(text.to_owned())
    }

    fn pointer(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<String> {
        let text = self.string(path, value)?;
        if !text.is_empty() && !text.starts_with('/') {
            let help = "start it with `/`, as in \"/variants/0/file\"; `--format json` shows the pointers of findings";
            self.wrong(
                path,
                value.span().into(),
                format!("invalid JSON pointer `{}`", words::cut(text)),
                help,
            );
            return None;
        }
        Some(text.trim_end_matches('/').to_owned())
    }

    fn rule(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<&'static RuleMeta> {
        let text = self.string(path, value)?;
        let selector = self.selector(path, value.span().into(), text)?;
        if selector.rule().is_none() {
            let help = "name one rule; use `ignore` or `per-path-ignores` for several";
            self.wrong(
                path,
                value.span().into(),
                format!("`{text}` matches several rules"),
                help,
            );
        }
        selector.rule()
    }

    fn day(&mut self, path: &JsonPath, value: &SettingsValue<'_>) -> Option<Datetime> {
        let day = match value.get_ref() {
            DeValue::Datetime(day) => Some(*day),
            DeValue::String(text) => text.parse().ok(),
            _ => None,
        };
        let day = day.filter(|day| day.date.is_some() && day.time.is_none());
        if day.is_none() {
            let message = format!("expected a date, found {}", words::kind(value.get_ref()));
            self.wrong(
                path,
                value.span().into(),
                message,
                "write the last day of the exception, such as 2027-01-31",
            );
        }
        day
    }
}

/// Returns the number of an exception, counted from 1.
fn place_of(path: &JsonPath) -> String {
    let pointer = path.to_pointer();
    let index = pointer
        .rsplit('/')
        .next()
        .and_then(|last| last.parse::<usize>().ok());
    index.map_or_else(String::new, |index| (index + 1).to_string())
}
