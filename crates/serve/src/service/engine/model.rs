//! The model of an endpoint and its current activity.

use std::path::PathBuf;

use pkgtool_base::package::Backend;
use pkgtool_engine::Carrying;
use pkgtool_engine::tensor::{Signature, Tensor};

/// Estimated memory of a session beyond its weights, in bytes: the process, the engine's code and
/// small tensors.
const SESSION_OVERHEAD_BYTES: u64 = 32 << 20;

/// The model that an endpoint's sessions load.
#[derive(Debug, Clone)]
pub struct EndpointModel {
    /// The service's owner and name, for logs and metrics.
    pub service: String,
    /// The model file.
    pub model: PathBuf,
    /// Its format, as in [`pkgtool_model::ModelInfo::format`].
    pub format: &'static str,
    /// Inputs and outputs of the method.
    pub signature: Signature,
    /// The backend that the model was made for.
    pub backend: Option<Backend>,
    /// Size of its weights, in bytes.
    pub weight_bytes: u64,
    /// Inputs and outputs that stay in the session as state, such as a KV cache. Requests contain
    /// only the others, and are not batched.
    pub carrying: Carrying,
    /// Valid inputs for a first run, if known; otherwise a trial uses zeros.
    pub first: Vec<Tensor>,
}

impl EndpointModel {
    /// Estimates the memory of a session that has not run yet, in bytes.
    pub(super) fn estimated_bytes(&self) -> u64 {
        let weights = self.weight_bytes;
        let with_copies = weights.saturating_add(weights / 10 * 3);
        with_copies.saturating_add(SESSION_OVERHEAD_BYTES)
    }
}

/// A loaded session, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionState {
    /// Its process id, if it has a process.
    pub process: Option<u32>,
    /// Memory counted against the budget, in bytes: first an estimate, then the peak use.
    pub bytes: u64,
}

/// Current activity of an endpoint, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Waiting requests.
    pub waiting: usize,
    /// Running requests.
    pub running: usize,
    /// Loaded sessions.
    pub sessions: usize,
    /// Successful runs since the start; a batch counts once.
    pub runs: u64,
    /// Sessions that crashed during a run since the start.
    pub crashes: u64,
}
