//! Searches this machine for ExecuTorch's libraries and inspects them without opening them.
//!
//! Invariant: a search reads directories and two small text files. It opens no library, runs
//! nothing and never looks into the working directory. A directory that the user names is used
//! exactly, or is an error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Provider;
use crate::library::{Installation, LibraryOrigin};
use crate::surroundings::{Surroundings, python, sorted_entries, with_subdirectories};

/// The variable that names ExecuTorch's Python package, or a directory of its libraries.
pub(super) const DIRECTORY_VARIABLE: &str = "PKGTOOL_EXECUTORCH_DIR";

/// The version of the headers that `shim.cpp` was compiled against. The memory layout of C++
/// classes may change with every other version.
pub const VERSION: &str = env!("PKGTOOL_EXECUTORCH_VERSION");

/// The library that all others need, without `lib` and `.so`.
const RUNTIME_LIBRARY: &str = "executorch";
/// Kernel libraries for everything that is not delegated; the first one found is used. Both
/// register the same kernels, and the runtime aborts the process if a kernel is registered twice.
const KERNEL_LIBRARIES: [&str; 2] = [
    "executorch_kernels_optimized",
    "executorch_kernels_portable",
];
/// Further kernels, and libraries that others need.
const EXTRA_LIBRARIES: [&str; 2] = ["executorch_threadpool", "executorch_kernels_quantized"];
/// Prefix of the libraries that run delegates.
const BACKEND_PREFIX: &str = "executorch_backend_";

/// The libraries of one directory, in the order in which they are to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libraries {
    /// The runtime, its threads and its kernels. All of them must open.
    pub(super) runtime: Vec<PathBuf>,
    /// Backends. A backend that does not open counts as missing.
    pub(super) backends: Vec<PathBuf>,
}

/// Returns the installations on this machine, best first.
pub fn installations() -> Vec<Installation> {
    installations_in(&Surroundings::of_this_process())
}

/// Returns the installations in these surroundings, best first. A directory that the user named
/// comes first, even if it is empty.
pub fn installations_in(surroundings: &Surroundings) -> Vec<Installation> {
    let mut found: Vec<Installation> = Vec::new();
    if let Some(named) = surroundings.variable(DIRECTORY_VARIABLE).map(PathBuf::from) {
        let within = named.join("lib");
        let directory = if has_runtime(surroundings, &within) {
            within
        } else {
            named
        };
        found.push(inspect(
            surroundings,
            &directory,
            LibraryOrigin::Variable(DIRECTORY_VARIABLE),
        ));
    }
    for (directory, origin) in directories(surroundings) {
        let real = directory.canonicalize().unwrap_or(directory);
        let is_known = found.iter().any(|known| known.path == real);
        if !is_known && has_runtime(surroundings, &real) {
            found.push(inspect(surroundings, &real, origin));
        }
    }
    found
}

/// Returns the libraries in a directory.
pub(super) fn libraries(surroundings: &Surroundings, directory: &Path) -> Libraries {
    let path = |name: &str| directory.join(surroundings.library_name(name));
    let there = |name: &&str| path(name).is_file();
    let kernels = KERNEL_LIBRARIES.iter().find(|name| there(name));
    let parts = EXTRA_LIBRARIES.iter().filter(|name| there(name));
    let runtime = [RUNTIME_LIBRARY].iter().chain(parts).chain(kernels);
    let prefix = surroundings.library_name(BACKEND_PREFIX);
    let (before, after) = prefix.split_once(BACKEND_PREFIX).unwrap_or_default();
    let is_backend = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_prefix(before)?.strip_suffix(after));
        name.is_some_and(|name| name.starts_with(BACKEND_PREFIX)) && file.is_file()
    };
    Libraries {
        runtime: runtime.map(|name| path(name)).collect(),
        backends: sorted_entries(directory)
            .into_iter()
            .filter(is_backend)
            .collect(),
    }
}

/// Returns the directories to search, best first.
fn directories(surroundings: &Surroundings) -> Vec<(PathBuf, LibraryOrigin)> {
    let mut all = Vec::new();
    if let Some(own) = surroundings.own_libraries() {
        for folder in with_subdirectories(&own) {
            all.push((folder.join("executorch").join("lib"), LibraryOrigin::Own));
            all.push((folder.join("lib"), LibraryOrigin::Own));
            all.push((folder, LibraryOrigin::Own));
        }
    }
    let beside = surroundings.program_directories().into_iter();
    all.extend(beside.map(|directory| (directory, LibraryOrigin::Program)));
    let system = surroundings.library_path().into_iter();
    all.extend(system.map(|directory| (directory, LibraryOrigin::System)));
    let packages = python::package_directories(surroundings).into_iter();
    all.extend(packages.map(|it| (it.join("executorch").join("lib"), LibraryOrigin::Python)));
    all
}

fn has_runtime(surroundings: &Surroundings, directory: &Path) -> bool {
    directory
        .join(surroundings.library_name(RUNTIME_LIBRARY))
        .is_file()
}

/// Describes the installation in a directory of libraries.
fn inspect(surroundings: &Surroundings, directory: &Path, origin: LibraryOrigin) -> Installation {
    let directory = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    let version = version(&directory);
    let found = libraries(surroundings, &directory);
    let file_names = found.runtime.iter().filter_map(|path| path.file_name());
    let kernels = KERNEL_LIBRARIES.map(|name| surroundings.library_name(name));
    let has_kernels = file_names
        .filter_map(|name| name.to_str())
        .any(|name| kernels.iter().any(|known| known == name));
    let problem = if !has_runtime(surroundings, &directory) {
        let name = surroundings.library_name(RUNTIME_LIBRARY);
        Some(format!("{name} is missing in this directory"))
    } else if version.as_deref() != Some(VERSION) {
        let found = version.as_deref().unwrap_or("unknown");
        Some(format!(
            "unsupported version: expected {VERSION}, got {found}"
        ))
    } else if !has_kernels {
        Some("the library with the kernels is missing".to_owned())
    } else {
        None
    };
    let xnnpack = surroundings.library_name("executorch_backend_xnnpack");
    let has_xnnpack = found.backends.iter().any(|path| path.ends_with(&xnnpack));
    let providers = match problem {
        Some(_) => Vec::new(),
        None => [Provider::Cpu]
            .into_iter()
            .chain(has_xnnpack.then_some(Provider::Xnnpack))
            .collect(),
    };
    Installation {
        path: directory,
        origin,
        version,
        providers,
        problem,
    }
}

/// Returns the version of the package that a directory of libraries belongs to, without the build
/// label. It is read from the package's Python file, or else from its CMake files.
fn version(directory: &Path) -> Option<String> {
    let python = directory.parent()?.join("version.py");
    let cmake = directory.join("cmake/executorch/executorch-config-version.cmake");
    let told = |path: &Path, before: &str, after: &str| {
        let text = fs::read_to_string(path).ok()?;
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix(before)?.strip_suffix(after));
        let version = values.next()?.split('+').next()?;
        let is_version = version.starts_with(|first: char| first.is_ascii_digit());
        is_version.then(|| version.to_owned())
    };
    told(&python, "__version__ = \"", "\"")
        .or_else(|| told(&cmake, "set(PACKAGE_VERSION \"", "\")"))
}
