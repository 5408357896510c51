//! Recipes of a project: those that the key `recipes` of its `pkgtool.toml` names.
//!
//! Invariant: a recipe lies below the directory of the file that names it. Files outside are not read.

use std::path::Path;

use pkgtool_base::package::sieve::{MAX_SETTINGS_BYTES, SETTINGS_FILE};
use pkgtool_base::package::{Roots, reference, steps};
use serde::Deserialize;

use super::{Recipe, RecipeError};
use crate::files;

/// Maximum number of recipes of a project.
const MAX_RECIPES: usize = 256;

/// The part of the settings that concerns recipes. `validate` checks the rest.
#[derive(Deserialize)]
struct ProjectSettings {
    recipes: Option<Vec<String>>,
}

/// Reads the recipes that the nearest settings file with such a key names: beside a model or above, up to the root of its
/// checkout.
pub(super) fn recipes(model: &Path) -> Result<Vec<Recipe>, RecipeError> {
    let roots = Roots::new();
    let model = roots.absolute(model);
    let directory = model.parent().unwrap_or(Path::new(""));
    for directory in steps::upwards(directory) {
        let file = directory.join(SETTINGS_FILE);
        if file.is_file()
            && let Some(named) = named(&file)?
        {
            let recipes = named.iter().map(|name| of_name(&file, directory, name));
            return recipes.collect();
        }
        if roots.is_checkout(directory, None) {
            break;
        }
    }
    Ok(Vec::new())
}

/// Returns the names in a settings file; `None` if it lacks the key.
fn named(file: &Path) -> Result<Option<Vec<String>>, RecipeError> {
    let fault = |reason: String| fault(file, reason);
    let text = files::text(file, MAX_SETTINGS_BYTES).map_err(fault)?;
    let settings: Result<ProjectSettings, _> = toml::from_str(&text);
    let settings = settings.map_err(|error| fault(error.message().to_owned()))?;
    match settings.recipes {
        Some(names) if names.len() > MAX_RECIPES => Err(fault(format!(
            "`recipes`: expected at most {MAX_RECIPES} files, found {}",
            names.len()
        ))),
        names => Ok(names),
    }
}

fn of_name(file: &Path, directory: &Path, name: &str) -> Result<Recipe, RecipeError> {
    let found = reference::resolve(directory, 0, name);
    let found = found.map_err(|error| fault(file, format!("`recipes`: `{name}` {error}")))?;
    Recipe::read(&found)
}

fn fault(file: &Path, reason: String) -> RecipeError {
    RecipeError {
        file: file.display().to_string(),
        place: None,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const RECIPE: &str =
        "base = \"classification\"\nsource = \"a test of projects\"\n\n[values]\ntop_k = 2\n";

    #[test]
    fn the_nearest_file_with_the_key_names_recipes() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("models/bird/xnnpack")).expect("created");
        fs::create_dir_all(at(".git")).expect("created");
        let model = at("models/bird/xnnpack/bird.onnx");
        let read = || {
            recipes(&model)
                .map(|all| all.len())
                .map_err(|it| it.to_string())
        };
        assert_eq!(read(), Ok(0));
        fs::write(at("a.toml"), RECIPE).expect("written");
        fs::write(at("pkgtool.toml"), "recipes = [\"a.toml\", \"./a.toml\"]").expect("written");
        assert_eq!(read(), Ok(2));
        fs::write(at("models/pkgtool.toml"), "ignore = []").expect("written");
        assert_eq!(read(), Ok(2));
        fs::write(at("models/pkgtool.toml"), "recipes = []").expect("written");
        assert_eq!(read(), Ok(0));
        for (settings, reason) in [
            ("recipes = [\"../a.toml\"]", "`recipes`: `../a.toml`"),
            ("recipes = [\"/etc/passwd\"]", "`recipes`: `/etc/passwd`"),
            ("recipes = [\"none.toml\"]", "none.toml"),
            ("recipes = 1", "invalid type"),
            ("recipes = [", "pkgtool.toml"),
        ] {
            fs::write(at("models/pkgtool.toml"), settings).expect("written");
            let error = read().expect_err(settings);
            assert!(error.contains(reason), "{error}");
        }
        // Files above the checkout do not count.
        fs::create_dir_all(at("models/.git")).expect("created");
        fs::remove_file(at("models/pkgtool.toml")).expect("removed");
        assert_eq!(read(), Ok(0));
    }
}
