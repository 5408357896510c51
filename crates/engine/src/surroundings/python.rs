//! Finds the package directories of the Python environments on this machine, by paths alone.
//!
//! Starts no Python interpreter: that would take longer than all the rest of a short command. Does
//! not know which packages the caller searches for.

use std::path::{Path, PathBuf};

use super::{Surroundings, sorted_entries};

/// Returns directories of Python packages, those of the active environment first.
pub(crate) fn package_directories(surroundings: &Surroundings) -> Vec<PathBuf> {
    let mut found = surroundings.directories("PYTHONPATH");
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(|name| surroundings.directory(name))
        .collect();
    prefixes.extend(prefixes_on_path(surroundings));
    for prefix in &prefixes {
        found.extend(prefix_packages(prefix));
    }
    if let Some(home) = surroundings.home() {
        found.extend(prefix_packages(&home.join(".local")));
        let versions = sorted_entries(&home.join("Library/Python"));
        found.extend(
            versions
                .iter()
                .map(|it| it.join("lib/python/site-packages")),
        );
    }
    if let Some(data) = surroundings.directory("APPDATA") {
        let versions = sorted_entries(&data.join("Python"));
        found.extend(versions.iter().map(|it| it.join("site-packages")));
    }
    found.extend(surroundings.packages.iter().cloned());
    unique(found)
}

/// Returns the package directories of a Python installation or environment.
fn prefix_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = vec![prefix.join("Lib").join("site-packages")];
    for lib in ["lib", "lib64"] {
        for entry in sorted_entries(&prefix.join(lib)) {
            if file_name(&entry).starts_with("python3") {
                found.push(entry.join("site-packages"));
                found.push(entry.join("dist-packages"));
            }
        }
    }
    found.retain(|directory| directory.is_dir());
    found
}

/// Returns the prefixes of the first `python3` and the first `python` on the path. A prefix is
/// derived from the file as named, which is right for an environment, and from the file that it
/// links to.
fn prefixes_on_path(surroundings: &Surroundings) -> Vec<PathBuf> {
    let path = surroundings.directories("PATH");
    let mut prefixes = Vec::new();
    for name in ["python3", "python", "python.exe"] {
        let mut programs = path.iter().map(|directory| directory.join(name));
        let Some(program) = programs.find(|program| program.is_file()) else {
            continue;
        };
        if program.parent().map(file_name) == Some("shims") {
            prefixes.extend(pyenv_prefixes(surroundings, &program));
        }
        prefixes.extend(prefix_of(&program));
        let target = program.canonicalize();
        prefixes.extend(target.ok().as_deref().and_then(prefix_of));
    }
    unique(prefixes)
}

/// Returns the prefix of `…/bin/python3`. On Windows the program is in the prefix itself or in its
/// `Scripts`.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    match file_name(directory) {
        "bin" | "Scripts" => Some(directory.parent()?.to_owned()),
        _ => Some(directory.to_owned()),
    }
}

/// Resolves pyenv's `python3`, a script that starts the version named by a variable, or else by a
/// file in pyenv's root. A version file in the working directory is ignored: the result must not
/// depend on where the tool is started.
fn pyenv_prefixes(surroundings: &Surroundings, program: &Path) -> Vec<PathBuf> {
    let above = program.parent().and_then(Path::parent).map(Path::to_owned);
    let Some(root) = surroundings.directory("PYENV_ROOT").or(above) else {
        return Vec::new();
    };
    let versions = root.join("versions");
    let variable = surroundings.variable("PYENV_VERSION");
    let variable = variable.map(|value| value.to_string_lossy().into_owned());
    let chosen = variable
        .or_else(|| std::fs::read_to_string(root.join("version")).ok())
        .unwrap_or_default();
    let mut prefixes: Vec<PathBuf> = chosen
        .split([':', '\n'])
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.contains(['/', '\\']))
        .map(|name| versions.join(name))
        .collect();
    prefixes.extend(sorted_entries(&versions));
    prefixes
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

fn unique(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.contains(&path) {
            kept.push(path);
        }
    }
    kept
}
