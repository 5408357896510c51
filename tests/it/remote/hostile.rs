//! Tests of hostile servers that lie, stall, redirect or send without end. The tool must fail soon,
//! name the cause and read little.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{ends, package, program, tool};
use crate::support::run::Ran;
use crate::support::tree::MODEL;
use crate::support::web::{Asked, Body, Content, Told, Web, listing_site, site};
use pkgtool_testing::onnx;

/// Maximum number of bytes read from a misbehaving server, including bytes in socket buffers.
const MUCH: u64 = 32 << 20;

/// Declared size of a model's weights of which only the beginning exists, in bytes.
const HUGE: u64 = 6_000_000_000;
/// Size of the weights in front of the graph's inputs, in bytes.
const GAP: u64 = 8 << 20;

/// Inspects a model on a server with these answers and expects an early failure.
#[track_caller]
fn inspect(
    answer: impl Fn(&Asked, Told) -> Told + Send + Sync + 'static,
    words: &str,
) -> (Ran, Web) {
    let content = deep();
    let web = Web::start(move |asked| {
        let sound = content.told(asked);
        answer(asked, sound)
    });
    let started = Instant::now();
    let ran = tool(&["inspect", "--timeout", "5", &web.url("/m.onnx")])
        .run()
        .expect_code(2);
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert!(
        ran.stderr.contains(words),
        "expected `{words}`: {}",
        ran.stderr
    );
    assert!(web.sent() < MUCH, "{} bytes", web.sent());
    (ran, web)
}

/// Returns a model whose graph continues after megabytes of weights, so it needs several requests.
fn deep() -> Content {
    let weights = |size: u64| {
        let tensor = [
            onnx::int(1, size),
            onnx::int(2, 3),
            onnx::part(8, &[b"w"]),
            onnx::head(9, size),
        ]
        .concat();
        [onnx::head(5, tensor.len() as u64 + size), tensor].concat()
    };
    let first = [
        weights(GAP),
        vec![0; usize::try_from(GAP).expect("it fits")],
    ]
    .concat();
    let graph = [first, ends(), weights(HUGE)].concat();
    let versions = [onnx::int(1, 10), onnx::part(8, &[&onnx::int(2, 18)])].concat();
    let head = [versions, onnx::head(7, graph.len() as u64 + HUGE), graph].concat();
    let size = head.len() as u64 + HUGE;
    Content::of(head).sized(size)
}

fn header(told: Told, name: &str, value: &str) -> Told {
    let mut told = told;
    told.headers
        .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    told.with(name, value)
}

#[test]
fn ranges_that_are_not_what_was_asked_for() {
    for said in [
        "bytes 1-65536/6000000000",
        "bytes 0-9999999999/6000000000",
        "bytes 9-3/10",
        "items 0-1/2",
        "",
    ] {
        inspect(
            move |_, told| header(told, "Content-Range", said),
            "inconsistent answer",
        );
    }
}

#[test]
fn a_size_that_changes_and_a_tag_that_changes() {
    let asked = AtomicUsize::new(0);
    let change = move |asked_for: &Asked, told: Told| {
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            return told;
        }
        let (from, to) = asked_for.range().expect("a range");
        header(
            told,
            "Content-Range",
            &format!("bytes {from}-{}/7000000000", to.expect("an end")),
        )
    };
    inspect(change, "to 7000000000 bytes");
    let asked = AtomicUsize::new(0);
    let retag = move |_: &Asked, told: Told| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        header(told, "ETag", &format!("\"{number}\""))
    };
    inspect(retag, "changed on the server");
}

#[test]
fn bodies_that_are_short_packed_or_refused() {
    let short = |_: &Asked, told: Told| Told {
        body: Body::Bytes(vec![0; 10]),
        ..told.with("Content-Length", "65536")
    };
    inspect(short, "127.0.0.1");
    let cut = |_: &Asked, told: Told| Told {
        body: Body::Bytes(vec![0; 10]),
        ..told
    };
    inspect(cut, "expected 65536 bytes as announced, got 10");
    inspect(
        |_, told| told.with("Content-Encoding", "gzip"),
        "got the encoding `gzip`",
    );
    inspect(|_, _| Told::new(403, "no"), "answers 403");
    inspect(|_, _| Told::new(503, "no"), "answers 503");
    inspect(
        |_, told| {
            if told.status == 206 {
                Told::new(416, "")
            } else {
                told
            }
        },
        "a range inside the file was rejected",
    );
}

#[test]
fn a_server_without_ranges_is_left_soon() {
    let (_, web) = inspect(
        |_, told| {
            let mut told = told;
            told.status = 200;
            told.headers.retain(|(name, _)| name != "Content-Range");
            told.body = Body::Part(deep(), 0, deep().size);
            told
        },
        "does not support range requests",
    );
    assert!(web.asked().len() <= 3, "{:?}", web.asked());
    // A small file of such a server can still be read.
    let web = Web::start(|_| Told::new(200, program()));
    tool(&["inspect", &web.url("/m.pte")]).run().expect_code(0);
}

#[test]
fn endless_bodies_and_silence() {
    inspect(
        |_, _| Told {
            status: 200,
            headers: vec![],
            body: Body::Endless,
        },
        "the size of the file is missing",
    );
    inspect(
        |_, told| Told {
            body: Body::Stall(vec![0; 10]),
            ..told.with("Content-Length", "65536")
        },
        "not finished within the time limit of 5 s",
    );
    let listing = Web::start(|_| Told {
        status: 200,
        headers: vec![("Content-Type".to_owned(), "text/html".to_owned())],
        body: Body::Endless,
    });
    let ran = tool(&["validate", "--timeout", "5", &listing.url("/repo/")])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("unusable listing") && listing.sent() < MUCH,
        "{}",
        ran.stderr
    );
}

#[test]
fn redirects_that_do_not_end_or_lead_elsewhere() {
    inspect(
        |asked, _| Told::new(302, "").with("Location", &asked.path),
        "redirects form a loop",
    );
    let count = AtomicUsize::new(0);
    let on = move |_: &Asked, _: Told| {
        let next = format!("/{}", count.fetch_add(1, Ordering::SeqCst));
        Told::new(302, "").with("Location", &next)
    };
    inspect(on, "more than 10 redirects");
    for place in ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x"] {
        inspect(
            move |_, _| Told::new(302, "").with("Location", place),
            "unsupported redirect",
        );
    }
}

#[test]
fn million_entries_and_names_that_lead_out() {
    let mut page = String::from("<title>Index of /repo/</title>");
    for number in 0..1_000_000 {
        let _ = write!(page, "<a href=f{number}>");
    }
    let web = Web::start(move |_| Told::new(200, &page).with("Content-Type", "text/html"));
    let ran = tool(&["validate", &web.url("/repo/")]).run().expect_code(2);
    assert!(ran.stderr.contains("unusable listing"), "{}", ran.stderr);
    let mut items = String::from("[");
    for number in 0..30_000 {
        let _ = write!(
            items,
            "{{\"type\":\"file\",\"path\":\"f{number}\",\"size\":1}},"
        );
    }
    items.push_str("{\"type\":\"file\",\"path\":\"x\"}]");
    let web = Web::start(move |_| Told::new(200, &items).with("Content-Type", "application/json"));
    let ran = tool(&["validate", "--hub-endpoint", &web.url(""), "hf:o/r"])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("more than 20000 files"),
        "{}",
        ran.stderr
    );

    // Links to other places are skipped; valid ones beside them are checked.
    let files = package("/repo/xnnpack", 10_000);
    let bad = "<a href=/etc/><a href='../../x/'><a href='..%2fx'><a href='a%00b'><a href='http://127.0.0.1:1/repo/z/'>\
               <a href='//127.0.0.1:1/repo/y'><a href='%2e%2e/'><a href='a%5cb'><a href=.git/>";
    let web = Web::start(move |asked| {
        let mut told = listing_site(&files, asked);
        if let Body::Bytes(bytes) = &mut told.body
            && told.status == 200
        {
            bytes.extend(bad.as_bytes());
        }
        told
    });
    let ran = tool(&["validate", &web.url("/repo/")]).run().expect_code(0);
    assert!(
        web.asked()
            .iter()
            .all(|asked| asked.path.starts_with("/repo")),
        "{:?} {}",
        web.asked(),
        ran.stderr
    );
}

#[test]
fn a_hub_that_lists_another_size_than_it_has() {
    let files = package("/xnnpack", 10_000);
    let listing = format!(
        "[{{\"type\":\"file\",\"path\":\"xnnpack/config.json\",\"size\":{}}},\
         {{\"type\":\"file\",\"path\":\"xnnpack/{MODEL}\",\"size\":9999999}},\
         {{\"type\":\"file\",\"path\":\"../../escaped\",\"size\":1}},\
         {{\"type\":\"file\",\"path\":\"/etc/escaped\",\"size\":1}},\
         {{\"type\":\"file\",\"path\":\"xnnpack\",\"size\":1}}]",
        files["/xnnpack/config.json"].size
    );
    let web = hub(listing.clone(), files.clone());
    // A file and a folder cannot have the same name.
    let ran = tool(&["validate", "--hub-endpoint", &web.url(""), "hf:o/r"])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("cannot create the file"),
        "{}",
        ran.stderr
    );
    let web = hub(
        listing.replace("\"path\":\"xnnpack\"", "\"path\":\"a\\u0000b\""),
        files,
    );
    let ran = tool(&["validate", "--hub-endpoint", &web.url(""), "hf:o/r"])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr
            .contains("the size of the file changed from 9999999 to 10000 bytes"),
        "{}",
        ran.stderr
    );
    for broken in ["{", "{}", "[1]", "[]", "<html>"] {
        let web = hub(broken.to_owned(), BTreeMap::new());
        let ran = tool(&["validate", "--hub-endpoint", &web.url(""), "hf:o/r"]).run();
        assert!(matches!(ran.code, 2 | 3), "{broken}: {}", ran.stderr);
    }
}

fn hub(listing: String, files: BTreeMap<String, Content>) -> Web {
    Web::start(
        move |asked| match asked.path.strip_prefix("/o/r/resolve/main") {
            Some(path) => {
                let asked = Asked {
                    path: path.to_owned(),
                    ..asked.clone()
                };
                site(&files, &asked)
            }
            None => Told::new(200, &listing).with("Content-Type", "application/json"),
        },
    )
}

/// `crates/remote/src/gate.rs` tests that redirects from a public to a private address are rejected, since this
/// test has no public address.
#[test]
fn redirects_in_a_private_network_that_the_user_named_are_followed() {
    let web = Web::start(|asked| match asked.path.as_str() {
        "/m.pte" => Told::new(302, "").with("Location", "/other.pte"),
        _ => Told::new(200, program()),
    });
    // The user named a private address, so redirects within private networks are allowed.
    tool(&["inspect", &web.url("/m.pte")]).run().expect_code(0);
}
