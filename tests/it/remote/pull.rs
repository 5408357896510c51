//! Tests of `pull`: it downloads what is missing, skips what it already has, and never overwrites
//! other files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{package, program, tool};
use crate::support::run::Ran;
use crate::support::tree::{MODEL, Tree, config};
use crate::support::web::{Asked, Body, Content, Told, Web, listing_site};

/// Size of a program that takes several requests, in bytes.
const SIZE: u64 = 3_000_000;

fn pull(source: &str, directory: &Path, more: &[&str]) -> Ran {
    let directory = directory.to_str().expect("a path in UTF-8");
    tool(&[&["pull", source, directory], more].concat()).run()
}

fn files() -> BTreeMap<String, Content> {
    let mut files = package("/repo/xnnpack", SIZE);
    files.insert("/repo/README.md".to_owned(), Content::of("# Read\n"));
    files
}

/// Serves files and their listing, but breaks off the program after `count` bytes.
fn broken_after(files: BTreeMap<String, Content>, count: u64) -> Web {
    Web::start(move |asked| {
        let mut told = listing_site(&files, asked);
        if let Body::Part(content, from, length) = &told.body
            && *length > count
            && asked.path.contains(MODEL)
            && asked.range().is_none_or(|(_, to)| to.is_none())
        {
            let length = *length;
            let cut = Body::Part(content.clone(), *from, count);
            told = Told {
                body: cut,
                ..told.with("Content-Length", &length.to_string())
            };
        }
        told
    })
}

#[test]
fn a_package_is_fetched_once_and_validated() {
    let files = files();
    let web = Web::start(move |asked| listing_site(&files, asked));
    let tree = Tree::new();
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(0);
    assert!(ran.stdout.contains("3 files downloaded"), "{}", ran.stdout);
    assert_eq!(
        fs::read(tree.path("p/README.md")).expect("a file"),
        b"# Read\n"
    );
    let fetched = fs::read(tree.path(&format!("p/xnnpack/{MODEL}"))).expect("a file");
    assert!(fetched.len() as u64 == SIZE && fetched.starts_with(&program()));
    assert!(!tree.path("p/.pkgtool/parts").exists());
    let sent = web.sent();
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &["--no-validate"]).expect_code(0);
    assert!(
        ran.stdout
            .contains("0 files downloaded (0 bytes), 3 already present"),
        "{}",
        ran.stdout
    );
    assert!(
        web.sent() - sent < 200_000,
        "{} bytes for nothing",
        web.sent() - sent
    );
}

#[test]
fn what_breaks_off_is_gone_on_with() {
    let web = broken_after(files(), 700_000);
    let tree = Tree::new();
    pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(0);
    let from: Vec<u64> = transfers(&web);
    assert!(
        from.len() >= 5 && from.windows(2).all(|pair| pair[0] < pair[1]),
        "{from:?}"
    );
    assert_eq!(
        fs::metadata(tree.path(&format!("p/xnnpack/{MODEL}")))
            .expect("a file")
            .len(),
        SIZE
    );
    assert!(web.sent() < SIZE + 300_000, "{}", web.sent());
}

/// Returns the start offsets of the requests for the rest of the program.
fn transfers(web: &Web) -> Vec<u64> {
    let asked = web
        .asked()
        .into_iter()
        .filter(|asked| asked.path.contains(MODEL));
    asked
        .filter_map(|asked| match asked.range() {
            None => Some(0),
            Some((from, None)) => Some(from),
            Some(_) => None,
        })
        .collect()
}

/// Serves a program that stalls after `most` more bytes per request, until the limit is removed.
fn stalling(files: Arc<Mutex<BTreeMap<String, Content>>>, most: Arc<AtomicU64>) -> Web {
    Web::start(move |asked| {
        let told = listing_site(&files.lock().expect("no panic"), asked);
        let most = most.load(Ordering::SeqCst);
        match &told.body {
            Body::Part(content, from, length)
                if asked.path.contains(MODEL)
                    && asked.range().is_none_or(|(_, to)| to.is_none())
                    && *length > most =>
            {
                let bytes: Vec<u8> = (0..most)
                    .map(|at| {
                        usize::try_from(from + at)
                            .ok()
                            .and_then(|at| content.head.get(at))
                            .copied()
                            .unwrap_or(0)
                    })
                    .collect();
                let length = *length;
                Told {
                    body: Body::Stall(bytes),
                    ..told.with("Content-Length", &length.to_string())
                }
            }
            _ => told,
        }
    })
}

/// Runs a pull and kills it when the partial file has this many bytes.
fn interrupted(web: &Web, directory: &Path, at: u64) {
    let mut command = tool(&[
        "pull",
        &web.url("/repo/"),
        directory.to_str().expect("UTF-8"),
    ])
    .into_command();
    let mut child = command
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary runs");
    let part = directory.join(format!(".pkgtool/parts/xnnpack/{MODEL}.part"));
    let started = Instant::now();
    while fs::metadata(&part).map_or(0, |metadata| metadata.len()) < at {
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "{at} bytes never come"
        );
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it ended by itself"
        );
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(
        !directory.join(format!("xnnpack/{MODEL}")).exists(),
        "half a file under its name"
    );
}

#[test]
fn a_pull_that_was_interrupted_twice_goes_on() {
    let most = Arc::new(AtomicU64::new(1_000_000));
    let web = stalling(Arc::new(Mutex::new(files())), Arc::clone(&most));
    let tree = Tree::new();
    interrupted(&web, &tree.path("p"), 1_000_000);
    interrupted(&web, &tree.path("p"), 2_000_000);
    most.store(u64::MAX, Ordering::SeqCst);
    pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(0);
    assert_eq!(transfers(&web), [0, 1_000_000, 2_000_000]);
    let fetched = fs::read(tree.path(&format!("p/xnnpack/{MODEL}"))).expect("a file");
    assert!(fetched.len() as u64 == SIZE && fetched.starts_with(&program()));
}

#[test]
fn a_file_that_changed_meanwhile_is_fetched_from_its_beginning() {
    let most = Arc::new(AtomicU64::new(1_000_000));
    let shared = Arc::new(Mutex::new(files()));
    let web = stalling(Arc::clone(&shared), Arc::clone(&most));
    let tree = Tree::new();
    interrupted(&web, &tree.path("p"), 1_000_000);
    let changed = [program(), vec![7; 1000]].concat();
    let path = format!("/repo/xnnpack/{MODEL}");
    shared
        .lock()
        .expect("no panic")
        .insert(path, Content::of(&changed).sized(SIZE));
    most.store(u64::MAX, Ordering::SeqCst);
    pull(&web.url("/repo/"), &tree.path("p"), &["--no-validate"]).expect_code(0);
    let fetched = fs::read(tree.path(&format!("p/xnnpack/{MODEL}"))).expect("a file");
    assert!(fetched.len() as u64 == SIZE && fetched.starts_with(&changed));
    // The file differs from the downloaded one, so it is neither accepted nor overwritten.
    let old = files();
    *shared.lock().expect("no panic") = old;
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(2);
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    assert_eq!(
        fs::read(tree.path(&format!("p/xnnpack/{MODEL}"))).expect("a file"),
        fetched
    );
}

#[test]
fn two_pulls_do_not_work_in_one_directory() {
    let most = Arc::new(AtomicU64::new(500_000));
    let web = stalling(Arc::new(Mutex::new(files())), Arc::clone(&most));
    let tree = Tree::new();
    let directory = tree.path("p");
    let mut command = tool(&[
        "pull",
        &web.url("/repo/"),
        directory.to_str().expect("UTF-8"),
    ])
    .into_command();
    let mut first = command.spawn().expect("the binary runs");
    let part = directory.join(format!(".pkgtool/parts/xnnpack/{MODEL}.part"));
    let started = Instant::now();
    while !part.exists() && started.elapsed() < Duration::from_mins(1) {
        thread::sleep(Duration::from_millis(10));
    }
    let ran = pull(&web.url("/repo/"), &directory, &[]);
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let ran = ran.expect_code(2);
    assert!(
        ran.stderr.contains("another `pkgtool pull`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn own_files_stay_unless_they_are_given_up() {
    let files = files();
    let web = Web::start(move |asked| listing_site(&files, asked));
    let tree = Tree::new().file("p/README.md", "mine");
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(2);
    assert!(
        ran.stderr.contains("README.md") && ran.stderr.contains("--force"),
        "{}",
        ran.stderr
    );
    assert!(!tree.path("p/xnnpack").exists());
    // The size is unchanged, so only the content shows the difference.
    fs::write(tree.path("p/README.md"), "# Rea!\n").expect("a file");
    pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(2);
    assert_eq!(
        fs::read(tree.path("p/README.md")).expect("a file"),
        b"# Rea!\n"
    );
    pull(&web.url("/repo/"), &tree.path("p"), &["--force"]).expect_code(0);
    assert_eq!(
        fs::read(tree.path("p/README.md")).expect("a file"),
        b"# Read\n"
    );
}

#[test]
#[cfg(unix)]
fn nothing_is_written_through_a_link() {
    let files = files();
    let web = Web::start(move |asked| listing_site(&files, asked));
    let tree = Tree::new().file("outside/keep", "");
    fs::create_dir_all(tree.path("p")).expect("a directory");
    std::os::unix::fs::symlink(tree.path("outside"), tree.path("p/xnnpack")).expect("a link");
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &["--force"]).expect_code(2);
    assert!(ran.stderr.contains("a link or a file"), "{}", ran.stderr);
    assert_eq!(
        fs::read_dir(tree.path("outside"))
            .expect("a directory")
            .count(),
        1
    );
}

#[test]
fn only_what_is_wanted_comes() {
    let mut files = files();
    let mut two = config();
    let mut other = two["variants"][0].clone();
    other["precision"] = "fp16".into();
    other["file"] = "tiny_xnnpack_fp16.pte".into();
    other["size_bytes"] = 5000.into();
    two["variants"][0]["size_bytes"] = SIZE.into();
    two["variants"]
        .as_array_mut()
        .expect("an array")
        .push(other);
    files.insert(
        "/repo/xnnpack/config.json".to_owned(),
        Content::of(two.to_string()),
    );
    files.insert(
        "/repo/xnnpack/tiny_xnnpack_fp16.pte".to_owned(),
        Content::of(program()).sized(5000),
    );
    files.insert("/repo/xnnpack/tokenizer.json".to_owned(), Content::of("{}"));
    let mlx = two.to_string().replace("xnnpack", "mlx");
    files.insert("/repo/mlx/config.json".to_owned(), Content::of(mlx));
    files.insert("/repo/mlx/notes.txt".to_owned(), Content::of("x"));
    let web = Web::start(move |asked| listing_site(&files, asked));
    let tree = Tree::new();
    let more = ["--backend", "xnnpack", "--precision", "fp32"];
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &more).expect_code(0);
    assert!(
        ran.stdout.contains("4 files downloaded") && ran.stdout.contains("skipped: 1"),
        "{}",
        ran.stdout
    );
    for (path, there) in [
        (MODEL, true),
        ("tokenizer.json", true),
        ("config.json", true),
        ("tiny_xnnpack_fp16.pte", false),
        ("../mlx", false),
        ("../README.md", true),
    ] {
        assert_eq!(
            tree.path(&format!("p/xnnpack/{path}")).exists(),
            there,
            "{path}"
        );
    }
    let ran = pull(
        &web.url("/repo/"),
        &tree.path("q"),
        &["--precision", "int3"],
    )
    .expect_code(3);
    assert!(
        ran.stderr.contains("fp16") && !tree.path("q").exists(),
        "{}",
        ran.stderr
    );
    let ran = pull(
        &web.url("/repo/"),
        &tree.path("q"),
        &["--backend", "abacus"],
    )
    .expect_code(2);
    assert!(ran.stderr.contains("xnnpack"), "{}", ran.stderr);
}

#[test]
fn checksums_are_held_to() {
    let mut files = files();
    let sums = format!("{}  xnnpack/{MODEL}\n", "0".repeat(64));
    files.insert("/repo/SHA256SUMS".to_owned(), Content::of(&sums));
    let web = Web::start(move |asked| listing_site(&files, asked));
    let tree = Tree::new();
    let ran = pull(&web.url("/repo/"), &tree.path("p"), &[]).expect_code(2);
    assert!(
        ran.stderr.contains("SHA-256") && ran.stderr.contains("the downloaded file was deleted"),
        "{}",
        ran.stderr
    );
    assert!(!tree.path(&format!("p/xnnpack/{MODEL}")).exists());
    let tree = tree.file("sums", "no sums\n");
    let own = tree.path("sums");
    let own = own.to_str().expect("UTF-8");
    let ran = pull(&web.url("/repo/"), &tree.path("q"), &["--checksum", own]).expect_code(2);
    assert!(ran.stderr.contains("line 1"), "{}", ran.stderr);
}

#[test]
fn a_hub_that_tells_another_sum_is_not_believed() {
    let sum = AtomicUsize::new(0);
    let web = Web::start(move |asked: &Asked| {
        if asked.path.starts_with("/api/") {
            let oid = format!("{:064x}", sum.fetch_add(1, Ordering::SeqCst));
            let item = format!(
                "[{{\"type\":\"file\",\"path\":\"a.bin\",\"size\":5,\"lfs\":{{\"oid\":\"{oid}\",\"size\":5}}}}]"
            );
            return Told::new(200, item);
        }
        Content::of("12345").told(asked)
    });
    let tree = Tree::new();
    let ran = pull("hf:o/r", &tree.path("p"), &["--hub-endpoint", &web.url("")]).expect_code(2);
    assert!(ran.stderr.contains("SHA-256"), "{}", ran.stderr);
    assert!(!tree.path("p/a.bin").exists());
}
