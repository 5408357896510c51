//! The search for ONNX Runtime, on simulated machines.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_engine::Provider;
use pkgtool_engine::library::{Installation, Installations, LibraryOrigin};
use pkgtool_engine::ort::installations_in;
use pkgtool_engine::surroundings::Surroundings;
use tempfile::TempDir;

const SITE: &str = "lib/python3.12/site-packages";
const CAPI: &str = "lib/python3.12/site-packages/onnxruntime/capi";
const LIBRARY: &[u8] = b"\x7fELF...OrtGetApiBase\0VERS_1.30.2\0";

struct Machine {
    root: TempDir,
    surroundings: Surroundings,
}

impl Machine {
    fn new(os: &str) -> Self {
        let root = TempDir::new().expect("a directory");
        let surroundings = Surroundings {
            os: os.to_owned(),
            ..Surroundings::default()
        };
        Self { root, surroundings }
    }

    fn path(&self, path: &str) -> PathBuf {
        let root = self.root.path().canonicalize().expect("the path exists");
        root.join(path)
    }

    fn file(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(path);
        let directory = path.parent().expect("the path has a parent");
        fs::create_dir_all(directory).expect("a directory");
        fs::write(&path, bytes).expect("a file");
        path
    }

    fn set(&mut self, name: &str, path: &str) {
        let value = self.path(path).into_os_string();
        self.surroundings.variables.insert(name.to_owned(), value);
    }

    fn search(&self, named: Option<&Path>) -> Installations {
        installations_in(&self.surroundings, named)
    }

    fn only(&self) -> Installation {
        let mut found = self.search(None).libraries;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

#[test]
fn an_empty_machine_has_nothing() {
    assert_eq!(Machine::new("linux").search(None), Installations::default());
}

#[test]
fn places_come_in_their_order() {
    let mut machine = Machine::new("linux");
    let mut expected = Vec::new();
    machine.set("ORT_DYLIB_PATH", "wish/libonnxruntime.so");
    machine.set("XDG_DATA_HOME", "data");
    machine.set("LD_LIBRARY_PATH", "libs");
    machine.set("VIRTUAL_ENV", "venv");
    machine.surroundings.program = Some(machine.path("app/bin"));
    machine.surroundings.system = vec![machine.path("usr/lib")];
    for (path, origin) in [
        ("named/libonnxruntime.so.1.31.0", LibraryOrigin::Named),
        (
            "wish/libonnxruntime.so",
            LibraryOrigin::Variable("ORT_DYLIB_PATH"),
        ),
        (
            "data/pkgtool/lib/libonnxruntime.so.1.26.0",
            LibraryOrigin::Own,
        ),
        (
            "data/pkgtool/lib/webgpu/onnxruntime/capi/libonnxruntime.so.1.27.0",
            LibraryOrigin::Own,
        ),
        ("app/bin/libonnxruntime.so", LibraryOrigin::Program),
        ("app/lib/libonnxruntime.so", LibraryOrigin::Program),
        ("libs/libonnxruntime.so.1", LibraryOrigin::System),
        ("usr/lib/libonnxruntime.so.1.28.0", LibraryOrigin::System),
        (
            &format!("venv/{CAPI}/libonnxruntime.so.1.29.0"),
            LibraryOrigin::Python,
        ),
    ] {
        expected.push((machine.file(path, LIBRARY), origin));
    }
    let named = expected[0].0.clone();
    let found = machine.search(Some(&named)).libraries;
    let found: Vec<_> = found.into_iter().map(|it| (it.path, it.origin)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_directory_can_be_named() {
    let machine = Machine::new("linux");
    let path = machine.file("lib/libonnxruntime.so.1.31.0", LIBRARY);
    let found = machine.search(Some(&machine.path("lib")));
    assert_eq!(found.libraries[0].path, path);
    assert_eq!(found.libraries[0].origin, LibraryOrigin::Named);
}

#[test]
fn what_is_named_and_absent_is_listed_with_its_problem() {
    let machine = Machine::new("linux");
    let found = machine.search(Some(&machine.path("no.so")));
    let problem = found.libraries[0].problem.as_deref().unwrap_or_default();
    assert!(problem.contains("No such file"), "{problem}");
}

#[test]
fn versions_come_from_names_packages_and_symbols() {
    for (os, files, expected) in [
        (
            "linux",
            vec![format!("venv/{CAPI}/libonnxruntime.so.1.29.0")],
            "1.29.0",
        ),
        (
            "macos",
            vec![format!("venv/{CAPI}/libonnxruntime.1.28.1.dylib")],
            "1.28.1",
        ),
        (
            "linux",
            vec![format!("venv/{CAPI}/libonnxruntime.so")],
            "1.30.2",
        ),
        (
            "windows",
            vec![
                "venv/Lib/site-packages/onnxruntime/capi/onnxruntime.dll".to_owned(),
                "venv/Lib/site-packages/onnxruntime_webgpu-1.27.0.dist-info/METADATA".to_owned(),
            ],
            "1.27.0",
        ),
    ] {
        let mut machine = Machine::new(os);
        machine.set("VIRTUAL_ENV", "venv");
        for file in &files {
            machine.file(file, LIBRARY);
        }
        let found = machine.only();
        assert_eq!(found.version.as_deref(), Some(expected), "{files:?}");
        assert_eq!(found.providers, [Provider::Cpu]);
        assert_eq!(found.problem, None);
    }
}

#[test]
fn providers_are_told_by_the_code_of_the_library() {
    let mut machine = Machine::new("linux");
    machine.set("VIRTUAL_ENV", "venv");
    // The text crosses the boundary between two chunks of the search.
    let mut bytes = LIBRARY.to_vec();
    bytes.resize((1 << 20) + 64 - 10, b'.');
    bytes.extend(b"Invalid Dawn backend type: \0");
    machine.file(&format!("venv/{CAPI}/libonnxruntime.so.1.27.0"), &bytes);
    assert_eq!(machine.only().providers, [Provider::Cpu, Provider::WebGpu]);
}

#[test]
fn what_cannot_be_used_says_why() {
    for (name, bytes, expected) in [
        (
            "libonnxruntime.so.1.18.1",
            LIBRARY,
            "unsupported version 1.18.1: expected 1.24 or later",
        ),
        (
            "libonnxruntime.so",
            b"OrtGetApiBase\0VERS_1.9.0\0".as_slice(),
            "unsupported version 1.9.0",
        ),
        (
            "libonnxruntime.so",
            b"garbage",
            "not an ONNX Runtime library",
        ),
        ("libonnxruntime.so", b"", "not an ONNX Runtime library"),
    ] {
        let mut machine = Machine::new("linux");
        machine.set("LD_LIBRARY_PATH", "libs");
        machine.file(&format!("libs/{name}"), bytes);
        let found = machine.only();
        let problem = found.problem.unwrap_or_default();
        assert!(problem.contains(expected), "{problem}");
        assert!(found.providers.is_empty());
    }
}

#[test]
fn plugins_are_found_when_they_are_complete() {
    let mut machine = Machine::new("linux");
    machine.set("VIRTUAL_ENV", "venv");
    machine.set("PKGTOOL_DATA_DIR", "own");
    let qnn = format!("venv/{SITE}/onnxruntime_qnn");
    let library = machine.file(&format!("{qnn}/libonnxruntime_providers_qnn.so"), b"");
    assert!(machine.search(None).plugins.is_empty());
    let backend = machine.file(&format!("{qnn}/libQnnHtp.so"), b"");
    let own = machine.file(
        "own/lib/x/onnxruntime_ep_webgpu/libonnxruntime_providers_webgpu.so",
        b"",
    );
    let found = machine.search(None).plugins;
    let found: Vec<_> = found
        .into_iter()
        .map(|it| (it.provider, it.path, it.backend))
        .collect();
    assert_eq!(
        found,
        [
            (Provider::WebGpu, own, None),
            (Provider::Qnn, library, Some(backend))
        ]
    );
}

#[test]
fn only_the_systems_own_names_count() {
    for os in ["linux", "macos", "windows"] {
        let mut machine = Machine::new(os);
        machine.set("LD_LIBRARY_PATH", "libs");
        machine.set("DYLD_LIBRARY_PATH", "libs");
        machine.set("PATH", "libs");
        for name in [
            "libonnxruntime.so",
            "libonnxruntime.dylib",
            "onnxruntime.dll",
            "libonnxruntime_providers_shared.so",
            "libonnxruntime.so.debug",
            "libonnxruntime4j_jni.so",
        ] {
            machine.file(&format!("libs/{name}"), LIBRARY);
        }
        machine.only();
    }
}

#[test]
fn relative_directories_are_not_looked_into() {
    let mut machine = Machine::new("linux");
    let variables = &mut machine.surroundings.variables;
    for name in ["LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME"] {
        variables.insert(name.to_owned(), ".:::src".into());
    }
    assert!(machine.search(None).libraries.is_empty());
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_library_with_several_names_is_one() {
        let mut machine = Machine::new("linux");
        machine.set("LD_LIBRARY_PATH", "libs");
        let path = machine.file("libs/libonnxruntime.so.1.31.0", LIBRARY);
        symlink(&path, machine.path("libs/libonnxruntime.so.1")).expect("a link");
        symlink(&path, machine.path("libs/libonnxruntime.so")).expect("a link");
        assert_eq!(machine.only().path, path);
    }

    #[test]
    fn pythons_on_the_path_are_followed() {
        let mut machine = Machine::new("linux");
        machine.set("PATH", "env/bin");
        let python = machine.file("real/bin/python3.12", b"");
        fs::create_dir_all(machine.path("env/bin")).expect("a directory");
        symlink(python, machine.path("env/bin/python3")).expect("a link");
        let real = machine.file(&format!("real/{CAPI}/libonnxruntime.so.1.26.0"), LIBRARY);
        assert_eq!(machine.only().path, real);
        let env = machine.file(&format!("env/{CAPI}/libonnxruntime.so.1.27.0"), LIBRARY);
        let found = machine.search(None).libraries;
        let found: Vec<_> = found.into_iter().map(|it| it.path).collect();
        assert_eq!(found, [env, real]);
    }

    #[test]
    fn shims_of_python_are_seen_through() {
        let mut machine = Machine::new("linux");
        machine.set("PATH", "pyenv/shims");
        machine.file("pyenv/shims/python3", b"#!/bin/sh\n");
        machine.file("pyenv/version", b"3.12.1\n");
        let mut expected = Vec::new();
        for version in ["3.12.1", "3.11.9"] {
            let path = format!("pyenv/versions/{version}/{CAPI}/libonnxruntime.so.1.27.0");
            expected.push(machine.file(&path, LIBRARY));
        }
        let paths = |machine: &Machine| -> Vec<PathBuf> {
            let found = machine.search(None).libraries;
            found.into_iter().map(|it| it.path).collect()
        };
        assert_eq!(paths(&machine), expected);
        let variables = &mut machine.surroundings.variables;
        variables.insert("PYENV_VERSION".to_owned(), "3.11.9".into());
        expected.reverse();
        assert_eq!(paths(&machine), expected);
    }
}
