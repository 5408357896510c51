//! Tests of the sandbox around processes that run models, with a hostile library that tries to
//! escape.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::environment::say;
use crate::support::onnx::unary;
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

const SOURCE: &str = include_str!("escapes.rs");

/// A library that tries to escape, and the targets that it tries to reach.
struct Trap {
    tree: Tree,
    library: PathBuf,
    _listeners: (TcpListener, UnixListener),
}

/// The attempts that succeeded in the library.
#[derive(Debug)]
struct Told {
    works: Vec<String>,
    escapes: Vec<String>,
}

impl Trap {
    fn set() -> Self {
        let tree = Tree::new()
            .file("package/m.onnx", unary("Relu", "float32", Some(&[2])))
            .file("home/secret", "secret")
            .file("home/secret.a", "secret")
            .file("home/secret.b", "secret")
            .file("library/placeholder", "");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let unix = UnixListener::bind(tree.path("home/socket")).expect("a socket");
        let port = tcp.local_addr().expect("it has one").port();
        let path = |path: &str| tree.path(path).display().to_string();
        let source = SOURCE
            .replace("@SECRET@", &path("home/secret"))
            .replace("@MODEL@", &path("package/m.onnx"))
            .replace("@SOCKET@", &path("home/socket"))
            .replace("@PORT@", &port.to_string());
        let library = tree.path("library/libonnxruntime.so.1.99.0");
        compile(&source, &tree.path("library/escapes.rs"), &library);
        Self {
            tree,
            library,
            _listeners: (tcp, unix),
        }
    }

    /// Loads the library in a process with this sandbox mode. The tool inherits an open file and a
    /// secret variable.
    fn spring(&self, mode: &str) -> Told {
        let mut inner = pkgtool([
            "run",
            "m.onnx",
            "--input",
            "random",
            "--engine",
            "ort",
            "--sandbox",
            mode,
        ])
        .within(self.tree.path("package"))
        .into_command();
        inner.arg("--ort-lib").arg(&self.library);
        let script = format!(
            "exec 77<'{}'; exec \"$@\"",
            self.tree.path("home/secret").display()
        );
        let mut command = Command::new("bash");
        command
            .args(["-c", &script, "bash"])
            .arg(inner.get_program());
        command.args(inner.get_args()).env("PLANTED", "secret");
        command.current_dir(self.tree.path("package"));
        let output = command.stdin(Stdio::null()).output().expect("bash starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let words = |from: &str, to: char| {
            let start = said
                .find(from)
                .unwrap_or_else(|| panic!("no `{from}` in: {said}"));
            let rest = &said[start + from.len()..];
            let end = rest.find(to).unwrap_or(rest.len());
            rest[..end].split_whitespace().map(str::to_owned).collect()
        };
        Told {
            works: words("works: ", ';'),
            escapes: words("escapes: ", '.'),
        }
    }
}

fn compile(source: &str, path: &Path, library: &Path) {
    std::fs::write(path, source).expect("a file");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]);
    let output = compiler.arg(library).arg(path).output();
    let output = output.expect("the compiler that compiled this test is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

const NEEDED: [&str; 7] = [
    "model",
    "processor",
    "status",
    "random",
    "threads",
    "threads-confined",
    "scratch",
];

/// Returns whether this kernel supports a full sandbox, and says so if it does not. Any other
/// failure is an error.
fn kernel_confines(test: &str) -> bool {
    let tree = Tree::new().file("m.onnx", unary("Relu", "float32", Some(&[2])));
    let arguments = [
        "run", "m.onnx", "--input", "random", "--engine", "tract", "--json",
    ];
    let json = pkgtool(arguments)
        .within(tree.root())
        .run()
        .expect_code(0)
        .json();
    let missing = json["sandbox"]["missing"].to_string();
    let lacks = ["this Linux has no Landlock", "Linux before 6.2"];
    let is_old = lacks.iter().any(|it| missing.contains(it));
    if is_old {
        say(&format!("SKIPPED {test}: {missing}"));
    }
    !is_old
}

#[test]
fn a_library_cannot_get_out_of_its_process() {
    if !kernel_confines("a_library_cannot_get_out_of_its_process") {
        return;
    }
    let trap = Trap::set();
    // Three runs, because state that is kept between runs may show up only later.
    for _ in 0..3 {
        let told = trap.spring("require");
        assert_eq!(told.works, NEEDED, "{told:?}");
        assert!(told.escapes.is_empty(), "{told:?}");
    }
    let secret = std::fs::read_to_string(trap.tree.path("home/secret")).expect("it is there");
    assert_eq!(secret, "secret");
}

/// Checks that the library escapes without a sandbox; otherwise the test above would prove nothing.
#[test]
fn without_a_sandbox_the_same_library_gets_out() {
    let told = Trap::set().spring("off");
    for name in [
        "read",
        "read-system",
        "read-root",
        "list",
        "create",
        "append",
        "change-model",
        "rename",
        "link",
        "symlink",
        "chmod",
        "times",
        "truncate",
        "remove",
        "parent-command",
        "signal",
        "signal-group",
        "tcp",
        "udp",
        "unix",
        "pair",
        "program",
        "fork",
        "parent-limits",
        "parent-priority",
    ] {
        assert!(told.escapes.iter().any(|it| it == name), "{name}: {told:?}");
    }
    // The environment is empty in any case.
    let secret = told.escapes.iter().find(|it| *it == "environment");
    assert_eq!(secret, None, "{told:?}");
}

#[test]
fn what_is_in_force_is_told_everywhere() {
    if !kernel_confines("what_is_in_force_is_told_everywhere") {
        return;
    }
    let tree = Tree::new().file("m.onnx", unary("Relu", "float32", Some(&[2])));
    let full = json!({ "level": "full", "missing": [], "exception": null });
    let ran = |arguments: &[&str]| pkgtool(arguments).within(tree.root()).run();
    let run = ran(&[
        "run", "m.onnx", "--input", "random", "--engine", "tract", "--json",
    ]);
    assert_eq!(run.expect_code(0).json()["sandbox"], full);
    let bench = [
        "bench",
        "m.onnx",
        "--input",
        "random",
        "--engine",
        "tract",
        "--runs",
        "2",
        "--json",
        "--sandbox",
        "require",
    ];
    assert_eq!(
        ran(&bench).expect_code(0).json()["series"][0]["sandbox"],
        full
    );
    let unconfined = [
        "run",
        "m.onnx",
        "--input",
        "random",
        "--engine",
        "tract",
        "--sandbox",
        "off",
    ];
    let off = ran(&[&unconfined[..], &["--json"]].concat());
    let off = off.expect_code(0).json();
    assert_eq!(off["sandbox"]["level"], "none");
    let text = ran(&unconfined);
    let text = text.expect_code(0).stdout;
    assert!(
        text.contains("sandbox: none (it is switched off)"),
        "{text}"
    );
    let backends = ran(&["backends", "--json"]).expect_code(0).json();
    assert_eq!(backends["sandbox"], full);
    let devices = backends["backends"].as_array().expect("a list");
    let exceptions: Vec<&Value> = devices
        .iter()
        .map(|one| &one["sandbox"]["exception"])
        .collect();
    let known = [Value::Null, json!("qnn"), json!("webgpu"), json!("coreml")];
    assert!(
        exceptions.iter().all(|it| known.contains(it)),
        "{exceptions:?}"
    );
    let shown = ran(&["backends"]).expect_code(0).stdout.clone();
    assert!(
        shown.contains("sandbox of the processes that run models: full"),
        "{shown}"
    );
}

#[test]
fn a_mode_that_is_none_is_refused() {
    let ran = pkgtool(["run", "m.onnx", "--sandbox", "yes"]).run();
    let said = ran.expect_code(2).stderr;
    assert!(
        said.contains("[possible values: auto, require, off]"),
        "{said}"
    );
}
