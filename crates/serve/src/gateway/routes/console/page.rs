//! The files of the console's page and of the API reference, which are part of the binary.

use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::super::super::error::GatewayError;

/// The policy of the console's page: only its own files, no markup from text.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob: data:; media-src blob:; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The policy of the API reference, whose viewer sets styles of its own.
const REFERENCE_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of a page.
struct PageFile {
    name: &'static str,
    media_type: &'static str,
    content: FileContent,
    served: OnceLock<ServedFile>,
}

/// The content of a file.
enum FileContent {
    Plain(&'static [u8]),
    /// Compressed with zstd; the binary is smaller by that.
    Compressed(&'static [u8]),
}

/// A file as it is sent, known at its first request.
#[derive(Debug)]
struct ServedFile {
    content: Bytes,
    tag: String,
}

macro_rules! file {
    ($name:literal, $media_type:expr) => {
        file!($name, $media_type, Plain, $name)
    };
    ($name:literal, $media_type:expr, $kind:ident, $path:literal) => {
        PageFile {
            name: $name,
            media_type: $media_type,
            content: FileContent::$kind(include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/console/",
                $path
            ))),
            served: OnceLock::new(),
        }
    };
}

/// The files, by their names below `console/files/`.
static FILES: [PageFile; 26] = [
    file!("accounts.js", JAVASCRIPT),
    file!("api.js", JAVASCRIPT),
    file!("app.js", JAVASCRIPT),
    file!("batches.js", JAVASCRIPT),
    file!("chat.js", JAVASCRIPT),
    file!("code.js", JAVASCRIPT),
    file!("console.css", CSS),
    file!("draw.js", JAVASCRIPT),
    file!("form.js", JAVASCRIPT),
    file!("icon.svg", SVG),
    file!("index.html", HTML),
    file!("login.js", JAVASCRIPT),
    file!("machine.js", JAVASCRIPT),
    file!("packages.js", JAVASCRIPT),
    file!("parts.js", JAVASCRIPT),
    file!("playground.js", JAVASCRIPT),
    file!("reference.html", HTML),
    file!("reference.js", JAVASCRIPT),
    file!("tasks.js", JAVASCRIPT),
    file!("training.js", JAVASCRIPT),
    file!("vendor/hooks.js", JAVASCRIPT),
    file!("vendor/htm.js", JAVASCRIPT),
    file!("vendor/preact.js", JAVASCRIPT),
    file!(
        "vendor/rapidoc.js",
        JAVASCRIPT,
        Compressed,
        "vendor/rapidoc.js.zst"
    ),
    file!("vendor/uplot.css", CSS),
    file!("vendor/uplot.js", JAVASCRIPT),
];

/// The console's page.
pub(super) async fn index(headers: HeaderMap) -> Result<Response, GatewayError> {
    answer("index.html", PAGE_POLICY, &headers)
}

/// The API reference.
pub(in super::super) async fn reference(headers: HeaderMap) -> Result<Response, GatewayError> {
    answer("reference.html", REFERENCE_POLICY, &headers)
}

/// A file of a page.
pub(super) async fn file(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, GatewayError> {
    answer(&name, PAGE_POLICY, &headers)
}

fn answer(name: &str, policy: &'static str, headers: &HeaderMap) -> Result<Response, GatewayError> {
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(GatewayError::no_path)?;
    let served = file.served.get_or_init(|| ServedFile::of(&file.content));
    let fixed = [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, policy),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let tag = [(ETAG, served.tag.clone())];
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| {
        let known = known.to_str().unwrap_or_default();
        // A compressed answer has a weak tag.
        known
            .split(',')
            .any(|it| it.trim().trim_start_matches("W/") == served.tag)
    });
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, fixed, tag).into_response());
    }
    let media_type = [(CONTENT_TYPE, file.media_type)];
    Ok((fixed, tag, media_type, served.content.clone()).into_response())
}

impl ServedFile {
    fn of(content: &FileContent) -> Self {
        let content = match content {
            FileContent::Plain(bytes) => Bytes::from_static(bytes),
            // The bytes are part of the program.
            FileContent::Compressed(bytes) => zstd::decode_all(*bytes).unwrap_or_default().into(),
        };
        let sum = Sha256::digest(&content);
        let tag = BASE64_URL_SAFE_NO_PAD.encode(&sum[..9]);
        Self {
            content,
            tag: format!("\"{tag}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Maximum size of the console's page with all its files, compressed.
    const MAX_PAGE_BYTES: usize = 150_000;

    #[test]
    fn the_page_is_small() {
        let of_page = FILES.iter().filter(|file| {
            !["reference.html", "reference.js", "vendor/rapidoc.js"].contains(&file.name)
        });
        let mut size = 0;
        for file in of_page {
            let FileContent::Plain(bytes) = file.content else {
                panic!("{}: the page's files are plain", file.name)
            };
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).expect("memory takes it");
            size += gzip.finish().expect("memory takes it").len();
        }
        assert!(size < MAX_PAGE_BYTES, "{size} bytes");
    }

    #[test]
    fn the_libraries_are_what_the_manifest_says() {
        let vendor = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("console/vendor");
        let read = |name: &str| std::fs::read(vendor.join(name)).expect(name);
        let manifest: serde_json::Value =
            serde_json::from_slice(&read("manifest.json")).expect("JSON");
        let mut known = vec!["LICENSES.txt".to_owned(), "manifest.json".to_owned()];
        for entry in manifest.as_array().expect("a list") {
            let name = entry["file"].as_str().expect("a name");
            let sum = Sha256::digest(read(name));
            let sum = sum
                .iter()
                .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
            assert_eq!(entry["sha256"], sum, "{name}");
            let licences = String::from_utf8(read("LICENSES.txt")).expect("text");
            let package = entry["package"].as_str().expect("a name");
            assert!(licences.contains(package), "{package}");
            known.push(name.to_owned());
        }
        let mut files: Vec<String> = std::fs::read_dir(vendor)
            .expect("a directory")
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        files.sort();
        known.sort();
        assert_eq!(files, known);
    }

    #[test]
    fn every_file_is_there() {
        for file in &FILES {
            assert!(
                !ServedFile::of(&file.content).content.is_empty(),
                "{}",
                file.name
            );
        }
    }
}
