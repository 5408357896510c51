//! Resolves a predict config to a method of a package.
//!
//! Invariant: an open choice without an obvious default is rejected with the list of alternatives.
//! Among the remaining alternatives, models that this build runs are preferred.

use super::super::Refusal;
use super::super::json::{self, Object, listed, shown, unknown_key};
use super::variants::{MethodEntry, Variants};
use pkgtool_base::source::suggest;
use pkgtool_engine::runtime::selection::default_method;

/// JSON path of a config in refusals.
const CONFIG_PATH: &str = "$.config";

/// Keys of a predict config.
pub(super) const KEYS: &[&str] = &["backend", "precision", "component", "method"];

/// A parsed predict config; `None` leaves a choice open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigChoice {
    /// Values in the order of [`KEYS`].
    values: [Option<String>; KEYS.len()],
}

impl ConfigChoice {
    /// Parses a config, which is a JSON object. A blank text or `null` leaves everything open.
    /// Members with `further` keys do not affect the choice and are returned.
    pub(super) fn read<'t>(text: &'t str, further: &[&str]) -> Result<(Self, Object<'t>), Refusal> {
        let (mut choice, mut others) = (Self::default(), Object::new());
        if matches!(text.trim_ascii(), "" | "null") {
            return Ok((choice, others));
        }
        for (key, value) in json::members(text, CONFIG_PATH)? {
            if further.contains(&key.as_str()) {
                others.push((key, value));
                continue;
            }
            let Some(known) = KEYS.iter().position(|known| *known == key) else {
                return Err(unknown_key(CONFIG_PATH, &key, &[KEYS, further].concat()));
            };
            if value.get() != "null" {
                let value = json::string(value, &format!("{CONFIG_PATH}.{key}"))?;
                choice.values[known] = Some(value.into_owned());
            }
        }
        Ok((choice, others))
    }

    /// Returns whether it names a component.
    pub(super) fn names_component(&self) -> bool {
        self.values[COMPONENT].is_some()
    }

    /// Returns the choice of a backend.
    pub(super) fn of_backend(name: &str) -> Self {
        let mut choice = Self::default();
        choice.values[BACKEND] = Some(name.to_owned());
        choice
    }

    /// Returns whether it names a component or a method.
    pub(super) fn names_part(&self) -> bool {
        self.names_component() || self.values[METHOD].is_some()
    }

    /// Resolves to the index of an entry.
    pub(super) fn resolve(&self, variants: &Variants) -> Result<usize, Refusal> {
        self.resolve_among(variants, |_| true)
    }

    /// Resolves among the entries that suit a request, or among all if none suits.
    pub(super) fn resolve_among(
        &self,
        variants: &Variants,
        suits: impl Fn(&MethodEntry) -> bool,
    ) -> Result<usize, Refusal> {
        let entries = &variants.entries;
        let mut left: Vec<usize> = (0..entries.len())
            .filter(|at| suits(&entries[*at]))
            .collect();
        if left.is_empty() {
            left = (0..entries.len()).collect();
        }
        for (key, wanted) in self.values.iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let is_wanted = |entry: &usize| value(&entries[*entry], key) == Some(wanted);
            let kept: Vec<usize> = left.iter().copied().filter(is_wanted).collect();
            if kept.is_empty() {
                return Err(self.no_such(key, wanted, entries, &left));
            }
            left = kept;
        }
        let runs = |entry: &&usize| entries[**entry].model.is_ok();
        let best = left.iter().find(runs).or(left.first());
        let best = *best.expect("a package has entries, and each key kept at least one");
        left.retain(|entry| entries[*entry].variant == entries[best].variant);
        within(&left, entries)
    }

    /// Returns the refusal of a value that none of the entries `left` has.
    fn no_such(
        &self,
        key: usize,
        wanted: &str,
        entries: &[MethodEntry],
        left: &[usize],
    ) -> Refusal {
        let has = distinct(left, entries, key);
        let meant = suggest::nearest(wanted, has.iter().copied());
        let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
        let chosen: Vec<String> = (0..key)
            .filter_map(|key| Some(format!("{} `{}`", KEYS[key], self.values[key].as_ref()?)))
            .collect();
        let context = if chosen.is_empty() {
            String::new()
        } else {
            format!(" with {}", chosen.join(" and "))
        };
        let there = if has.is_empty() {
            "none is available".to_owned()
        } else {
            format!("available: {}", listed(&has))
        };
        let (name, wanted, meant) = (KEYS[key], shown(wanted), meant.unwrap_or_default());
        let message = format!("unknown {name} {wanted}{context}{meant}; {there}");
        Refusal::at(format!("{CONFIG_PATH}.{name}"), message)
    }
}

/// Resolves among the entries `left`, which belong to one variant.
fn within(left: &[usize], entries: &[MethodEntry]) -> Result<usize, Refusal> {
    let components = distinct(left, entries, COMPONENT);
    if components.len() > 1 {
        let message = format!(
            "the model has several components; choose one with `component`: {}",
            listed(&components)
        );
        return Err(Refusal::at(format!("{CONFIG_PATH}.component"), message));
    }
    let methods: Vec<String> = left.iter().map(|it| entries[*it].method.clone()).collect();
    let Some(method) = default_method(&methods) else {
        let names: Vec<&str> = methods.iter().map(String::as_str).collect();
        let message = format!(
            "the model has several methods; choose one with `method`: {}",
            listed(&names)
        );
        return Err(Refusal::at(format!("{CONFIG_PATH}.method"), message));
    };
    let place = methods.iter().position(|name| name == method);
    Ok(left[place.expect("the default is one of them")])
}

/// Indices in [`KEYS`].
const BACKEND: usize = 0;
const COMPONENT: usize = 2;
const METHOD: usize = 3;

fn value(entry: &MethodEntry, key: usize) -> Option<&str> {
    match KEYS[key] {
        "backend" => Some(entry.backend.name()),
        "precision" => Some(&entry.precision),
        "component" => entry.component.as_deref(),
        _ => Some(&entry.method),
    }
}

/// Returns the distinct values of a key in `entries`.
fn distinct<'e>(left: &[usize], entries: &'e [MethodEntry], key: usize) -> Vec<&'e str> {
    let mut values = Vec::new();
    for entry in left {
        if let Some(value) = value(&entries[*entry], key)
            && !values.contains(&value)
        {
            values.push(value);
        }
    }
    values
}
