//! What an endpoint runs, and what it is doing.

use std::path::PathBuf;

use crate::engine::Carrying;
use crate::package::Backend;
use crate::tensor::{Signature, Tensor};

/// What the sessions of an endpoint load.
#[derive(Debug, Clone)]
pub struct EndpointModel {
    /// The service's owner and name, for logs and metrics.
    pub service: String,
    /// The model file.
    pub model: PathBuf,
    /// Its format, as in [`crate::model::ModelInfo::format`].
    pub format: &'static str,
    /// The method.
    pub signature: Signature,
    /// The backend it was made for.
    pub backend: Option<Backend>,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// What of the method's inputs and outputs stays with a session. Requests then have the others only,
    /// and share no runs.
    pub carrying: Carrying,
    /// Valid inputs for a first run, where they are known; otherwise a trial makes zeros.
    pub first: Vec<Tensor>,
}

/// A loaded session, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionState {
    /// The number of its process, if it has one.
    pub process: Option<u32>,
    /// Bytes that the budget counts it with: estimated at first, then the most that it has held.
    pub bytes: u64,
}

/// What an endpoint is doing, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that run.
    pub running: usize,
    /// Loaded sessions.
    pub sessions: usize,
    /// Runs that gave an answer since the start; requests that shared one count once.
    pub runs: u64,
    /// Sessions that died in a run since the start.
    pub crashes: u64,
}
