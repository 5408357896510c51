//! Shared test helpers: running the binary, building packages in temporary directories, mock
//! servers, fixtures.

#[cfg(feature = "serve")]
pub(crate) mod backend;
#[cfg(feature = "serve")]
pub(crate) mod chat_server;
pub(crate) mod editor;
#[cfg(feature = "ort")]
pub(crate) mod engines;
#[cfg_attr(
    not(feature = "run"),
    expect(dead_code, reason = "most helpers are for tests that run models")
)]
pub(crate) mod environment;
pub(crate) mod files;
#[cfg(feature = "serve")]
pub(crate) mod gateway;
#[cfg(feature = "run")]
pub(crate) mod graph;
#[cfg(feature = "serve")]
pub(crate) mod http;
#[cfg(feature = "run")]
pub(crate) mod onnx;
#[cfg(feature = "run")]
pub(crate) mod other_inputs;
pub(crate) mod repository;
pub(crate) mod run;
pub(crate) mod skip;
pub(crate) mod tree;
#[cfg(feature = "remote")]
pub(crate) mod web;

use std::path::{Path, PathBuf};

/// Returns a path below `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(path)
}
