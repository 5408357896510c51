//! Test of `validate --watch`, as one sequence of changes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;

use crate::support::run::{Run, pkgtool};
use crate::support::tree::{MODEL, Tree, config};

/// Maximum time until a change is noticed on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A watching process and its output, line by line.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(run: Run) -> Self {
        let mut command = run.into_command();
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Returns the next report; one report may cover several changes.
    fn report(&self) -> serde_json::Value {
        let mut text = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("a report");
            text.push_str(&line);
            // An indented document ends with this line.
            if line == "}" {
                return serde_json::from_str(&text).expect("JSON");
            }
        }
    }

    /// Waits for a report with this number of errors.
    fn wait_for(&self, errors: u64) {
        while self.report()["summary"]["errors"] != errors {}
    }
}

/// Returns the command that watches a path of the tree.
fn watch(tree: &Tree, path: &str) -> Run {
    let arguments = ["validate", "--watch", "--quiet", "--format", "json", path];
    pkgtool(arguments).within(tree.root())
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_changes_is_checked_again() {
    let mut first = config();
    first["tokenizer"] = json!("../tokenizer.json");
    let tree = Tree::new()
        .package("p/xnnpack", &first)
        .json("p/tokenizer.json", &json!({ "model": { "type": "BPE" } }));
    for path in ["p", "p/xnnpack/config.json"] {
        let watching = Watching::start(watch(&tree, path));
        watching.wait_for(0);
        let mut broken = first.clone();
        broken["license"] = json!("");
        let config = tree.path("p/xnnpack/config.json");
        fs::write(&config, broken.to_string()).expect("a file");
        watching.wait_for(1);
        // Editors save this way: a new file replaces the old one.
        fs::write(tree.path("p/xnnpack/new.tmp"), first.to_string()).expect("a file");
        fs::rename(tree.path("p/xnnpack/new.tmp"), &config).expect("a file");
        watching.wait_for(0);
        // A file that the config names in another directory, and the model.
        let tokenizer = tree.path("p/tokenizer.json");
        let text = fs::read(&tokenizer).expect("a file");
        fs::remove_file(&tokenizer).expect("a file");
        watching.wait_for(1);
        fs::write(&tokenizer, text).expect("a file");
        watching.wait_for(0);
        let model = tree.path(&format!("p/xnnpack/{MODEL}"));
        let bytes = fs::read(&model).expect("a file");
        fs::write(&model, "").expect("a file");
        watching.wait_for(1);
        fs::write(&model, bytes).expect("a file");
        watching.wait_for(0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_it() {
    use std::os::unix::process::ExitStatusExt;

    let tree = Tree::with_package();
    let mut watching = Watching::start(watch(&tree, ".").interruptible());
    watching.wait_for(0);
    let id = watching.child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.expect("kill runs").success());
    let status = watching.child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(2));
}
