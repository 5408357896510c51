//! The search for ExecuTorch, on simulated machines.

use std::fs;
use std::path::PathBuf;

use pkgtool_engine::Provider;
use pkgtool_engine::executorch::{VERSION, installations_in};
use pkgtool_engine::library::{Installation, LibraryOrigin};
use pkgtool_engine::surroundings::Surroundings;
use tempfile::TempDir;

const SITE: &str = "lib/python3.12/site-packages";

struct Machine {
    root: TempDir,
    surroundings: Surroundings,
}

impl Machine {
    fn new() -> Self {
        let surroundings = Surroundings {
            os: "linux".to_owned(),
            ..Surroundings::default()
        };
        Self {
            root: TempDir::new().expect("a directory"),
            surroundings,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        let root = self.root.path().canonicalize().expect("the path exists");
        root.join(path)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        let directory = path.parent().expect("the path has a parent");
        fs::create_dir_all(directory).expect("a directory");
        fs::write(&path, text).expect("a file");
    }

    /// Creates a complete package of this version.
    fn package(&self, path: &str, version: &str) {
        let line = format!("__all__ = []\n__version__ = \"{version}\"\n");
        self.file(&format!("{path}/version.py"), &line);
        for name in ["", "_threadpool", "_kernels_optimized", "_backend_xnnpack"] {
            self.file(&format!("{path}/lib/libexecutorch{name}.so"), "");
        }
    }

    fn set(&mut self, name: &str, path: &str) {
        let value = self.path(path).into_os_string();
        self.surroundings.variables.insert(name.to_owned(), value);
    }

    fn search(&self) -> Vec<Installation> {
        installations_in(&self.surroundings)
    }

    fn only(&self) -> Installation {
        let mut found = self.search();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }
}

#[test]
fn an_empty_machine_has_nothing() {
    assert!(Machine::new().search().is_empty());
}

#[test]
fn places_are_looked_into_in_order() {
    let mut machine = Machine::new();
    for package in [
        "named/executorch",
        "data/pkgtool/lib/mine/executorch",
        "app",
        "libs",
        "venv/lib/python3.12/site-packages/executorch",
        "packages/executorch",
    ] {
        machine.package(package, VERSION);
    }
    machine.set("PKGTOOL_EXECUTORCH_DIR", "named/executorch");
    machine.set("XDG_DATA_HOME", "data");
    machine.set("LD_LIBRARY_PATH", "libs/lib");
    machine.set("PYTHONPATH", "packages");
    machine.set("VIRTUAL_ENV", "venv");
    machine.surroundings.program = Some(machine.path("app/bin"));
    let found: Vec<(PathBuf, LibraryOrigin)> = machine
        .search()
        .into_iter()
        .map(|it| (it.path, it.origin))
        .collect();
    let expected = [
        (
            "named/executorch/lib",
            LibraryOrigin::Variable("PKGTOOL_EXECUTORCH_DIR"),
        ),
        ("data/pkgtool/lib/mine/executorch/lib", LibraryOrigin::Own),
        ("app/lib", LibraryOrigin::Program),
        ("libs/lib", LibraryOrigin::System),
        ("packages/executorch/lib", LibraryOrigin::Python),
        (
            &format!("venv/{SITE}/executorch/lib"),
            LibraryOrigin::Python,
        ),
    ];
    let expected = expected.map(|(path, origin)| (machine.path(path), origin));
    assert_eq!(found, expected);
}

#[test]
fn a_whole_package_of_the_version_can_be_used() {
    let mut machine = Machine::new();
    machine.package(
        "venv/lib/python3.12/site-packages/executorch",
        &format!("{VERSION}+cpu"),
    );
    machine.set("VIRTUAL_ENV", "venv");
    let found = machine.only();
    assert_eq!(found.version.as_deref(), Some(VERSION));
    assert_eq!(found.providers, [Provider::Cpu, Provider::Xnnpack]);
    assert_eq!(found.problem, None);
}

#[test]
fn the_libraries_alone_have_a_version_too() {
    let mut machine = Machine::new();
    machine.package("x", VERSION);
    fs::remove_file(machine.path("x/version.py")).expect("the file exists");
    let cmake = "x/lib/cmake/executorch/executorch-config-version.cmake";
    machine.file(
        cmake,
        &format!("# of it\nset(PACKAGE_VERSION \"{VERSION}\")\n"),
    );
    machine.set("PKGTOOL_EXECUTORCH_DIR", "x/lib");
    assert_eq!(machine.only().problem, None);
}

#[test]
fn what_cannot_be_used_says_why() {
    let needed = format!("unsupported version: expected {VERSION}");
    let problem = |change: &dyn Fn(&Machine)| {
        let mut machine = Machine::new();
        machine.package("x", VERSION);
        change(&machine);
        machine.set("PKGTOOL_EXECUTORCH_DIR", "x");
        let found = machine.only();
        assert!(found.providers.is_empty());
        found.problem.expect("the search reports a problem")
    };
    let other = problem(&|machine| machine.package("x", "1.0.0"));
    assert_eq!(other, format!("{needed}, got 1.0.0"));
    let remove = |machine: &Machine, path: &str| {
        fs::remove_file(machine.path(path)).expect("the file exists");
    };
    let unknown = problem(&|machine| remove(machine, "x/version.py"));
    assert_eq!(unknown, format!("{needed}, got unknown"));
    let kernels = "x/lib/libexecutorch_kernels_optimized.so";
    let none = problem(&|machine| remove(machine, kernels));
    assert_eq!(none, "the library with the kernels is missing");
    let empty = problem(&|machine| remove(machine, "x/lib/libexecutorch.so"));
    assert_eq!(empty, "libexecutorch.so is missing in this directory");
}
