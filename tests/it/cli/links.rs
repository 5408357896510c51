//! Tests of symbolic links in a tree: only files of the tree and blobs of a hub's cache may be
//! their targets.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::repository::git;
use crate::support::run::{Ran, pkgtool, validate};
use crate::support::tree::{MODEL, Tree, config};

const SECRET: &str = "VERY_SECRET_TOKEN_OF_CI";

/// Adds a link to `target` at `path` to a tree.
fn linked(tree: Tree, path: &str, target: &str) -> Tree {
    let tree = tree.file(path, "");
    fs::remove_file(tree.path(path)).expect("removed");
    symlink(target, tree.path(path)).expect("a link");
    tree
}

fn run(tree: &Tree, arguments: &[&str]) -> Ran {
    pkgtool(arguments)
        .within(tree.root())
        .variable("CI_TOKEN", SECRET)
        .run()
}

#[track_caller]
fn hides(ran: &Ran) {
    let shown = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn the_environment_is_never_shown() {
    for file in [
        "m/xnnpack/config.json",
        "m/precisions.json",
        "m/pkgtool.toml",
    ] {
        let tree = Tree::new().package("m/xnnpack", &config());
        let tree = linked(tree, file, "/proc/self/environ");
        for format in [
            "human", "json", "sarif", "github", "gitlab", "rdjson", "junit", "concise",
        ] {
            let ran = run(&tree, &["validate", "--format", format, "m"]);
            hides(&ran);
            let ran = if file.ends_with("precisions.json") {
                ran
            } else {
                ran.expect_code(1)
            };
            drop(ran);
        }
        let told = run(&tree, &["validate", "--format", "json", "m"]);
        let said = "a symbolic link that leads out of the package, to `/proc/self/environ`";
        assert!(told.stdout.contains(said), "{file}: {}", told.stdout);
        for other in ["fix", "init", "diff"] {
            let arguments = if other == "diff" {
                vec![other, "m", "m"]
            } else {
                vec![other, "m"]
            };
            hides(&run(&tree, &arguments));
        }
    }
}

#[test]
fn models_and_tokenizers_that_are_links_out_are_findings() {
    let outside = Tree::with_package().file("tokenizer.json", "{}");
    for (file, target, pointer) in [
        (MODEL, format!("xnnpack/{MODEL}"), "/variants/0/file"),
        ("tokenizer.json", "tokenizer.json".to_owned(), "/tokenizer"),
    ] {
        let mut config = config();
        if file != MODEL {
            config["tokenizer"] = serde_json::json!(file);
        }
        let target = outside.path(&target);
        let tree = Tree::new().package("m/xnnpack", &config);
        let path = format!("m/xnnpack/{file}");
        let tree = linked(tree, &path, target.to_str().expect("UTF-8"));
        let found = validate(tree.root(), ".").expect_code(1).findings();
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.code.as_str(), one.pointer.as_str()))
            .collect();
        assert!(found.contains(&("PKG039", pointer)), "{found:?}");
        // A link named on the command line is followed, because the user chose it.
        if file == MODEL {
            run(&tree, &["inspect", &path]).expect_code(0);
        }
    }
}

#[test]
fn a_link_that_the_user_named_is_followed() {
    let elsewhere = Tree::with_package();
    let tree = Tree::new();
    symlink(elsewhere.root(), tree.path("packages")).expect("a link");
    validate(tree.root(), "packages").expect_code(0);
    validate(tree.root(), "packages/xnnpack/config.json").expect_code(0);
    let tree = Tree::new().package("xnnpack", &config());
    let target = elsewhere.path("xnnpack/config.json");
    let tree = linked(tree, "xnnpack/config.json", target.to_str().expect("UTF-8"));
    validate(tree.root(), "xnnpack/config.json").expect_code(0);
    assert_eq!(
        validate(tree.root(), ".").expect_code(1).codes(),
        ["PKG039"]
    );
}

#[test]
fn links_within_the_repository_and_into_a_cache_are_followed() {
    let tree = Tree::new().package("packages/m/xnnpack", &config());
    let model = format!("packages/m/xnnpack/{MODEL}");
    fs::rename(tree.path(&model), tree.path("model")).expect("moved");
    symlink("../../../model", tree.path(&model)).expect("a link");
    let outside = validate(tree.root(), "packages/m");
    assert_eq!(outside.expect_code(1).codes(), ["PKG039"], "no repository");
    let tree = tree.file(".git/HEAD", "");
    validate(tree.root(), "packages/m").expect_code(0);

    let cache = Tree::new().package("models--o--r/snapshots/4d7a/xnnpack", &config());
    let blobs = cache.path("models--o--r/blobs");
    fs::create_dir(&blobs).expect("a directory");
    for (file, blob) in [("config.json", "a1"), (MODEL, "b2")] {
        let path = cache.path(&format!("models--o--r/snapshots/4d7a/xnnpack/{file}"));
        fs::rename(&path, blobs.join(blob)).expect("moved");
        symlink(format!("../../../blobs/{blob}"), &path).expect("a link");
    }
    validate(&cache.path("models--o--r/snapshots"), "4d7a").expect_code(0);
    validate(&cache.path("models--o--r/snapshots/4d7a"), ".").expect_code(0);
    validate(
        cache.root(),
        "models--o--r/snapshots/4d7a/xnnpack/config.json",
    )
    .expect_code(0);
}

#[test]
fn nothing_blocks() {
    let start = Instant::now();
    for file in [
        "config.json",
        MODEL,
        "../precisions.json",
        "../pkgtool.toml",
        "../.gitignore",
    ] {
        for kind in ["fifo", "/proc/kmsg", "/dev/zero", "/dev/stdin"] {
            let tree = Tree::new()
                .package("m/xnnpack", &config())
                .file(".git/HEAD", "");
            let path = format!("m/xnnpack/{file}");
            let tree = tree.file(&path, "");
            fs::remove_file(tree.path(&path)).expect("removed");
            if kind == "fifo" {
                let made = Command::new("mkfifo").arg(tree.path(&path)).status();
                assert!(made.expect("mkfifo runs").success());
            } else {
                symlink(kind, tree.path(&path)).expect("a link");
            }
            for command in ["validate", "fix", "init"] {
                run(&tree, &[command, "m"]);
            }
        }
    }
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn fix_does_not_write_through_a_link_out() {
    let mut legacy = config();
    legacy["variants"][0]["quantized"] = serde_json::json!(false);
    let outside = Tree::new().json("config.json", &legacy);
    let before = fs::read(outside.path("config.json")).expect("a file");
    let target = outside.path("config.json");
    let tree = Tree::new().package("m/xnnpack", &config());
    let tree = linked(
        tree,
        "m/xnnpack/config.json",
        target.to_str().expect("UTF-8"),
    );
    run(&tree, &["fix", "m"]);
    assert_eq!(
        fs::read(outside.path("config.json")).expect("a file"),
        before
    );
    // Directory links are not followed, but a config inside one is checked if the user names it.
    let tree = Tree::new();
    symlink(outside.root(), tree.path("m")).expect("a link");
    run(&tree, &["fix", "."]);
    assert_eq!(
        fs::read(outside.path("config.json")).expect("a file"),
        before
    );
}

#[cfg(feature = "run")]
#[test]
fn validate_and_run_agree_about_external_data() {
    let folder = "packages-examples/parlor-tts/82m/xnnpack";
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let name = "parlor_tts_82m_xnnpack_fp32.onnx";
    let data = format!("{name}.data");
    let read = |name: &str| fs::read(folder.join(name)).expect("an example");
    let tree = || {
        let tree = Tree::new().file("p/82m/xnnpack/config.json", read("config.json"));
        tree.file(&format!("p/82m/xnnpack/{name}"), read(name))
    };
    let place = format!("p/82m/xnnpack/{data}");
    let refuses = |tree: &Tree, said: &str| {
        let found = validate(tree.root(), "p").findings();
        let one = found.iter().find(|one| one.code == "PKG040");
        let one = one.unwrap_or_else(|| panic!("{found:?}"));
        assert!(one.message.contains(said), "{found:?}");
        let ran = run(tree, &["run", "p", "--input", "zeros"]).expect_code(2);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    };
    let link = "a link out of its own directory";
    let outside = folder.join(&data);
    refuses(
        &linked(tree(), &place, outside.to_str().expect("UTF-8")),
        link,
    );
    // Runtimes reject links to another place in the package too.
    let beside = tree()
        .file("p/82m/weights", read(&data))
        .file(".git/HEAD", "");
    refuses(&linked(beside, &place, "../weights"), link);
    let directory = tree();
    fs::create_dir(directory.path(&place)).expect("a directory");
    refuses(&directory, "not a regular file");
    let whole = tree().file(&place, read(&data));
    let found = validate(whole.root(), "p").findings();
    assert!(found.iter().all(|one| one.code != "PKG040"), "{found:?}");
}

/// A staged link is a text in the index, and its target is not read.
#[test]
fn staged_links_out_are_not_read() {
    let tree = Tree::new().package("m/xnnpack", &config());
    let tree = linked(tree, "m/xnnpack/config.json", "/proc/self/environ");
    git(tree.root(), &["init", "--quiet"]);
    git(tree.root(), &["add", "--all"]);
    hides(&run(&tree, &["validate", "--staged", "."]));
    git(tree.root(), &["commit", "--quiet", "--message", "first"]);
    hides(&run(&tree, &["diff", "HEAD"]));
    hides(&run(&tree, &["validate", "--changed=HEAD", "."]));
}
