//! Tests of servers without range requests: downloads fetch whole files, and files checked only by
//! size are not read.

use std::collections::BTreeMap;
use std::fs;

use super::{program, tool, traffic};
use crate::support::tree::{MODEL, Tree, config};
use crate::support::web::{Content, Web, listing_site, site, without_ranges};
use pkgtool_testing::onnx;

/// Size of the weights in front of the graph's inputs, in bytes; more than the tool reads of a
/// whole file.
const GAP: usize = 3 << 20;
/// Size of a model that must not be read, in bytes.
const LARGE: u64 = 50_000_000;
const ONNX: &str = "tiny_onnx_fp32.onnx";

/// Returns a model that stores `v` in an external file and has megabytes of other weights before
/// its inputs.
fn model() -> Vec<u8> {
    let tensor = |name: &[u8], size: usize, rest: &[u8]| {
        let head = [
            onnx::int(1, size as u64),
            onnx::int(2, 3),
            onnx::part(8, &[name]),
        ];
        onnx::part(5, &[&[&head.concat(), rest].concat()])
    };
    let raw = onnx::part(9, &[&vec![0; GAP]]);
    let location = [
        onnx::part(1, &[b"location"]),
        onnx::part(2, &[b"tiny.data"]),
    ]
    .concat();
    let outside = [onnx::part(13, &[&location]), onnx::int(14, 1)].concat();
    let graph = [
        tensor(b"w", GAP, &raw),
        tensor(b"v", 4, &outside),
        super::ends(),
    ]
    .concat();
    let versions = [onnx::int(1, 10), onnx::part(8, &[&onnx::int(2, 18)])].concat();
    [versions, onnx::part(7, &[&graph])].concat()
}

/// Returns a package of that model.
fn package() -> BTreeMap<String, Content> {
    let mut config = config();
    config["backend"] = "onnx".into();
    config["variants"][0]["file"] = ONNX.into();
    config["variants"][0]["size_bytes"] = model().len().into();
    let mut files = BTreeMap::new();
    let mut add = |name: &str, bytes: &[u8]| {
        files.insert(format!("/repo/onnx/{name}"), Content::of(bytes));
    };
    add("config.json", format!("{config:#}\n").as_bytes());
    add(ONNX, &model());
    add("tiny.data", &[0; 16]);
    files
}

#[test]
fn a_pull_needs_no_ranges() {
    let tree = Tree::new();
    let listed =
        Web::start(|asked| without_ranges(asked.clone(), |asked| listing_site(&package(), asked)));
    let bare = Web::start(|asked| without_ranges(asked.clone(), |asked| site(&package(), asked)));
    for (number, (web, path, config)) in [
        (&listed, "/repo/", "onnx/config.json"),
        (&listed, "/repo/onnx/", "config.json"),
        (&bare, "/repo/onnx/", "config.json"),
    ]
    .into_iter()
    .enumerate()
    {
        let into = tree.path(&format!("p{number}"));
        let directory = into.to_str().expect("UTF-8");
        for more in [
            &["--no-validate"][..],
            &["--precision", "fp32", "--no-validate"],
        ] {
            let ran = tool(&[&["pull", &web.url(path), directory], more].concat());
            ran.run().expect_code(0);
            let folder = into.join(config);
            let folder = folder.parent().expect("a folder");
            assert!(
                fs::read(folder.join(ONNX)).expect("a file") == model(),
                "{path}"
            );
            // Only the model names this file.
            assert!(folder.join("tiny.data").exists(), "{path} {more:?}");
            fs::remove_dir_all(&into).expect("it is there");
        }
        let ran = tool(&["pull", &web.url(path), directory]).run();
        assert!(
            ran.code < 2 && ran.stdout.contains("3 files downloaded"),
            "{} {}",
            ran.stdout,
            ran.stderr
        );
    }
}

#[test]
fn sizes_alone_are_asked_for_where_no_model_is_to_be_opened() {
    let files = super::package("/repo/xnnpack", LARGE);
    let whole = files.clone();
    let web = Web::start(move |asked| without_ranges(asked.clone(), |asked| site(&whole, asked)));
    let url = web.url("/repo/xnnpack");
    let ran = tool(&["validate", "-v", "--no-model", &url]).run();
    let (_, bytes) = traffic(&ran.expect_code(0).stderr);
    assert!(bytes < 10_000, "{bytes}");
    let web = Web::of(files);
    let url = web.url("/repo/xnnpack");
    let ran = tool(&["validate", "-v", "--no-model", &url]).run();
    let (_, bytes) = traffic(&ran.expect_code(0).stderr);
    let ran = tool(&["validate", "-v", &url]).run();
    let (_, with_model) = traffic(&ran.expect_code(0).stderr);
    assert!(bytes < 10_000 && bytes < with_model, "{bytes} {with_model}");
    // Findings that depend only on the size are still reported.
    let mut files = super::package("/repo/xnnpack", LARGE);
    files.insert(
        format!("/repo/xnnpack/{MODEL}"),
        Content::of(program()).sized(LARGE - 1),
    );
    let web = Web::of(files);
    let url = web.url("/repo/xnnpack");
    let ran = tool(&["validate", "--format", "json", "--no-model", &url]).run();
    assert_eq!(ran.expect_code(1).codes(), ["PKG019"]);
}

/// `bytes 0-9/*` leaves the size of the whole file open.
#[test]
fn ranges_may_come_without_the_size_of_the_whole() {
    let files = super::package("/repo/xnnpack", LARGE);
    let web = Web::start(move |asked| {
        let mut told = listing_site(&files, asked);
        for (name, value) in &mut told.headers {
            if name == "Content-Range" {
                let at = value.find('/').expect("a size");
                value.replace_range(at.., "/*");
            }
        }
        told
    });
    let ran = tool(&["validate", "-v", &web.url("/repo/")]).run();
    let (_, bytes) = traffic(&ran.expect_code(0).stderr);
    assert!(bytes < 1_000_000, "{bytes}");
    let tree = Tree::new();
    let into = tree.path("p");
    let directory = into.to_str().expect("UTF-8");
    tool(&["pull", &web.url("/repo/"), directory])
        .run()
        .expect_code(0);
    assert_eq!(
        fs::metadata(into.join("xnnpack").join(MODEL))
            .expect("a file")
            .len(),
        LARGE
    );
}
