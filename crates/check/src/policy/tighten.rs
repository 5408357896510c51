//! Merges a nested `pkgtool.toml` into the settings above it, key by key. A nested file can only
//! tighten these settings.
//!
//! The publisher of a package may put a settings file into it.
//!
//! Invariant: a nested file removes no finding and lowers no severity.

use std::sync::Arc;

use super::selector::{RuleLevel, Selector};
use super::settings::PolicySettings;
use crate::validate::{rule_metas, settings_invalid};
use pkgtool_base::diagnostic::{Anchor, Diagnostic, RuleMeta};
use pkgtool_base::source::JsonPath;

/// Merges one key into the settings in force, as far as it tightens those above. Returns whether it
/// also loosens them. The arguments are the settings above, the nested ones and those in force.
type TakeKey = fn(&PolicySettings, &PolicySettings, &mut PolicySettings) -> bool;

/// All keys with an effect. Keys that only hide findings or files are never merged.
const KEY_RULES: [(&str, TakeKey); 17] = [
    ("root", |_, nested, _| nested.has_root),
    ("select", take_select),
    ("ignore", |above, nested, _| {
        names(&nested.ignore).any(|rule| above.is_enabled(rule))
    }),
    ("severity", take_severity),
    ("per-path-ignores", |_, nested, _| {
        !nested.per_path_ignores.is_empty()
    }),
    ("exclude", |_, nested, _| !nested.exclude.is_empty()),
    ("respect-gitignore", take_gitignore),
    ("deny-warnings", take_deny_warnings),
    ("extra-precisions", |above, nested, _| {
        nested
            .extra
            .tokens()
            .any(|token| !above.extra.contains(token))
    }),
    ("schema", take_schema),
    ("schema-id", take_schema_id),
    // It has no effect on findings.
    ("recipes", |_, _, _| false),
    ("allow-licenses", take_licenses),
    ("require-backends", |_, nested, merged| {
        add(&mut merged.backends, &nested.backends);
        false
    }),
    ("require-capabilities", |_, nested, merged| {
        add(&mut merged.capabilities, &nested.capabilities);
        false
    }),
    ("baseline", |_, nested, _| nested.baseline.is_some()),
    ("exception", |_, nested, _| !nested.exceptions.is_empty()),
];

/// Tightens the settings above by nested ones. Also returns the findings of the nested ones,
/// including one for each key that loosens.
pub(super) fn tighten(
    above: &PolicySettings,
    nested: &PolicySettings,
) -> (PolicySettings, Vec<Diagnostic>) {
    let mut merged = above.clone();
    let mut findings = nested.findings.clone();
    for (key, take) in KEY_RULES {
        let loosens = take(above, nested, &mut merged);
        let place = nested.keys.iter().find(|(known, _)| known == key);
        if let (true, Some((_, span)), Some((_, source))) = (loosens, place, &nested.file) {
            let message =
                format!("`{key}` loosens the settings above this file, which has no effect");
            let anchor = Anchor::At(JsonPath::root().key(key), *span);
            let finding = settings_invalid(anchor, message).help(
                "a nested file only tightens: write this in the file at the root of the checkout, or use --config",
            );
            findings.push(finding.locate(source, None));
        }
    }
    if let Some((_, source)) = &nested.file {
        merged.tightened_by.push(source.path.clone());
    }
    merged.findings.extend(findings.iter().cloned());
    (merged, findings)
}

/// Returns the rules that match one of the selectors.
fn names(selectors: &[Selector]) -> impl Iterator<Item = &'static RuleMeta> {
    let is_named = |rule: &&RuleMeta| selectors.iter().any(|one| one.matches(rule));
    rule_metas().into_iter().filter(is_named)
}

/// Adds enabled rules and removes none.
fn take_select(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    let Some(select) = &nested.select else {
        return false;
    };
    if let Some(known) = &mut merged.select {
        known.extend(select.iter().cloned());
    }
    let is_dropped = |rule: &RuleMeta| !select.iter().any(|one| one.matches(rule));
    let mut rules = rule_metas().into_iter();
    rules.any(|rule| above.is_enabled(rule) && is_dropped(rule))
}

/// Raises levels and lowers none. Rules that the settings above disable stay disabled.
fn take_severity(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    let mut loosens = false;
    for rule in rule_metas() {
        let (Some(level), known) = (nested.level(rule), above.in_force(rule).0) else {
            continue;
        };
        if rank(level) > rank(known) {
            merged
                .severity
                .extend(Selector::parse(rule.code).ok().map(|one| (one, level)));
        }
        loosens |= rank(level) < rank(known);
    }
    loosens
}

fn rank(level: RuleLevel) -> u8 {
    match level {
        RuleLevel::Off => 0,
        RuleLevel::At(severity) => 1 + severity as u8,
    }
}

/// Includes files that Git ignores, but excludes none.
fn take_gitignore(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    if nested.respect_gitignore == Some(false) {
        merged.respect_gitignore = Some(false);
    }
    nested.respect_gitignore == Some(true) && above.respect_gitignore == Some(false)
}

fn take_deny_warnings(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    merged.deny_warnings |= nested.deny_warnings;
    above.deny_warnings && !nested.deny_warnings
}

/// Adds a schema without what it allows beyond the built-in one and the schemas above.
fn take_schema(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    let overlays = nested.overlays.iter();
    let tightening = overlays
        .clone()
        .map(|overlay| Arc::new(overlay.tightening()));
    merged.overlays.extend(tightening);
    overlays
        .into_iter()
        .any(|overlay| overlay.loosens(&above.overlays))
}

/// Sets the identifier of configs if the settings above have none.
fn take_schema_id(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    if above.schema_id.is_none() {
        merged.schema_id.clone_from(&nested.schema_id);
        return false;
    }
    nested.schema_id.is_some() && nested.schema_id != above.schema_id
}

/// Keeps the licences that both allow.
fn take_licenses(
    above: &PolicySettings,
    nested: &PolicySettings,
    merged: &mut PolicySettings,
) -> bool {
    let Some(licenses) = &nested.licenses else {
        return false;
    };
    let is_allowed = |license: &&String| {
        let mut known = above.licenses.iter().flatten();
        above.licenses.is_none() || known.any(|known| known.eq_ignore_ascii_case(license))
    };
    let allowed: Vec<String> = licenses.iter().filter(is_allowed).cloned().collect();
    let loosens = allowed.len() < licenses.len();
    merged.licenses = Some(allowed);
    loosens
}

fn add<T: PartialEq + Clone>(known: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !known.contains(one) {
            known.push(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KEY_RULES;

    #[test]
    fn every_key_is_taken_or_refused() {
        let keys: Vec<&str> = KEY_RULES.iter().map(|(key, _)| *key).collect();
        let all = crate::policy::read::SETTINGS_KEYS;
        let ruling: Vec<&str> = all
            .into_iter()
            .filter(|key| *key != "description")
            .collect();
        assert_eq!(keys, ruling);
    }
}
