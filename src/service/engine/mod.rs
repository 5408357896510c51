//! Sessions that answer requests: each owned by one thread, behind a bounded queue.
//!
//! Invariant: no lock around an engine; a request that was given up costs nothing; a session that
//! dies or hangs takes only its own request with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{CallError, ServiceSettings};
use crate::account::AccountId;
use crate::package::Backend;
use crate::runtime::{Signature, Tensor};

/// All sessions of a server, within one budget of memory.
#[derive(Debug)]
pub struct Engines {}

/// What the sessions of an endpoint load.
#[derive(Debug, Clone)]
pub struct EndpointModel {
    /// The service's name, for logs.
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
}

/// One method of one model file, with the sessions that run it.
#[derive(Debug)]
pub struct Endpoint {}

/// What an endpoint is doing, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that run.
    pub running: usize,
    /// Loaded sessions.
    pub sessions: usize,
}

impl Engines {
    /// `program` is the pkgtool binary that workers are started from; `budget` the bytes that loaded
    /// sessions may take together; `library` ONNX Runtime's library, if it was named.
    pub fn new(program: PathBuf, budget: u64, library: Option<PathBuf>) -> Arc<Self> {
        unimplemented!()
    }

    /// An endpoint without a session: the first request, or [`Endpoint::warm`], loads one.
    pub fn endpoint(
        self: &Arc<Self>,
        model: EndpointModel,
        settings: &ServiceSettings,
    ) -> Arc<Endpoint> {
        unimplemented!()
    }

    /// Bytes that loaded sessions take, as far as known.
    pub fn memory(&self) -> u64 {
        unimplemented!()
    }
}

impl Endpoint {
    /// What it takes and gives.
    pub fn signature(&self) -> &Signature {
        unimplemented!()
    }

    /// Runs the model. `inputs` fit the signature. Dropping the future gives the request up.
    pub async fn run(
        &self,
        caller: AccountId,
        inputs: Vec<Tensor>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        unimplemented!()
    }

    /// Loads a session and runs it once.
    pub async fn warm(&self) -> Result<(), CallError> {
        unimplemented!()
    }

    /// What it is doing.
    pub fn activity(&self) -> Activity {
        unimplemented!()
    }

    /// Takes no more requests, lets those it has end, ends its sessions.
    pub async fn drain(&self) {
        unimplemented!()
    }
}
