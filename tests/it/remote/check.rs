//! Tests of `validate` and `inspect` on remote addresses: their findings, and how few bytes they
//! read.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ends, package, program, tool, traffic};
use crate::support::tree::{MODEL, Tree, config};
use crate::support::web::{Asked, Content, Told, Web, listing_site, site};
use pkgtool_testing::onnx;

/// Size of a large model, in bytes.
const HUGE: u64 = 6_000_000_000;
/// Maximum number of bytes that a check of a large model may read.
const LITTLE: u64 = 1_000_000;

/// Answers as a hub: it describes files itself and redirects their content to another origin.
fn hub(files: &BTreeMap<String, Content>, store: &str, asked: &Asked) -> Told {
    let listing = "/api/models/o/r/tree/main?recursive=true";
    if asked.path == listing {
        let mut items: Vec<Value> =
            vec![json!({"type": "directory", "path": "xnnpack", "size": 0})];
        for (path, content) in files {
            let lfs = json!({"oid": format!("{:064x}", content.size), "size": content.size, "pointerSize": 130});
            items.push(json!({"type": "file", "path": path[1..], "size": content.size, "oid": "1", "lfs": lfs}));
        }
        return Told::new(200, Value::from(items).to_string())
            .with("Content-Type", "application/json");
    }
    match asked.path.strip_prefix("/o/r/resolve/main") {
        Some(path) => Told::new(302, "").with("Location", &format!("{store}{path}")),
        None => Told::new(404, "no"),
    }
}

#[test]
fn a_package_of_gigabytes_is_checked_by_its_headers() {
    let web = Web::of(package("/repo/xnnpack", HUGE));
    let ran = tool(&["validate", "-v", &web.url("/repo/xnnpack")])
        .run()
        .expect_code(0);
    let (requests, bytes) = traffic(&ran.stderr);
    assert!(
        bytes < LITTLE && web.sent() < LITTLE,
        "{bytes} {}",
        web.sent()
    );
    assert!(
        requests <= 10 && web.asked().len() as u64 == requests,
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("gives no listing"), "{}", ran.stderr);
}

#[test]
fn a_program_of_gigabytes_is_inspected_by_its_header() {
    let web = Web::of(package("", HUGE));
    let ran = tool(&["inspect", "-v", &web.url(&format!("/{MODEL}"))])
        .run()
        .expect_code(0);
    assert!(
        ran.stdout.contains("forward") && ran.stdout.contains(&web.url("/")),
        "{}",
        ran.stdout
    );
    assert!(traffic(&ran.stderr).1 < LITTLE && web.sent() < LITTLE);
}

#[test]
fn an_onnx_model_of_gigabytes_is_inspected_by_its_header() {
    // The weights are one initializer at the end of the graph.
    let ends = ends();
    let raw = onnx::head(9, HUGE);
    let tensor = [
        onnx::int(1, HUGE),
        onnx::int(2, 3),
        onnx::part(8, &[b"w"]),
        raw,
    ]
    .concat();
    let initializer = [onnx::head(5, tensor.len() as u64 + HUGE), tensor].concat();
    let graph = [ends, initializer].concat();
    let versions = [onnx::int(1, 10), onnx::part(8, &[&onnx::int(2, 18)])].concat();
    let head = [versions, onnx::head(7, graph.len() as u64 + HUGE), graph].concat();
    let size = head.len() as u64 + HUGE;
    let files = BTreeMap::from([("/m.onnx".to_owned(), Content::of(head).sized(size))]);
    let web = Web::of(files);
    let ran = tool(&["inspect", "-v", &web.url("/m.onnx")])
        .run()
        .expect_code(0);
    let (requests, bytes) = traffic(&ran.stderr);
    assert!(
        requests < 10 && bytes < LITTLE && web.sent() < LITTLE,
        "{}",
        ran.stderr
    );
}

#[test]
fn findings_of_a_listed_server_name_addresses() {
    let mut files = package("/repo/xnnpack", 12_345_678);
    files.insert(
        "/repo/xnnpack/other_xnnpack_fp16.pte".to_owned(),
        Content::of(program()),
    );
    files.insert(
        "/repo/xnnpack/config.json".to_owned(),
        package("/x", 5)["/x/config.json"].clone(),
    );
    let web = Web::start(move |asked| listing_site(&files, asked));
    let ran = tool(&["validate", "--format", "json", &web.url("/repo/")])
        .run()
        .expect_code(1);
    let report = ran.json();
    assert_eq!(
        report["diagnostics"][0]["path"],
        web.url("/repo/xnnpack/config.json"),
        "{report:#}"
    );
    let mut codes = ran.codes();
    codes.sort();
    // The config declares a wrong size and the program belongs to no variant.
    assert_eq!(
        codes,
        ["PKG019", "PKG020"].map(str::to_owned),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("pkgtool-"), "{}", ran.stdout);
    let sarif = tool(&["validate", "--format", "sarif", &web.url("/repo/")])
        .run()
        .expect_code(1);
    assert!(
        sarif.stdout.contains(&web.url("/repo/xnnpack/config.json")),
        "{}",
        sarif.stdout
    );
}

#[test]
fn a_hub_is_read_by_its_short_form_and_its_token_stays_with_it() {
    let files = package("/xnnpack", HUGE);
    let bytes = files.clone();
    let store = Web::start(move |asked| site(&bytes, asked));
    let address = store.url("");
    let web = Web::start(move |asked| hub(&files, &address, asked));
    let run = tool(&["validate", "-v", "--hub-endpoint", &web.url(""), "hf:o/r"])
        .variable("HF_TOKEN", "hf_secret");
    let ran = run.run().expect_code(0);
    assert!(traffic(&ran.stderr).1 < LITTLE, "{}", ran.stderr);
    let token = |asked: &Asked| asked.headers.get("authorization").cloned();
    assert!(
        web.asked()
            .iter()
            .all(|asked| token(asked).as_deref() == Some("Bearer hf_secret"))
    );
    assert!(store.asked().iter().all(|asked| token(asked).is_none()) && !store.asked().is_empty());
    // One file, and a folder, of the repository.
    for (path, code) in [
        ("hf:o/r/xnnpack", 0),
        ("hf:o/r/xnnpack/config.json", 0),
        ("hf:o/r/mlx", 3),
    ] {
        tool(&["validate", "--hub-endpoint", &web.url(""), path])
            .run()
            .expect_code(code);
    }
    let model = format!("hf:o/r/xnnpack/{MODEL}");
    tool(&["inspect", "--hub-endpoint", &web.url(""), &model])
        .run()
        .expect_code(0);
    let ran = tool(&["validate", "--hub-endpoint", &web.url(""), &model])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains(&model) && ran.stderr.contains("a model file"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_missing_file_is_a_finding_and_a_missing_package_none() {
    let mut files = package("/repo/xnnpack", 10_000);
    files.remove(&format!("/repo/xnnpack/{MODEL}"));
    let web = Web::of(files);
    let url = web.url("/repo/xnnpack/config.json");
    let ran = tool(&["validate", "--format", "json", &url])
        .run()
        .expect_code(1);
    assert!(ran.stdout.contains(MODEL), "{}", ran.stdout);
    let ran = tool(&["validate", &web.url("/elsewhere")])
        .run()
        .expect_code(3);
    assert!(ran.stderr.contains("does not list"), "{}", ran.stderr);
}

#[test]
fn what_is_no_address_is_told() {
    for (address, words) in [
        ("hf:o", "hf:OWNER/REPOSITORY"),
        ("hf:o/r/../x", "plain"),
        ("http://", "host"),
        ("https://name:word@host/", "password"),
        ("http://127.0.0.1/%2e%2e%2fx/", "not valid file names"),
        ("http://127.0.0.1:1/", "127.0.0.1:1"),
        ("hf:o/r", "127.0.0.1:9"),
    ] {
        let ran = tool(&["validate", address]).run().expect_code(2);
        assert!(ran.stderr.contains(words), "{address}: {}", ran.stderr);
        assert!(!ran.stderr.contains("word@"), "{}", ran.stderr);
    }
}

#[test]
fn two_versions_on_servers_are_compared_by_their_headers() {
    let old = Web::of(package("/repo/xnnpack", HUGE));
    let mut files = package("/repo/xnnpack", HUGE + 1);
    let mut config = config();
    config["variants"][0]["size_bytes"] = (HUGE + 1).into();
    config["capabilities"] = json!(["image-embedding"]);
    let config = Content::of(format!("{config:#}\n"));
    files.insert("/repo/xnnpack/config.json".to_owned(), config);
    let new = Web::of(files);
    let addresses = [&old, &new].map(|web| web.url("/repo/xnnpack"));
    let ran = tool(&["diff", &addresses[0], &addresses[1]])
        .run()
        .expect_code(1);
    assert!(ran.stdout.contains("capabilit"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("input"), "{}", ran.stdout);
    assert!(old.sent() < LITTLE && new.sent() < LITTLE);
    tool(&["diff", &addresses[0], &addresses[0]])
        .run()
        .expect_code(0);
    // An unreachable server is a failure, not a change.
    let ran = tool(&["diff", &addresses[0], "http://127.0.0.1:9/repo"])
        .run()
        .expect_code(2);
    assert!(ran.stderr.contains("127.0.0.1:9"), "{}", ran.stderr);
}

/// Hub repositories have such a config at their root, and a server may list nothing below it.
#[test]
fn a_config_that_is_no_packages_is_told_where_nothing_is_listed() {
    let mut files = package("/repo/xnnpack", 10_000);
    let stub = Content::of("{\"model_type\": \"whisper\"}\n");
    files.insert("/repo/config.json".to_owned(), stub);
    let listed = files.clone();
    let web = Web::of(files);
    let (url, below) = (web.url("/repo/"), web.url("/repo/xnnpack/"));
    let tree = Tree::new();
    let into = tree.path("p");
    let directory = into.to_str().expect("UTF-8");
    for arguments in [
        &["validate", &url][..],
        &["diff", &url, &below],
        &["diff", &below, &url],
        &["pull", &url, directory],
    ] {
        let ran = tool(arguments).run().expect_code(2);
        let words = format!("{url}: not a package: ");
        assert!(ran.stderr.contains(&words), "{arguments:?} {}", ran.stderr);
        assert!(ran.stderr.contains("does not list"), "{}", ran.stderr);
    }
    assert!(!into.exists());
    // A named config is checked, a backend's config belongs to a package, and a listing shows the
    // other files.
    tool(&["validate", &web.url("/repo/config.json")])
        .run()
        .expect_code(1);
    let mut broken = package("/repo/xnnpack", 10_000);
    broken.insert("/repo/xnnpack/config.json".to_owned(), Content::of("{}\n"));
    let web = Web::of(broken);
    tool(&["validate", &web.url("/repo/xnnpack")])
        .run()
        .expect_code(1);
    let web = Web::start(move |asked| listing_site(&listed, asked));
    tool(&["validate", &web.url("/repo/")]).run().expect_code(0);
}
