//! Tests of inputs that are expensive to parse, sent eight at once with one key while another
//! account works.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{examples, package, three};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::Reply;
use crate::support::tree::Tree;

/// Number of parallel requests per case.
const AT_ONCE: usize = 8;

/// Maximum time that the other account waits. `tests/bench/hostile.py` measures release builds;
/// here tests share the machine and the build is not optimised.
const SOON: Duration = Duration::from_secs(5);

/// Maximum memory of the gateway, in bytes.
const MOST_MEMORY: u64 = 300 << 20;

const PREDICT: &str = "/api/mlpgateway/account/local/model";

/// Writes an example package with a changed tokenizer.
fn with_tokenizer(directory: &Path, change: impl FnOnce(&mut Value)) {
    let copied = Command::new("cp")
        .arg("-r")
        .arg(examples().join("hush-sentence"))
        .arg(directory)
        .status();
    assert!(copied.expect("cp runs").success());
    let file = directory.join("hush-sentence/tokenizer.json");
    let text = std::fs::read_to_string(&file).expect("it is copied");
    let mut tokenizer: Value = serde_json::from_str(&text).expect("it is JSON");
    change(&mut tokenizer);
    std::fs::write(&file, tokenizer.to_string()).expect("it is written");
}

/// Sends eight requests at once, and meanwhile predicts of the other account and health checks.
#[track_caller]
fn eight(gateway: &Gateway, path: &str, body: &str, what: &str) -> Vec<Reply> {
    let other = gateway.new_key("other", what, "predict,read");
    let replies = thread::scope(|scope| {
        let ask = || gateway.post(path, body);
        let asking: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(ask)).collect();
        for _ in 0..10 {
            let began = Instant::now();
            gateway.bare("GET", "/healthz", &[]).expect(200);
            assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
            let began = Instant::now();
            let path = format!("{PREDICT}/negate/predict");
            gateway
                .send_with(&other, "POST", &path, three([1.0; 3]))
                .expect(200);
            assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
        let replies = asking.into_iter().map(|it| it.join().expect("it ends"));
        replies.collect()
    });
    let memory = gateway.memory("VmHWM");
    assert!(memory < MOST_MEMORY, "{what}: {memory} bytes");
    replies
}

/// Starts the gateway, including the package that the other account uses.
fn start(packages: &[&Path]) -> (Gateway, Tree) {
    let tree = package(Tree::new(), "negate", "Neg");
    let mut setup = Setup::new()
        .settings("[services.negate]\npublic = true")
        .packages(tree.root());
    for packages in packages {
        setup = setup.packages(packages);
    }
    let gateway = setup.start();
    gateway.account("other", 10_000);
    (gateway, tree)
}

fn picture(bytes: &[u8]) -> String {
    json!({"image_base64": STANDARD.encode(bytes)}).to_string()
}

fn written(width: u32, height: u32, format: image::ImageFormat) -> Vec<u8> {
    let picture = image::RgbImage::new(width, height);
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, format)
        .expect("it is written to memory");
    bytes.into_inner()
}

/// Returns a PNG whose header declares a false size.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = written(16, 16, image::ImageFormat::Png);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Returns the checksum of a PNG chunk.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 * (sum & 1))
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Returns a JPEG whose header declares a false size.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = written(16, 16, image::ImageFormat::Jpeg);
    let mut frames = bytes.windows(2).enumerate();
    let frame = frames.find(|(_, it)| *it == [0xff, 0xc0]);
    let (at, _) = frame.expect("it has a frame");
    bytes[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    bytes[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[test]
fn pictures_of_many_pixels() {
    let (gateway, _tree) = start(&[&examples().join("glimpse")]);
    let path = format!("{PREDICT}/glimpse/predict");
    let small = picture(&written(40, 30, image::ImageFormat::Png));
    let first = gateway.post(&path, &small).expect(200).text();
    for (what, bytes) in [
        ("png", png_of(16384, 16384)),
        ("wide", png_of(16384, 1700)),
        ("jpeg", jpeg_of(65000, 65000)),
    ] {
        for reply in eight(&gateway, &path, &picture(&bytes), what) {
            let text = reply.expect(400).text();
            let words = ["too large", "exceeds limit"];
            assert!(words.iter().any(|it| text.contains(it)), "{what}: {text}");
        }
    }
    let large = picture(&written(2000, 1500, image::ImageFormat::Png));
    for reply in eight(&gateway, &path, &large, "large") {
        reply.expect(200);
    }
    assert_eq!(gateway.post(&path, &small).expect(200).text(), first);
}

#[test]
fn tensors_of_many_numbers() {
    let (gateway, _tree) = start(&[]);
    let path = format!("{PREDICT}/negate/predict");
    let numbers = "0,".repeat(2_000_000);
    let body = format!("{{\"inputs\":[{{\"data\":[{numbers}0]}}]}}");
    for reply in eight(&gateway, &path, &body, "numbers") {
        // The memory for bodies limits how many are read.
        assert!([400, 429].contains(&reply.status), "{}", reply.text());
    }
}

#[test]
fn a_tokenizer_whose_replacements_multiply() {
    let directory = tempfile::tempdir().expect("a directory");
    with_tokenizer(directory.path(), |tokenizer| {
        let replace = json!({
            "type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1500)
        });
        tokenizer["normalizer"] = json!({
            "type": "Sequence", "normalizers": [replace, replace, replace, replace]
        });
    });
    let (gateway, _tree) = start(&[directory.path()]);
    let path = format!("{PREDICT}/hush_sentence/predict");
    for reply in eight(&gateway, &path, r#"{"texts":["a"]}"#, "replacements") {
        // A request that waits too long is rejected with a retry hint.
        assert!([500, 429].contains(&reply.status), "{}", reply.text());
    }
    // Callers get the error code of the package's fault; the log has its reason.
    gateway.until(|| gateway.log().contains("the memory limit of 32 MiB"));
    // An input that does not grow is answered.
    gateway.post(&path, r#"{"texts":["fox"]}"#).expect(200);
}

#[test]
fn a_tokenizer_with_a_pattern_that_takes_for_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    with_tokenizer(directory.path(), |tokenizer| {
        tokenizer["pre_tokenizer"] = json!({
            "type": "Split", "behavior": "Isolated", "invert": false,
            "pattern": {"Regex": r"(?:(?=a)(?:a|aa)+)+(?<=b)c"},
        });
    });
    let (gateway, _tree) = start(&[directory.path()]);
    let path = format!("{PREDICT}/hush_sentence/predict");
    let body = json!({"texts": ["a".repeat(2000)]}).to_string();
    for reply in eight(&gateway, &path, &body, "pattern") {
        assert!(reply.status < 600, "{}", reply.text());
    }
    gateway.post(&path, r#"{"texts":["fox"]}"#).expect(200);
}

#[test]
fn schemas_of_many_properties_and_levels() {
    let (gateway, _tree) = start(&[&examples().join("jackdaw")]);
    let path = "/api/adapters/compat/chat/completions";
    let of_properties = |count: usize| {
        let names = (0..count).map(|n| (format!("property{n}"), json!({"type": "string"})));
        let properties: serde_json::Map<String, Value> = names.collect();
        let required: Vec<&String> = properties.keys().collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    let deep = (0..100).fold(
        json!({"type": "null"}),
        |inner, _| json!({"type": "array", "items": inner}),
    );
    let repeats = json!({"type": "string", "pattern": "^((a{0,200}){0,200}){0,200}$"});
    for (what, schema, words) in [
        ("values", of_properties(9000), "at most 20000"),
        ("properties", of_properties(3000), "at most 1024"),
        ("levels", deep, "at most 64"),
        ("repeats", repeats, ""),
    ] {
        let body = json!({
            "model": "local/jackdaw", "max_tokens": 2,
            "messages": [{"role": "user", "content": "Hello"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": what, "schema": schema}},
        });
        let asked = || {
            let bearer = format!("Bearer {}", gateway.key);
            let headers = [("authorization", bearer.as_str())];
            let body = body.to_string();
            crate::support::http::request(gateway.address, "POST", path, &headers, body.as_bytes())
        };
        let reply = asked();
        assert!(reply.status < 500, "{what}: {}", reply.text());
        assert!(reply.text().contains(words), "{what}: {}", reply.text());
        for reply in eight(&gateway, path, &body.to_string(), what) {
            assert!(reply.status < 500, "{what}: {}", reply.text());
        }
    }
}

#[test]
fn who_leaves_ends_what_is_done_for_them() {
    let (gateway, _tree) = start(&[&examples().join("glimpse")]);
    let path = format!("{PREDICT}/glimpse/predict");
    let large = picture(&written(3000, 3000, image::ImageFormat::Png));
    let mut stream = crate::support::http::connect(gateway.address);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nmlp-api-key: {}\r\ncontent-length: {}\r\n\r\n",
        gateway.key,
        large.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("it is sent");
    std::io::Write::write_all(&mut stream, large.as_bytes()).expect("it is sent");
    gateway.until(|| {
        let page = gateway.metrics();
        page.contains("pkgtool_parser_jobs_running 1\n")
            || page.contains("pkgtool_predict_seconds_count{service=\"local/glimpse\"} 1")
    });
    drop(stream);
    gateway.until(|| {
        gateway
            .metrics()
            .contains("pkgtool_parser_jobs_running 0\n")
    });
    let small = picture(&written(40, 30, image::ImageFormat::Png));
    gateway.post(&path, &small).expect(200);
}
