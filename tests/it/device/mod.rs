//! Devices: models that run where a shell leads. The devices here are this machine, behind `sh`, OpenSSH's server, and
//! `adb` with a stand-in of an Android device.

mod adb;
mod cuts;
mod emulated;
mod refused;
mod served;
mod ssh;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::environment::EnvironmentPiece;
use crate::support::run::{Ran, Run, pkgtool};

/// A small package of the repository, whose program every machine runs.
const PACKAGE: &str = "packages-examples/glimpse/xnnpack/config.json";

/// A directory of a device, and the option that leads there.
struct TestDevice {
    on: String,
    directory: TempDir,
    variables: Vec<(String, String)>,
}

impl TestDevice {
    /// Returns a device that is this machine, behind a shell.
    fn shell() -> Self {
        Self::at("exec:sh".to_owned())
    }

    fn at(on: String) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // A server of another user may write there.
        make_public(directory.path());
        Self {
            on,
            directory,
            variables: Vec::new(),
        }
    }

    /// Returns the directory of the tool on the device.
    fn place(&self) -> PathBuf {
        self.directory.path().join("pkgtool")
    }

    /// Returns a command that runs there.
    fn command(&self, arguments: &[&str]) -> Run {
        let place = self.place();
        let mut run = pkgtool(arguments)
            .variable("PKGTOOL_ON", &self.on)
            .variable("PKGTOOL_DEVICE_DIR", place.to_str().expect("UTF-8"))
            .variable("PKGTOOL_DEVICE_BINARY", binary().to_str().expect("UTF-8"));
        for (name, value) in &self.variables {
            run = run.variable(name, value);
        }
        run
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).run()
    }

    /// Returns the names of the files that the device holds.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.place().join("files"))
            .into_iter()
            .flatten();
        let names = files.flatten().map(|entry| entry.file_name());
        names
            .map(|name| name.into_string().expect("UTF-8"))
            .collect()
    }

    /// Fails if a process of the device's binary lives on.
    #[track_caller]
    fn expect_no_process(&self) {
        let place = self.place().join("bin");
        let place = place.to_str().expect("UTF-8").to_owned();
        let since = Instant::now();
        loop {
            let living = processes_with(&place);
            if living.is_empty() {
                return;
            }
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "{living:?} live on"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the command lines of processes that contain a text.
fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text).then_some(line)
    });
    // The shell that started it has the text in its command line, too.
    lines
        .filter(|line| line.contains("engine-process"))
        .collect()
}

fn make_public(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("a directory of this test");
}

/// Returns the tool's binary without debug information, which is sent faster.
fn binary() -> &'static Path {
    static BINARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BINARY.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a directory");
        make_public(folder.path());
        let path = folder.path().join("pkgtool");
        let copied = Command::new("strip")
            .args(["-s", "-o"])
            .arg(&path)
            .arg(env!("CARGO_BIN_EXE_pkgtool"))
            .status();
        assert!(copied.expect("binutils are there").success());
        (folder, path)
    });
    path
}

/// Returns the values of the first output of `run --json`.
fn output_of(ran: &Ran) -> Value {
    ran.json()["outputs"].clone()
}

#[test]
fn a_device_answers_like_this_machine() {
    let device = TestDevice::shell();
    let run = [
        "run", PACKAGE, "--input", "random:3", "--engine", "tract", "--json",
    ];
    let there = device.run(&run).expect_code(0);
    let here = pkgtool(run).run().expect_code(0);
    assert_eq!(output_of(&there), output_of(&here));
    assert_eq!(device.files().len(), 1);
    device.expect_no_process();
    // The second run finds everything there.
    let sent = fs::metadata(device.place().join("files").join(&device.files()[0]));
    let sent = sent.and_then(|file| file.created()).expect("a time");
    device.run(&run).expect_code(0);
    let again = fs::metadata(device.place().join("files").join(&device.files()[0]));
    assert_eq!(again.and_then(|file| file.created()).expect("a time"), sent);

    let cleaned = device.run(&["devices", "clean"]).expect_code(0);
    assert!(
        cleaned.stdout.contains("removed 3 files"),
        "{}",
        cleaned.stdout
    );
    assert!(!device.place().exists());
    device.expect_no_process();
}

#[test]
fn an_engine_that_writes_files_runs_there() {
    let test = "an_engine_that_writes_files_runs_there";
    if EnvironmentPiece::ExecuTorch.or_skip(test).is_none() {
        return;
    }
    let device = TestDevice::shell();
    let run = [
        "run",
        PACKAGE,
        "--input",
        "random:3",
        "--engine",
        "executorch",
        "--json",
    ];
    let ran = device.run(&run).expect_code(0).json();
    assert_eq!(ran["engine"], "executorch", "{ran}");
    device.expect_no_process();
    let left = fs::read_dir(device.place().join("tmp")).expect("a folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn external_data_is_found_there() {
    let device = TestDevice::shell();
    let sides = [
        "compare",
        "packages-examples/parlor-tts/82m/xnnpack/config.json",
        "--engine",
        "tract",
        "--on",
        "local,exec:sh",
        "--json",
    ];
    let report = device.run(&sides).expect_code(0).json();
    assert_eq!(report["agrees"], true, "{report}");
}

#[test]
fn bench_and_compare_take_several_devices() {
    let mut device = TestDevice::shell();
    device.on = "exec:sh,local".to_owned();
    let bench = [
        "bench", PACKAGE, "--engine", "tract", "--runs", "3", "--rounds", "2", "--json",
    ];
    let report = device.run(&bench).expect_code(0).json();
    let labels: Vec<&str> = report["series"]
        .as_array()
        .expect("series")
        .iter()
        .map(|one| one["label"].as_str().expect("a label"))
        .collect();
    assert_eq!(labels.len(), 2);
    assert!(labels[0].ends_with("on exec:sh"), "{labels:?}");
    assert!(!labels[1].contains("exec"), "{labels:?}");
    let compare = ["compare", PACKAGE, "--engine", "tract", "--json"];
    let report = device.run(&compare).expect_code(0).json();
    assert_eq!(report["agrees"], true, "{report}");
    let several = device.run(&["run", PACKAGE, "--input", "random:0"]);
    several
        .expect_code(2)
        .expect_error("--on takes one device here");
    let profile = device.command(&[
        "bench",
        PACKAGE,
        "--engine",
        "tract",
        "--runs",
        "2",
        "--profile",
    ]);
    let profile = profile.run().expect_code(0);
    assert!(profile.stdout.contains("profile of"), "{}", profile.stdout);
    device.expect_no_process();
}

#[test]
fn a_device_says_what_it_is() {
    let device = TestDevice::shell();
    let listed = device.run(&["devices", "--json"]).expect_code(0).json();
    let first = &listed["devices"][0];
    assert_eq!(first["address"], "exec:sh");
    assert_eq!(first["machine"]["architecture"], std::env::consts::ARCH);
    assert!(first["clusters"][0]["cores"].is_array(), "{first}");
    let backends = first["backends"].as_array().expect("a list");
    assert!(
        backends.iter().any(|one| one["backend"] == "xnnpack"),
        "{first}"
    );
    let text = device.run(&["devices"]).expect_code(0).stdout;
    for fact in ["memory", "system", "architecture"] {
        assert!(text.contains(fact), "{text}");
    }
    let backends = device.run(&["backends"]).expect_code(0);
    assert!(
        backends.stdout.contains("backends of ONNX models"),
        "{}",
        backends.stdout
    );
}

#[test]
fn a_chat_runs_there() {
    let device = TestDevice::shell();
    let asked = [
        "chat",
        "packages-examples/pebble/0_6b/xnnpack/config.json",
        "--message",
        "hello",
    ];
    let ran = device.run(&asked);
    assert!(
        ran.code == 0 || ran.stderr.contains("--message"),
        "{}",
        ran.stderr
    );
}

#[test]
fn limits_apply_there() {
    let device = TestDevice::shell();
    let limited = device.command(&[
        "run",
        PACKAGE,
        "--input",
        "random:0",
        "--engine",
        "tract",
        "--max-memory",
        "1MiB",
    ]);
    limited.run().expect_code(2).expect_error("memory");
    let slow = device.command(&[
        "run",
        PACKAGE,
        "--input",
        "random:0",
        "--engine",
        "tract",
        "--timeout",
        "0.000001",
    ]);
    slow.run().expect_code(2).expect_error("time");
    device.expect_no_process();
}

#[test]
fn two_callers_send_the_same_files_at_once() {
    let device = TestDevice::shell();
    let run = [
        "run", PACKAGE, "--input", "random:3", "--engine", "tract", "--json",
    ];
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let both = [(); 3].map(|()| scope.spawn(|| device.run(&run)));
        both.into_iter()
            .map(|one| one.join().expect("it ends"))
            .collect()
    });
    let first = output_of(&ran[0]);
    for one in ran {
        let one = one.expect_code(0);
        assert_eq!(output_of(&one), first);
    }
    device.expect_no_process();
}

#[test]
fn a_sustained_run_ranks_by_the_end() {
    let mut device = TestDevice::shell();
    device.on = "exec:sh,local".to_owned();
    let ran = device.run(&["bench", PACKAGE, "--engine", "tract", "--sustained", "2s"]);
    let text = ran.expect_code(0).stdout;
    for word in ["without a pause", "sustained", "throttled", "on exec:sh"] {
        assert!(text.contains(word), "{text}");
    }
    let both = device.run(&["bench", PACKAGE, "--sustained", "2s", "--runs", "3"]);
    both.expect_code(2).expect_error("cannot be used with");
    let unit = device.run(&["bench", PACKAGE, "--sustained", "2"]);
    unit.expect_code(2).expect_error("such as `90s` or `10m`");
}

#[test]
fn measurements_for_phones_work_there() {
    let device = TestDevice::shell();
    let bench = [
        "bench",
        PACKAGE,
        "--engine",
        "tract",
        "--runs",
        "3",
        "--rounds",
        "1",
        "--cores",
        "0",
        "--cold-starts",
        "1",
        "--json",
    ];
    let report = device.run(&bench).expect_code(0).json();
    let one = &report["series"][0];
    assert_eq!(one["pinned_cores"], serde_json::json!([0]), "{one}");
    assert!(
        one["starts"]["cold"]["process_ms"].as_f64() > Some(0.0),
        "{one}"
    );
    assert!(
        one["starts"]["model_files_bytes"].as_u64() > Some(0),
        "{one}"
    );
    let memory = &one["proportional_memory"];
    assert!(
        memory["loaded"]["pss_bytes"].as_u64() > Some(1 << 20),
        "{one}"
    );
    let wrong = device.run(&["bench", PACKAGE, "--cores", "1000"]);
    wrong
        .expect_code(2)
        .expect_error("no core 1000: expected some of 0");
    device.expect_no_process();
}
