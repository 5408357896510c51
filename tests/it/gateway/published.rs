//! Packages that all servers of a database serve.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_serve::database::DatabaseUrl;
use serde_json::json;
use tempfile::TempDir;

use super::training::{derived, fit, fixture, labels, succeeded, uploaded};
use super::{examples, first_output, package};
use crate::support::gateway::{Gateway, Setup};
use crate::support::postgres::fresh_database;
use crate::support::run::Ran;
use crate::support::tree::Tree;

const PREDICT: &str = "/api/mlpgate/account/local/model";

/// Servers on one database, with one folder for objects, and no packages of their own.
struct Servers {
    all: Vec<Gateway>,
    url: String,
    objects: TempDir,
}

impl Servers {
    /// Returns the place without servers; `None` means that the test skips PostgreSQL, after a message.
    #[track_caller]
    fn new(test: &str) -> Option<Self> {
        let DatabaseUrl::Postgres(url) = fresh_database(test)? else {
            unreachable!("it is a database of PostgreSQL");
        };
        Some(Self {
            all: Vec::new(),
            url,
            objects: tempfile::tempdir().expect("a directory"),
        })
    }

    fn add(&mut self, packages: Option<&Path>, variables: &[(&str, &str)]) {
        let objects = format!("file://{}", self.objects.path().display());
        let mut setup = Setup::new()
            .variable("PKGTOOL_DATABASE", &self.url)
            .variable("PKGTOOL_OBJECTS_URL", &objects);
        for (name, value) in variables {
            setup = setup.variable(name, value);
        }
        if let Some(packages) = packages {
            setup = setup.packages(packages);
        }
        let key = self.all.first().map_or("", |first| &first.key);
        let server = setup.start_on(key, |_| {});
        self.all.push(server);
    }

    fn publish(&self, directory: &Path) -> Ran {
        let name = directory.file_name().and_then(|name| name.to_str());
        self.publish_as(name.expect("UTF-8"), directory)
    }

    fn publish_as(&self, name: &str, directory: &Path) -> Ran {
        let directory = directory.to_str().expect("UTF-8");
        self.all[0].command(&["admin", "publish", directory, "--name", name])
    }

    /// Waits until each server answers with these numbers.
    #[track_caller]
    fn wait_for(&self, service: &str, answer: [f64; 3]) {
        for server in &self.all {
            server.until(|| numbers(server, service).as_deref() == Some(&answer[..]));
        }
    }

    /// Returns the objects of packages.
    fn objects(&self) -> Vec<PathBuf> {
        let all = walkdir::WalkDir::new(self.objects.path().join("package"));
        let files = all
            .into_iter()
            .flatten()
            .filter(|it| it.file_type().is_file());
        files.map(walkdir::DirEntry::into_path).collect()
    }
}

/// Returns what a server answers to the numbers 1, 2 and -3.
fn numbers(server: &Gateway, service: &str) -> Option<Vec<f64>> {
    let body = json!({"inputs": [{"data": [1, 2, -3]}]}).to_string();
    let reply = server.post(&format!("{PREDICT}/{service}/predict"), body);
    (reply.status == 200).then(|| first_output(&reply.json()))
}

#[test]
fn published_packages_are_served_by_all_servers() {
    let Some(mut servers) = Servers::new("published_packages_are_served_by_all_servers") else {
        return;
    };
    servers.add(None, &[]);
    servers.add(None, &[]);
    let first = package(Tree::new(), "negate", "Neg");
    let printed = servers.publish(&first.root().join("negate")).expect_code(0);
    assert!(
        printed.stdout.contains("published local/negate"),
        "{}",
        printed.stdout
    );
    assert!(printed.stdout.contains("2 files"), "{}", printed.stdout);
    assert!(
        printed.stdout.contains("services: negate"),
        "{}",
        printed.stdout
    );
    servers.wait_for("negate", [-1.0, -2.0, 3.0]);
    let listed = servers.all[1].command(&["admin", "packages", "--json"]);
    let listed = listed.expect_code(0).json();
    assert_eq!(listed[0]["name"], "negate");
    assert_eq!(listed[0]["kind"], "published");
    // A directory with several packages is published as one.
    let several = package(package(Tree::new(), "relu", "Relu"), "size", "Abs");
    let printed = servers.publish_as("all", several.root());
    let printed = printed.expect_code(0);
    assert!(printed.stdout.contains("4 files"), "{}", printed.stdout);
    servers.wait_for("relu", [1.0, 2.0, 0.0]);

    // A new version replaces the old one, and only what changed is written.
    let second = package(Tree::new(), "negate", "Abs");
    fs::write(second.root().join("negate/README.md"), "# Negate\n").expect("a file");
    servers
        .publish(&second.root().join("negate"))
        .expect_code(0);
    servers.wait_for("negate", [1.0, 2.0, 3.0]);
    let again = servers
        .publish(&second.root().join("negate"))
        .expect_code(0);
    assert!(again.stdout.contains("0 of them new"), "{}", again.stdout);

    // A server that starts without the objects serves its copies.
    let kept = servers.objects.path().join("package");
    let away = servers.objects.path().join("away");
    fs::rename(&kept, &away).expect("it is there");
    let restarted = servers.all.remove(1).kill_and_restart();
    assert_eq!(numbers(&restarted, "negate"), Some(vec![1.0, 2.0, 3.0]));
    servers.all.push(restarted);
    fs::rename(&away, &kept).expect("it is there");

    // What is not published any more is not served, and its objects are gone.
    for name in ["negate", "all"] {
        servers.all[1]
            .command(&["admin", "unpublish", name])
            .expect_code(0);
    }
    for server in &servers.all {
        server.until(|| numbers(server, "negate").is_none());
        server.until(|| numbers(server, "relu").is_none());
    }
    assert_eq!(servers.objects(), Vec::<PathBuf>::new());
    let unknown = servers.all[0].command(&["admin", "unpublish", "negate"]);
    unknown
        .expect_code(3)
        .expect_error("no published package has this name");
}

#[test]
fn what_cannot_be_served_is_not_published() {
    let Some(mut servers) = Servers::new("what_cannot_be_served_is_not_published") else {
        return;
    };
    servers.add(None, &[]);
    let tree = package(Tree::new(), "negate", "Neg");
    let package = tree.root().join("negate");
    let refused = servers.publish(&package.join("xnnpack"));
    refused
        .expect_code(2)
        .expect_error("give the directory above it");
    let server = &servers.all[0];
    let path = package.to_str().expect("UTF-8");
    for (arguments, error) in [
        (["--name", "../x"], "cannot be the name of a package"),
        (["--account", "nobody"], "nobody"),
        (
            ["--objects", "file:///elsewhere"],
            "keep objects in file://",
        ),
    ] {
        let refused = server.command(&["admin", "publish", path, arguments[0], arguments[1]]);
        refused.expect_code(2).expect_error(error);
    }
    let model = package.join("xnnpack/negate_xnnpack_fp32.onnx");
    fs::write(&model, "no model").expect("a file");
    let refused = servers.publish(&package);
    refused
        .expect_code(2)
        .expect_error("negate_xnnpack_fp32.onnx");
    let empty = tempfile::tempdir().expect("a directory");
    let refused = servers.publish_as("empty", empty.path());
    refused.expect_code(2).expect_error("no packages found");
    let absent = servers.publish(&tree.root().join("absent"));
    absent.expect_code(2).expect_error("absent");
    assert_eq!(servers.objects(), Vec::<PathBuf>::new());
}

#[test]
fn an_altered_object_is_not_served() {
    let Some(mut servers) = Servers::new("an_altered_object_is_not_served") else {
        return;
    };
    servers.add(None, &[]);
    let tree = package(Tree::new(), "negate", "Neg");
    servers.publish(&tree.root().join("negate")).expect_code(0);
    servers.wait_for("negate", [-1.0, -2.0, 3.0]);
    for object in servers.objects() {
        let mut bytes = fs::read(&object).expect("an object");
        let last = bytes.last_mut().expect("a byte");
        *last ^= 1;
        fs::write(&object, bytes).expect("an object");
    }
    // A server that comes later cannot fetch it, says so, and answers for the rest.
    servers.add(None, &[]);
    let late = &servers.all[1];
    late.get("/readyz").expect(200);
    assert_eq!(numbers(late, "negate"), None);
    let fault = late.line(|line| line["message"] == "cannot fetch a published package");
    let reason = fault["reason"].as_str().expect("a text");
    assert!(reason.contains("publish the package again"), "{fault}");
    let other = package(Tree::new(), "relu", "Relu");
    servers.publish(&other.root().join("relu")).expect_code(0);
    servers.wait_for("relu", [1.0, 2.0, 0.0]);
    // Publishing again mends nothing that is there with its size; a new file is fetched.
    fs::remove_dir_all(servers.objects.path().join("package")).expect("objects");
    servers.publish(&tree.root().join("negate")).expect_code(0);
    servers.wait_for("negate", [-1.0, -2.0, 3.0]);
}

#[test]
fn a_task_waits_for_a_server_that_has_its_service() {
    let Some(mut servers) = Servers::new("a_task_waits_for_a_server_that_has_its_service") else {
        return;
    };
    let (negate, relu) = (
        package(Tree::new(), "negate", "Neg"),
        package(Tree::new(), "relu", "Relu"),
    );
    servers.add(Some(negate.root()), &[("PKGTOOL_ROLE", "api")]);
    servers.add(Some(relu.root()), &[("PKGTOOL_ROLE", "dispatcher")]);
    let body = json!({"inputs": [{"data": [1, 2, -3]}]}).to_string();
    let task = servers.all[0].create("negate", &body);
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(servers.all[0].status(&task)["status"], "QUEUED");
    servers.add(Some(negate.root()), &[("PKGTOOL_ROLE", "dispatcher")]);
    servers.all[0].wait_for(&task, "COMPLETED");
    let result = servers.all[0].result(&task).expect(200).json();
    assert_eq!(first_output(&result), [-1.0, -2.0, 3.0]);
}

#[test]
fn a_trained_service_is_served_by_all_servers() {
    let Some(mut servers) = Servers::new("a_trained_service_is_served_by_all_servers") else {
        return;
    };
    let base = examples().join("hush-sentence");
    servers.add(Some(&base), &[]);
    servers.add(Some(&base), &[]);
    let [first, second] = &servers.all[..] else {
        unreachable!("there are two");
    };
    derived(first, "hush_sentence", "scenes");
    let dataset = fs::read(fixture("scenes.csv")).expect("a dataset");
    let dataset = uploaded(first, "scenes.csv", dataset);
    succeeded(first, fit(first, "scenes", dataset, &json!({})));
    let texts = ["a cat in the house", "the river is blue"];
    let path = format!("{PREDICT}/scenes/predict");
    let body = json!({"texts": texts}).to_string();
    for server in [first, second] {
        server.until(|| server.post(&path, &body).status == 200);
    }
    let expected = labels(first, "scenes", &texts);
    assert_eq!(labels(second, "scenes", &texts), expected);
    // A server that comes later has it from its start.
    servers.add(Some(&base), &[]);
    assert_eq!(labels(&servers.all[2], "scenes", &texts), expected);
}

#[test]
fn a_dispatcher_trains_what_another_server_derived() {
    let Some(mut servers) = Servers::new("a_dispatcher_trains_what_another_server_derived") else {
        return;
    };
    let base = examples().join("hush-sentence");
    for role in ["api", "dispatcher"] {
        servers.add(Some(&base), &[("PKGTOOL_ROLE", role)]);
    }
    let api = &servers.all[0];
    derived(api, "hush_sentence", "scenes");
    let dataset = fs::read(fixture("scenes.csv")).expect("a dataset");
    let dataset = uploaded(api, "scenes.csv", dataset);
    succeeded(api, fit(api, "scenes", dataset, &json!({})));
    let body = json!({"texts": ["a cat in the house"]}).to_string();
    let path = format!("{PREDICT}/scenes/predict");
    api.until(|| api.post(&path, &body).status == 200);
    // The dispatcher serves it, too: tasks end there.
    let task = api.create("scenes", &body);
    api.wait_for(&task, "COMPLETED");
}
