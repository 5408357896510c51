//! Runs models for requests: sessions, each owned by one thread, take requests from the bounded
//! queue of their endpoint.
//!
//! An [`Endpoint`] is one method of one model file. Its owner threads load sessions, batch requests
//! and run them; [`Engines`] shares one memory budget among all endpoints. Invariant: engines run
//! without locks, cancelled requests cost nothing, and a session that crashes or hangs affects only
//! its own request.

mod backoff;
mod batch;
mod choice;
mod conversation;
mod devices;
mod foreground;
mod ledger;
mod loaded;
mod model;
mod owner;
mod place;
mod queue;
mod request;
mod run;
mod shared;
mod sides;
mod state;
mod trial;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::away::{Decoding, NO_ACCOUNT};
use super::meter::Meters;
use super::{CallError, Isolation, ServiceSettings};
use crate::account::AccountId;
use pkgtool_base::package::Backend;
use pkgtool_engine::ByteSums;
use pkgtool_engine::runtime::parsers::{ParserClient, Parsers};
use pkgtool_engine::runtime::process::sandbox::Sandbox;
use pkgtool_engine::runtime::target::Candidate;
use pkgtool_engine::tensor::{Signature, Tensor};

pub(super) use devices::Absence;
pub(super) use foreground::{Foreground, ForegroundRequest};

pub use conversation::EndpointConversation;
pub use devices::{DeviceFollower, DeviceParameters, DeviceStatus};
pub use model::{Activity, EndpointModel, SessionState};
pub use sides::SideRule;

use devices::Devices;
use ledger::Ledger;
use loaded::SessionSource;
use shared::{Host, SharedEndpoint};

/// All sessions of a server, within one memory budget.
#[derive(Debug)]
pub struct Engines {
    source: SessionSource,
    ledger: Arc<Ledger>,
    endpoints: Arc<AtomicU64>,
    meters: Arc<Meters>,
    parsers: Arc<Parsers>,
    decoding: Arc<Decoding>,
    foreground: Arc<Foreground>,
    /// Engines for requests that give way, created at the first one.
    in_background: OnceLock<Arc<Self>>,
}

/// One method of one model file, with the sessions that run it. Dropping it ends them.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<SharedEndpoint>,
    /// The rule for picture sizes, determined when a run with a picture first fails.
    sides: OnceCell<Option<SideRule>>,
}

impl Engines {
    /// Creates the engines. `program` is the pkgtool executable for worker processes, `budget` the
    /// maximum memory of all loaded sessions in bytes, and `library` the ONNX Runtime library, if
    /// configured.
    pub fn new(program: PathBuf, budget: u64, library: Option<PathBuf>) -> Arc<Self> {
        Self::with_devices(program, budget, library, (Meters::default(), Vec::new()))
    }

    /// Does the same with existing meters, and devices on which sessions may live.
    pub fn with_devices(
        program: PathBuf,
        budget: u64,
        library: Option<PathBuf>,
        (meters, devices): (Meters, Vec<DeviceParameters>),
    ) -> Arc<Self> {
        Arc::new(Self {
            parsers: Parsers::new(program.clone()),
            decoding: Arc::default(),
            source: SessionSource {
                program,
                library,
                gives_way_to: None,
                devices: Arc::new(Devices::start(devices)),
            },
            foreground: Arc::default(),
            in_background: OnceLock::new(),
            ledger: Ledger::new(budget),
            endpoints: Arc::default(),
            meters: Arc::new(meters),
        })
    }

    /// Returns engines whose processes give way to all others, both those of models and parsers.
    /// They share everything else.
    pub(super) fn in_background(&self) -> Arc<Self> {
        let create = || {
            Arc::new(Self {
                source: SessionSource {
                    gives_way_to: Some(Arc::clone(&self.foreground)),
                    ..self.source.clone()
                },
                ledger: Arc::clone(&self.ledger),
                endpoints: Arc::clone(&self.endpoints),
                meters: Arc::clone(&self.meters),
                parsers: self.parsers.in_background(),
                decoding: Arc::clone(&self.decoding),
                foreground: Arc::clone(&self.foreground),
                in_background: OnceLock::new(),
            })
        };
        Arc::clone(self.in_background.get_or_init(create))
    }

    /// Creates an endpoint without a session. The first request, or [`Endpoint::warm`], loads one.
    pub fn endpoint(
        self: &Arc<Self>,
        model: EndpointModel,
        settings: &ServiceSettings,
    ) -> Arc<Endpoint> {
        let number = self.endpoints.fetch_add(1, Ordering::Relaxed);
        let host = Host {
            number,
            source: self.source.clone(),
            ledger: Arc::clone(&self.ledger),
            start_owner: owner::start,
            meter: self.meters.labelled(&model.service),
        };
        let shared = SharedEndpoint::new(model, settings.clone(), host);
        let follower = Arc::downgrade(&shared);
        self.source.devices.follow(follower);
        Arc::new(Endpoint {
            shared,
            sides: OnceCell::new(),
        })
    }

    /// Calls a follower after each change of a device, as long as it lives.
    pub fn follow_devices(&self, follower: Weak<dyn DeviceFollower>) {
        self.source.devices.follow(follower);
    }

    /// Returns the state of all devices.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.source.devices.status()
    }

    /// Ends the connections with all devices.
    pub fn leave_devices(&self) {
        self.source.devices.stop();
    }

    /// Returns why models of a backend cannot run now, if it is that their devices are away.
    pub(super) fn absence(
        &self,
        backend: Option<Backend>,
        settings: &ServiceSettings,
    ) -> Option<Absence> {
        self.source.devices.absence(backend, settings)
    }

    /// Returns the memory of all loaded sessions on this machine in bytes, as far as known.
    pub fn memory(&self) -> u64 {
        self.ledger.used()
    }

    /// Returns their memory budget, in bytes.
    pub fn budget(&self) -> u64 {
        self.ledger.budget()
    }

    /// Returns a client of the parser processes for one request of a caller.
    pub fn parsers(&self, caller: AccountId) -> ParserClient {
        self.parsers.client(caller.0)
    }

    /// Returns the numbers of waiting and running parser jobs.
    pub fn parser_jobs(&self) -> (usize, usize) {
        self.parsers.activity()
    }

    /// Returns the decoder of large bodies.
    pub(super) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    /// Adds a request that others give way to.
    pub(super) fn begin_request(&self) -> ForegroundRequest {
        self.foreground.begin()
    }

    /// Waits until no request is in progress that others give way to, for a while at most.
    pub async fn quiet(&self) {
        self.foreground.quiet().await;
    }

    /// Returns the meters of the services.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }
}

impl Endpoint {
    /// Returns the model's inputs and outputs, including the state that stays in its sessions.
    pub fn signature(&self) -> &Signature {
        &self.shared.model.signature
    }

    /// Runs the model. `inputs` fit the signature, without the carried state. Dropping the future
    /// cancels the request.
    pub async fn run(
        &self,
        caller: AccountId,
        inputs: Vec<Tensor>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        let ticket = self.shared.submit(caller, Some(inputs), None)?;
        ticket.answer(timeout).await
    }

    /// Starts a conversation: several runs of one session, each continuing from the state of the
    /// previous one. Nothing is reserved before its first step. `idle` is the maximum time between
    /// two steps, after which the session is released.
    pub fn lease(&self, caller: AccountId, idle: Duration) -> EndpointConversation {
        EndpointConversation::new(Arc::clone(&self.shared), caller, idle)
    }

    /// Loads a session and tries the model, unless it has already run.
    pub async fn warm(&self) -> Result<(), CallError> {
        let ticket = self.shared.submit(NO_ACCOUNT, None, None)?;
        ticket.answer(None).await.map(drop)
    }

    /// Returns the rule for picture sizes, if the model has one. The first call tries sizes.
    pub async fn side_rule(&self) -> Option<&SideRule> {
        let rule = self.sides.get_or_try_init(|| sides::rule(&self.shared));
        rule.await.ok()?.as_ref()
    }

    /// Returns its current activity.
    pub fn activity(&self) -> Activity {
        self.shared.lock().activity()
    }

    /// Returns the reason for missing instances: no engine runs the model, or all inputs so far
    /// failed. After a pause, the next request may change this.
    pub fn failure(&self) -> Option<CallError> {
        self.shared.failure()
    }

    /// Returns whether requests are rejected at once, during the pause after a failure.
    pub fn is_pausing(&self) -> bool {
        self.shared.is_pausing()
    }

    /// Returns the engine and provider that have run the model; `None` before its first run.
    pub fn runs_on(&self) -> Option<Candidate> {
        self.shared.lock().choices.proven_candidate()
    }

    /// Returns how the engine sums products of 8-bit numbers; known after the first run, if the
    /// model has any.
    pub fn byte_sums(&self) -> Option<ByteSums> {
        self.shared.lock().byte_sums
    }

    /// Returns the sandbox of its sessions; known after the first run.
    pub fn sandbox(&self) -> Option<Sandbox> {
        self.shared.lock().sandbox.clone()
    }

    /// Returns the process ids of its sessions, for operators.
    pub fn processes(&self) -> Vec<u32> {
        let state = self.shared.lock();
        let processes = state
            .seats
            .values()
            .filter_map(|seat| seat.process.as_ref());
        processes.map(|(_, id)| *id).collect()
    }

    /// Returns its loaded sessions, oldest first.
    pub fn sessions(&self) -> Vec<SessionState> {
        let state = self.shared.lock();
        let loaded = state.seats.values().filter(|seat| seat.loaded);
        let told = loaded.map(|seat| SessionState {
            // The process of a session on a device only carries its messages.
            process: (seat.process.as_ref())
                .filter(|_| seat.device.is_none())
                .map(|(_, id)| *id),
            bytes: seat.bytes,
        });
        told.collect()
    }

    /// Rejects new requests, finishes the pending ones and ends the sessions.
    pub async fn drain(&self) {
        self.shared.close();
        let is_done = |state: &state::EndpointState| state.queue.is_empty() && state.running() == 0;
        self.shared.until(is_done).await;
        self.shared.stop();
        self.shared.until(|state| self.shared.is_over(state)).await;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop();
        if self.shared.settings.isolation == Isolation::Thread {
            // A model that hangs in this process cannot be waited for.
            return;
        }
        let threads = std::mem::take(&mut self.shared.lock().threads);
        for thread in threads {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}
