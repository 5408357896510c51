//! Shared helpers of these tests: running the program, and mock servers. The crate `pkgtool-testing`
//! has those that other crates use too.

#[cfg(feature = "serve")]
pub(crate) mod backend;
#[cfg(feature = "serve")]
pub(crate) mod chat_server;
#[cfg(all(feature = "serve", unix))]
pub(crate) mod cut_proxy;
pub(crate) mod editor;
#[cfg(feature = "ort")]
pub(crate) mod engines;
#[cfg(feature = "serve")]
pub(crate) mod gateway;
#[cfg(feature = "run")]
pub(crate) mod graph;
#[cfg(feature = "serve")]
pub(crate) mod hook_server;
#[cfg(feature = "serve")]
pub(crate) mod http;
#[cfg(feature = "run")]
pub(crate) mod inputs;
#[cfg(feature = "run")]
pub(crate) mod loading;
#[cfg(all(feature = "serve", unix))]
pub(crate) mod objects;
#[cfg(feature = "run")]
pub(crate) mod onnx;
#[cfg(feature = "run")]
pub(crate) mod other_inputs;
#[cfg(all(feature = "serve", unix))]
pub(crate) mod postgres;
#[cfg(all(feature = "serve", target_os = "linux"))]
pub(crate) mod preloaded;
#[cfg(all(feature = "serve", unix))]
pub(crate) mod random;
pub(crate) mod repository;
pub(crate) mod run;
#[cfg(feature = "serve")]
pub(crate) mod sklearn;
#[cfg(feature = "remote")]
pub(crate) mod web;
#[cfg(feature = "ort")]
pub(crate) mod whisper;

pub(crate) use pkgtool_testing::{environment, files, fixture, tree};
