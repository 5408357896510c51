//! Part of the build script: compiles `shim.cpp` against the headers of an ExecuTorch package.
//!
//! It writes a shared library to `OUT_DIR`, in which ExecuTorch's symbols are undefined, and sets
//! `PKGTOOL_EXECUTORCH_VERSION` to the package's version. The engine embeds both, and opens the
//! library only after ExecuTorch's own libraries. Nothing is linked with ExecuTorch, so a build
//! also runs on machines without it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// The variable that names the package: the directory `executorch` in the packages of a Python
/// environment.
const VARIABLE: &str = "PKGTOOL_EXECUTORCH_DIR";
/// The source, from the root of this crate.
const SOURCE: &str = "src/executorch/shim.cpp";
/// Preprocessor definitions, as in the package's CMake files.
const DEFINITIONS: [&str; 3] = [
    "C10_USING_CUSTOM_GENERATED_MACROS",
    "ET_EVENT_TRACER_ENABLED",
    "ET_USE_THREADPOOL",
];
/// One of the headers that the shim includes.
const HEADER: &str = "include/executorch/runtime/executor/program.h";

/// Builds the shim, or prints the problem and exits.
pub(crate) fn build() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let built = package().and_then(|package| {
        println!(
            "cargo::rustc-env=PKGTOOL_EXECUTORCH_VERSION={}",
            version(&package)?
        );
        compile(&package)
    });
    if let Err(problem) = built {
        println!("cargo::error=the feature `executorch` cannot be built: {problem}");
        exit(1);
    }
}

/// Returns the directory of an ExecuTorch package with headers.
fn package() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        if named.join(HEADER).is_file() {
            return Ok(named);
        }
        return Err(format!(
            "{VARIABLE} is {}, which lacks {HEADER}; it must name the directory `executorch` \
             among the packages of a Python environment",
            named.display()
        ));
    }
    for variable in ["VIRTUAL_ENV", "PYTHONPATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let mut places: Vec<PathBuf> = env::var_os("PYTHONPATH")
        .map(|value| env::split_paths(&value).collect())
        .unwrap_or_default();
    places.extend(active_environment());
    let with_headers = |place: &PathBuf| place.join("executorch").join(HEADER).is_file();
    let mut found = places.into_iter().find(with_headers);
    if found.is_none() {
        found = asked_of_python().into_iter().find(with_headers);
    }
    found.map(|place| place.join("executorch")).ok_or_else(|| {
        format!(
            "ExecuTorch's Python package, which contains the C++ headers, was not found; run \
             `pip install --no-deps executorch==1.5.1` in the active environment, or name the \
             directory `executorch` of another one in {VARIABLE}"
        )
    })
}

/// Returns the package directories of the active virtual environment.
fn active_environment() -> Vec<PathBuf> {
    let Some(prefix) = env::var_os("VIRTUAL_ENV").map(PathBuf::from) else {
        return Vec::new();
    };
    let versions = fs::read_dir(prefix.join("lib")).into_iter().flatten();
    versions
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .collect()
}

/// Returns the package directories of the first Python on the path.
fn asked_of_python() -> Vec<PathBuf> {
    let script = "import sys; print('\\n'.join(sys.path))";
    let told = Command::new("python3").args(["-c", script]).output();
    let told = told.map(|output| output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&told).into_owned();
    told.lines().map(PathBuf::from).collect()
}

/// Returns the package's version without the build label (`1.5.1` of `1.5.1+cpu`).
fn version(package: &Path) -> Result<String, String> {
    let path = package.join("version.py");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("__version__ = "));
    let version = values.next().map(|value| value.trim_matches(['"', '\'']));
    let version = version.and_then(|version| version.split('+').next());
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("{} has no version", path.display()))
}

fn compile(package: &Path) -> Result<(), String> {
    let target = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target == "windows" {
        return Err("only Linux and macOS are supported".to_owned());
    }
    let include = package.join("include");
    let compiler = cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .debug(false)
        .pic(true)
        .try_get_compiler()
        .map_err(|error| format!("C++ compiler not found: {error}"))?;
    let mut command = compiler.to_command();
    command.args(["-shared", "-Wall", "-Wextra"]);
    for definition in DEFINITIONS {
        command.arg(format!("-D{definition}"));
    }
    // Suppresses warnings about the package's headers.
    command.arg("-isystem").arg(&include);
    let c10 = include.join("executorch/runtime/core/portable_type/c10");
    command.arg("-isystem").arg(c10);
    if target == "macos" {
        command.args(["-undefined", "dynamic_lookup"]);
    }
    let out = env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .unwrap_or_default();
    command
        .arg(SOURCE)
        .arg("-o")
        .arg(out.join("executorch-shim"));
    let done = command
        .output()
        .map_err(|error| format!("cannot start the C++ compiler: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if !done.status.success() {
        let first = said.lines().find(|line| line.contains("error"));
        return Err(format!(
            "{SOURCE} does not compile against {}: {}",
            include.display(),
            first.unwrap_or(&said)
        ));
    }
    for warning in said.lines().filter(|line| line.contains("warning:")) {
        println!("cargo::warning={warning}");
    }
    Ok(())
}
