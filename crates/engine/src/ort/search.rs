//! Searches this machine for ONNX Runtime's library and its plug-in providers.
//!
//! Invariant: a search only lists directories. It loads nothing, runs nothing and never looks into
//! the working directory. A library that the user names is used exactly, or is an error.

use std::path::{Path, PathBuf};

use crate::Provider;
use crate::library::{LibraryOrigin, Plugin};
use crate::surroundings::{Surroundings, python, sorted_entries, with_subdirectories};

/// The variable that names a library.
const LIBRARY_VARIABLE: &str = "ORT_DYLIB_PATH";

/// A file with the name of ONNX Runtime's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundLibrary {
    /// The file, with links resolved.
    pub(super) path: PathBuf,
    /// Place where the file was found.
    pub(super) origin: LibraryOrigin,
}

/// Returns all libraries, best first. Files that the user named come first, even if they are
/// missing.
pub(super) fn libraries(surroundings: &Surroundings, named: Option<&Path>) -> Vec<FoundLibrary> {
    let mut found = Vec::new();
    let variable = surroundings.variable(LIBRARY_VARIABLE).map(PathBuf::from);
    for (wish, origin) in [
        (named.map(Path::to_owned), LibraryOrigin::Named),
        (variable, LibraryOrigin::Variable(LIBRARY_VARIABLE)),
    ] {
        let Some(wish) = wish else { continue };
        let inside = in_directory(surroundings, &wish);
        if inside.is_empty() {
            add(&mut found, wish, origin);
        }
        for path in inside {
            add(&mut found, path, origin);
        }
    }
    for (directory, origin) in directories(surroundings) {
        for path in in_directory(surroundings, &directory) {
            add(&mut found, path, origin);
        }
    }
    found
}

/// Returns all complete plug-ins, best first.
pub(super) fn plugins(surroundings: &Surroundings) -> Vec<Plugin> {
    let mut found: Vec<Plugin> = Vec::new();
    for package in package_directories(surroundings) {
        for (folder, provider, library, backend) in PLUGINS {
            let folder = package.join(folder);
            let path = folder.join(surroundings.library_name(library));
            let backend = backend.map(|name| folder.join(surroundings.library_name(name)));
            let complete = path.is_file() && backend.as_ref().is_none_or(|path| path.is_file());
            // `lib64` is often a link to `lib`.
            let real = path.canonicalize().ok();
            let is_same = |other: &Plugin| other.path.canonicalize().ok() == real;
            if complete && !found.iter().any(is_same) {
                found.push(Plugin {
                    provider: *provider,
                    path,
                    backend,
                });
            }
        }
    }
    found
}

/// Python packages of plug-ins: folder, provider, its library, the vendor's library.
const PLUGINS: &[(&str, Provider, &str, Option<&str>)] = &[
    (
        "onnxruntime_qnn",
        Provider::Qnn,
        "onnxruntime_providers_qnn",
        Some("QnnHtp"),
    ),
    (
        "onnxruntime_ep_webgpu",
        Provider::WebGpu,
        "onnxruntime_providers_webgpu",
        None,
    ),
];

fn add(found: &mut Vec<FoundLibrary>, path: PathBuf, origin: LibraryOrigin) {
    let path = path.canonicalize().unwrap_or(path);
    if !found.iter().any(|other| other.path == path) {
        found.push(FoundLibrary { path, origin });
    }
}

/// Returns the directories to search, best first.
fn directories(surroundings: &Surroundings) -> Vec<(PathBuf, LibraryOrigin)> {
    let mut all = Vec::new();
    if let Some(own) = surroundings.own_libraries() {
        for folder in with_subdirectories(&own) {
            all.push((capi(&folder), LibraryOrigin::Own));
            all.push((folder, LibraryOrigin::Own));
        }
    }
    let beside = surroundings.program_directories().into_iter();
    all.extend(beside.map(|directory| (directory, LibraryOrigin::Program)));
    let system = surroundings.library_path().into_iter();
    all.extend(system.map(|directory| (directory, LibraryOrigin::System)));
    let packages = python::package_directories(surroundings);
    all.extend(packages.iter().map(|it| (capi(it), LibraryOrigin::Python)));
    all
}

/// Returns the directories of Python packages to search for plug-ins. The tool's own directory and
/// its subdirectories may be the target of `pip install --target`.
fn package_directories(surroundings: &Surroundings) -> Vec<PathBuf> {
    let own = surroundings.own_libraries();
    let mut all = own.map_or_else(Vec::new, |own| with_subdirectories(&own));
    all.extend(python::package_directories(surroundings));
    all
}

/// Returns the folder of the library in the Python package `onnxruntime`.
fn capi(packages: &Path) -> PathBuf {
    packages.join("onnxruntime").join("capi")
}

fn in_directory(surroundings: &Surroundings, directory: &Path) -> Vec<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| is_library(&surroundings.os, name)) && path.is_file()
    };
    sorted_entries(directory)
        .into_iter()
        .filter(is_library)
        .collect()
}

/// Returns `true` if this is a file name of ONNX Runtime's library, of any version.
fn is_library(os: &str, name: &str) -> bool {
    match os {
        "windows" => name.eq_ignore_ascii_case("onnxruntime.dll"),
        "macos" => {
            let version = name
                .strip_prefix("libonnxruntime.")
                .and_then(|rest| rest.strip_suffix("dylib"));
            version.is_some_and(|version| version.chars().all(is_of_version))
        }
        _ => {
            let version = name.strip_prefix("libonnxruntime.so");
            version.is_some_and(|version| version.chars().all(is_of_version))
        }
    }
}

fn is_of_version(character: char) -> bool {
    character == '.' || character.is_ascii_digit()
}
