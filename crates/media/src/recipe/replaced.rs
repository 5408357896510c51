//! Recipes that replace values of built-in ones.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::Recipe;
use super::faults::{Faults, RecipeError};

/// A recipe that replaces values of a built-in one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValuesText {
    base: Spanned<String>,
    #[serde(default, rename = "for")]
    only: Vec<String>,
    name: Option<String>,
    summary: Option<String>,
    source: String,
    values: BTreeMap<String, Spanned<toml::Value>>,
}

/// Reads the recipe: a copy of the built-in one with these values.
pub(super) fn read(
    faults: &Faults<'_>,
    base: impl Fn(&str) -> Option<Recipe>,
) -> Result<Recipe, RecipeError> {
    let ValuesText {
        base: name,
        only,
        name: own_name,
        summary,
        source,
        values,
    } = faults.parsed(toml::from_str(faults.text))?;
    let mut recipe = base(name.get_ref()).ok_or_else(|| {
        let reason = format!("unknown recipe `{}` in `base`", name.get_ref());
        faults.at(name.span().start, reason)
    })?;
    for (name, value) in values {
        let at = value.span().start;
        if !recipe.values.contains_key(&name) {
            let known: Vec<&str> = recipe.values.keys().map(String::as_str).collect();
            let reason = format!(
                "unknown value `{name}`: recipe `{}` has {}",
                recipe.name,
                known.join(", ")
            );
            return Err(faults.at(at, reason));
        }
        let value = serde_json::to_value(value.into_inner()).unwrap_or_default();
        for kind in recipe.kinds_of(&name) {
            kind.check(&value)
                .map_err(|reason| faults.at(at, format!("`{name}`: {reason}")))?;
        }
        for preset in &mut recipe.presets {
            preset.values.remove(&name);
        }
        recipe.values.insert(name, value);
    }
    recipe.name = own_name.unwrap_or(recipe.name);
    recipe.summary = summary.unwrap_or(recipe.summary);
    recipe.only = only;
    faults.file.clone_into(&mut recipe.file);
    recipe.source = source;
    Ok(recipe)
}
