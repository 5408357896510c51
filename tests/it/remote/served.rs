//! Tests of `serve` with remote addresses: downloads before the gateway listens, the requests of
//! later starts, and the service while the server lies, breaks off or is gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{package, tool};
use crate::gateway::{first_output, three};
use crate::support::gateway::{Gateway, Setup};
use crate::support::run::Ran;
use crate::support::tree::{MODEL, Tree};
use crate::support::web::{Asked, Body, Content, Told, Web, listing_site};

const FETCHED: &str = "source downloaded";
const UNCHANGED: &str = "source unchanged";
const EARLIER: &str = "cannot update a source; serving its existing copy";
const REMOVED: &str = "removed the copy of a source that is no longer served";

type Files = Arc<Mutex<BTreeMap<String, Content>>>;

/// Returns files below `/repo` of a package whose model applies `operator` to its input.
fn files(operator: &str) -> BTreeMap<String, Content> {
    let tree = crate::gateway::package(Tree::new(), "negate", operator);
    let names = ["config.json", "negate_xnnpack_fp32.onnx"];
    let files = names.map(|name| {
        let path = format!("negate/xnnpack/{name}");
        let bytes = fs::read(tree.path(&path)).expect("a file");
        (format!("/repo/{path}"), Content::of(bytes))
    });
    let mut files = BTreeMap::from(files);
    files.insert("/repo/README.md".to_owned(), Content::of("# Read\n"));
    files
}

fn serving(files: &Files) -> Web {
    let files = Arc::clone(files);
    Web::start(move |asked| listing_site(&files.lock().expect("no panic"), asked))
}

/// Returns a gateway's setup without environment variables that affect network access.
fn setup() -> Setup {
    let setup = Setup::new().variable("NO_PROXY", "*");
    setup
        .variable("HF_TOKEN", "")
        .variable("HF_ENDPOINT", "http://127.0.0.1:9")
}

/// Returns the arguments of `serve` on a data directory.
fn serve_arguments<'a>(source: &'a str, data: &'a Path) -> [&'a str; 6] {
    let data = data.to_str().expect("UTF-8");
    let address = "127.0.0.1:0";
    ["serve", source, "--listen", address, "--data-dir", data]
}

/// Runs `serve` on a data directory until it ends.
fn serve(source: &str, data: &Path, more: &[&str]) -> Ran {
    let arguments = serve_arguments(source, data);
    tool(&[&arguments, more].concat()).run()
}

/// Returns the service's first output for 1, -2, 3.
#[track_caller]
fn answer(gateway: &Gateway) -> Vec<f64> {
    let reply = gateway.post("/p/local/negate", three([1.0, -2.0, 3.0]));
    first_output(&reply.expect(200).json())
}

/// Returns the folders of the downloaded copies.
fn copies(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("sources")).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Returns the sides (directories) of the only copy.
fn sides(data: &Path) -> Vec<&'static str> {
    let copies = copies(data);
    assert_eq!(copies.len(), 1, "{copies:?}");
    let mut sides = vec!["a", "b"];
    sides.retain(|side| copies[0].join(side).exists());
    sides
}

/// Returns how often the file was downloaded, without range requests that inspect it.
fn transfers(web: &Web, name: &str) -> usize {
    let asked = web.asked().into_iter();
    let is_one = |asked: &Asked| {
        asked.path.ends_with(name) && asked.range().is_none_or(|(_, to)| to.is_none())
    };
    asked.filter(is_one).count()
}

#[test]
fn a_package_is_fetched_once_then_served_without_its_server() {
    let web = serving(&Arc::new(Mutex::new(files("Neg"))));
    let source = web.url("/repo/");
    let gateway = setup().packages(&source).start();
    assert!(
        gateway.announced.contains("local/negate"),
        "{}",
        gateway.announced
    );
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
    let line = gateway.line(|line| line["message"] == FETCHED);
    assert_eq!(
        (&line["source"], &line["files"]),
        (&source.as_str().into(), &3.into())
    );
    let directory = line["directory"].as_str().expect("a path");
    assert!(Path::new(directory).starts_with(gateway.data().join("sources")));
    assert_eq!(transfers(&web, ".onnx"), 1);

    let gateway = gateway.stop_and_change(|_| {});
    gateway.line(|line| line["message"] == UNCHANGED);
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
    assert_eq!(
        (transfers(&web, ".onnx"), transfers(&web, "README.md")),
        (1, 1)
    );

    let gateway = gateway.stop_and_change(|_| drop(web));
    let line = gateway.line(|line| line["message"] == EARLIER);
    assert_eq!(line["level"], "WARN");
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);

    // A modified copy is discarded.
    let (code, log, directory) = gateway.stop();
    assert_eq!(code, Some(0), "{log}");
    let data = directory.path().join("data");
    let place = copies(&data).remove(0);
    fs::write(place.join("a/README.md"), "# Rea!\n").expect("a file");
    let ran = serve(&source, &data, &[]).expect_code(2);
    assert!(ran.stderr.contains("no complete copy"), "{}", ran.stderr);
}

#[test]
fn what_changed_takes_the_place_of_the_old_as_a_whole() {
    let shared: Files = Arc::new(Mutex::new(files("Neg")));
    let web = serving(&shared);
    let gateway = setup().packages(web.url("/repo/")).start();
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
    let mut changed = files("Relu");
    changed.remove("/repo/README.md");
    changed.insert("/repo/NEWS.md".to_owned(), Content::of("new"));
    *shared.lock().expect("no panic") = changed;
    let gateway = gateway.stop_and_change(|_| {});
    assert_eq!(answer(&gateway), [1.0, 0.0, 3.0]);
    assert_eq!(sides(&gateway.data()), ["b"]);
    let copy = copies(&gateway.data()).remove(0).join("b");
    assert!(copy.join("NEWS.md").exists() && !copy.join("README.md").exists());
    // Unchanged files are not downloaded again.
    let before = transfers(&web, "NEWS.md");
    shared
        .lock()
        .expect("no panic")
        .insert("/repo/LICENSE".to_owned(), Content::of("MIT"));
    let gateway = gateway.stop_and_change(|_| {});
    assert_eq!((before, transfers(&web, "NEWS.md")), (1, 1));
    assert_eq!(transfers(&web, ".onnx"), 2);
    assert_eq!(sides(&gateway.data()), ["a"]);
    assert_eq!(answer(&gateway), [1.0, 0.0, 3.0]);
}

/// Size of a program that arrives in several parts, in bytes.
const SIZE: u64 = 3_000_000;

/// Serves a program that stalls after `most` bytes; 0 disables the stall.
fn stalling(files: &Files, most: &Arc<Mutex<usize>>) -> Web {
    let (files, most) = (Arc::clone(files), Arc::clone(most));
    Web::start(move |asked| {
        let told = listing_site(&files.lock().expect("no panic"), asked);
        let most = *most.lock().expect("no panic");
        match &told.body {
            Body::Part(content, 0, length) if most > 0 && *length == SIZE => {
                let mut bytes = content.head.clone();
                bytes.resize(most, 0);
                let length = length.to_string();
                Told {
                    body: Body::Stall(bytes),
                    ..told.with("Content-Length", &length)
                }
            }
            _ => told,
        }
    })
}

fn spawn(source: &str, data: &Path) -> Child {
    let mut command = tool(&serve_arguments(source, data)).into_command();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary runs")
}

/// Starts a server and kills it when this side of the only copy holds `at` bytes of the program.
fn interrupted(source: &str, data: &Path, side: &str, at: u64) {
    let mut child = spawn(source, data);
    let started = Instant::now();
    let part = || {
        let copy = copies(data).pop()?.join(side);
        let part = copy.join(format!(".pkgtool/parts/xnnpack/{MODEL}.part"));
        Some(fs::metadata(part).ok()?.len())
    };
    while !data.join("sources").exists() || part().is_none_or(|size| size < at) {
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "{at} bytes never come"
        );
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it ended"
        );
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn what_was_interrupted_is_gone_on_with_and_the_old_stays_whole_meanwhile() {
    let shared: Files = Arc::new(Mutex::new(package("/repo/xnnpack", SIZE)));
    let most = Arc::new(Mutex::new(1_000_000));
    let web = stalling(&shared, &most);
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    interrupted(&web.url("/repo/"), &data, "a", 1_000_000);
    *most.lock().expect("no panic") = 0;
    let gateway = setup().packages(web.url("/repo/")).start_in(directory);
    assert!(
        gateway.announced.contains("local/tiny"),
        "{}",
        gateway.announced
    );
    let ranges = web.asked().into_iter().filter_map(|asked| asked.range());
    let rest: Vec<u64> = ranges
        .filter_map(|(from, to)| to.is_none().then_some(from))
        .collect();
    assert_eq!(rest, [1_000_000]);

    // The new version is half downloaded when its server disappears: the old one is served.
    let mut changed = package("/repo/xnnpack", SIZE);
    let program = changed.get_mut(&format!("/repo/xnnpack/{MODEL}"));
    program.expect("it is there").tag = "\"other\"".to_owned();
    changed.insert("/repo/new.txt".to_owned(), Content::of("new"));
    *shared.lock().expect("no panic") = changed;
    *most.lock().expect("no panic") = 1_000_000;
    let source = web.url("/repo/");
    let gateway = gateway.stop_and_change(|data| {
        interrupted(&source, data, "b", 1_000_000);
        drop(web);
    });
    gateway.line(|line| line["message"] == EARLIER);
    assert!(
        gateway.announced.contains("local/tiny"),
        "{}",
        gateway.announced
    );
    let copy = copies(&gateway.data()).remove(0);
    assert!(copy.join("a").join("xnnpack").join(MODEL).exists());
    assert!(!copy.join("b").join("xnnpack").join(MODEL).exists());
}

#[test]
fn a_server_that_lies_is_not_believed() {
    let mut lying = files("Neg");
    let sums = format!(
        "{}  negate/xnnpack/negate_xnnpack_fp32.onnx\n",
        "0".repeat(64)
    );
    lying.insert("/repo/SHA256SUMS".to_owned(), Content::of(sums));
    let shared: Files = Arc::new(Mutex::new(lying.clone()));
    let web = serving(&shared);
    let source = web.url("/repo/");
    let directory = tempfile::tempdir().expect("a directory");
    let ran = serve(&source, &directory.path().join("data"), &[]).expect_code(2);
    for part in [&source, "SHA-256", "no complete copy", "start again"] {
        assert!(ran.stderr.contains(part), "{part} in {}", ran.stderr);
    }
    // The version from before the lie is still served.
    *shared.lock().expect("no panic") = files("Neg");
    let gateway = setup().packages(&source).start_in(directory);
    *shared.lock().expect("no panic") = lying;
    let gateway = gateway.stop_and_change(|_| {});
    let line = gateway.line(|line| line["message"] == EARLIER);
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|error| error.contains("SHA-256")),
        "{line}"
    );
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
}

#[test]
fn without_a_server_and_a_copy_nothing_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    for (source, reason) in [
        ("http://127.0.0.1:9/repo/", "refused"),
        ("hf:owner/repo@v1", "refused"),
        ("hf:owner", "OWNER/REPOSITORY"),
        ("https://name:word@host/", "password"),
    ] {
        let ran = serve(source, &data, &[]).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        assert!(!ran.stdout.contains("serving"), "{}", ran.stdout);
    }
    let ran = serve("hf:a/b", &data, &["--backend", "abacus"]).expect_code(2);
    assert!(ran.stderr.contains("xnnpack"), "{}", ran.stderr);
}

#[test]
fn only_what_is_wanted_is_fetched_and_served() {
    let mut all = files("Neg");
    let path = "/repo/negate/xnnpack/config.json";
    let text = all[path].head.clone();
    let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let mut half = config["variants"][0].clone();
    half["precision"] = "fp16".into();
    half["file"] = "negate_xnnpack_fp16.onnx".into();
    let variants = config["variants"].as_array_mut().expect("an array");
    variants.insert(0, half);
    all.insert(path.to_owned(), Content::of(config.to_string()));
    let model = all["/repo/negate/xnnpack/negate_xnnpack_fp32.onnx"].clone();
    all.insert(
        "/repo/negate/xnnpack/negate_xnnpack_fp16.onnx".to_owned(),
        model,
    );
    let web = serving(&Arc::new(Mutex::new(all)));
    let settings = format!(
        "packages = [\"{}\"]\n[sources]\nbackends = [\"xnnpack\"]\nprecisions = [\"fp32\"]",
        web.url("/repo/")
    );
    // The directory is below the working directory, so findings show relative paths.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut gateway = setup().settings(&settings).start_in(directory);
    for _ in 0..2 {
        assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
        assert_eq!(transfers(&web, "fp16.onnx"), 0);
        let asked = gateway.post(
            "/api/mlpgateway/account/local/model/negate/predict-with-config",
            format!(
                "{{\"data\":{},\"config\":{{\"precision\":\"fp16\"}}}}",
                three([1.0; 3])
            ),
        );
        assert_eq!(asked.status, 400, "{}", asked.text());
        gateway = gateway.stop_and_change(|_| {});
    }
    // Without the server, only a copy of the same request is served.
    let (_, _, directory) = gateway.stop();
    let (source, data) = (web.url("/repo/"), directory.path().join("data"));
    drop(web);
    let ran = serve(&source, &data, &["--precision", "fp16"]).expect_code(2);
    assert!(ran.stderr.contains("no complete copy"), "{}", ran.stderr);
}

/// Starts a hub with one repository, whose revisions all have these files.
fn hub(files: BTreeMap<String, Content>) -> Web {
    Web::start(move |asked| {
        let rest = |prefix: &str| asked.path.strip_prefix(prefix).map(str::to_owned);
        if rest("/api/models/o/r/tree/").is_some() {
            let items = files.iter().map(|(path, content)| {
                let path = path.strip_prefix("/repo/").expect("a file of it");
                let (size, tag) = (content.size, content.tag.trim_matches('"'));
                serde_json::json!({"type": "file", "path": path, "size": size, "oid": tag})
            });
            return Told::new(200, items.collect::<serde_json::Value>().to_string());
        }
        let path =
            rest("/o/r/resolve/").and_then(|rest| rest.split_once('/').map(|it| it.1.to_owned()));
        let content = path.and_then(|path| files.get(&format!("/repo/{path}")));
        content.map_or_else(|| Told::new(404, ""), |content| content.told(asked))
    })
}

#[test]
fn another_revision_takes_the_place_of_one_that_is_not_served() {
    let web = hub(files("Neg"));
    let directory = tempfile::tempdir().expect("a directory");
    let start = |revision: &str, directory| {
        let setup = setup().variable("HF_ENDPOINT", &web.url(""));
        setup
            .packages(format!("hf:o/r@{revision}"))
            .start_in(directory)
    };
    let gateway = start("v1", directory);
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
    let first = copies(&gateway.data());
    let (_, _, directory) = gateway.stop();
    let directory = Arc::into_inner(directory).expect("nobody else has it");
    let (data, source) = (directory.path().join("data"), web.url(""));
    let other = ["--hub-endpoint", &source];
    // A failed download removes no other copy.
    serve("hf:o/nothing@v1", &data, &other).expect_code(2);
    assert!(first.iter().all(|copy| copy.exists()));
    let gateway = start("v2", directory);
    let line = gateway.line(|line| line["message"] == REMOVED);
    assert_eq!(line["source"], "hf:o/r@v1");
    assert!(first.iter().all(|copy| !copy.exists()));
}

#[test]
fn a_running_server_keeps_its_sources_and_its_lock() {
    let web = serving(&Arc::new(Mutex::new(files("Neg"))));
    let source = web.url("/repo/");
    let settings = |more: &str| format!("packages = [\"{source}\"{more}]\n");
    let gateway = setup().settings(&settings("")).start();
    let asked = web.asked().len();
    gateway.change_settings(&settings(", \"hf:owner/other\""));
    gateway.signal("-HUP");
    let line = gateway.line(|line| line["message"] == "changed settings need a restart");
    assert_eq!(line["settings"], "packages");
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
    assert_eq!(web.asked().len(), asked);
    let ran = serve(&source, &gateway.data(), &[]).expect_code(2);
    assert!(ran.stderr.contains("another"), "{}", ran.stderr);
    assert_eq!(web.asked().len(), asked);
    assert_eq!(answer(&gateway), [-1.0, 2.0, -3.0]);
}
