//! Sessions that answer requests: each owned by one thread, behind a bounded queue.
//!
//! Invariant: no lock around an engine; a request that was given up costs nothing; a session that
//! dies or hangs takes only its own request with it.

mod backoff;
mod batch;
mod choice;
mod conversation;
mod ledger;
mod loaded;
mod model;
mod owner;
mod queue;
mod request;
mod run;
mod shared;
mod sides;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::away::{Decoding, NOBODY};
use super::meter::Meters;
use super::{CallError, Isolation, ServiceSettings};
use crate::account::AccountId;
use crate::engine::ByteSums;
use crate::runtime::parsers::{Client, Parsers};
use crate::runtime::process::sandbox::Sandbox;
use crate::runtime::target::Candidate;
use crate::tensor::{Signature, Tensor};

pub use conversation::Conversation;
pub use model::{Activity, EndpointModel, SessionState};
pub use sides::SideRule;

use ledger::Ledger;
use loaded::Source;
use shared::{Host, Shared};

/// All sessions of a server, within one budget of memory.
#[derive(Debug)]
pub struct Engines {
    source: Source,
    ledger: Arc<Ledger>,
    endpoints: AtomicU64,
    meters: Arc<Meters>,
    parsers: Arc<Parsers>,
    decoding: Decoding,
}

/// One method of one model file, with the sessions that run it. Dropping it ends them.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    /// The rule for sides of pictures, found when a run with a picture first failed.
    sides: OnceCell<Option<SideRule>>,
}

impl Engines {
    /// `program` is the pkgtool binary that workers are started from; `budget` the bytes that loaded
    /// sessions may take together; `library` ONNX Runtime's library, if it was named.
    pub fn new(program: PathBuf, budget: u64, library: Option<PathBuf>) -> Arc<Self> {
        Self::metered(program, budget, library, Meters::default())
    }

    /// The same, with meters that tell as many services and accounts apart as they are made for.
    pub fn metered(
        program: PathBuf,
        budget: u64,
        library: Option<PathBuf>,
        meters: Meters,
    ) -> Arc<Self> {
        Arc::new(Self {
            parsers: Parsers::new(program.clone()),
            decoding: Decoding::default(),
            source: Source { program, library },
            ledger: Ledger::new(budget),
            endpoints: AtomicU64::new(0),
            meters: Arc::new(meters),
        })
    }

    /// An endpoint without a session: the first request, or [`Endpoint::warm`], loads one.
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
        let shared = Shared::new(model, settings.clone(), host);
        Arc::new(Endpoint {
            shared,
            sides: OnceCell::new(),
        })
    }

    /// Bytes that loaded sessions take, as far as known.
    pub fn memory(&self) -> u64 {
        self.ledger.used()
    }

    /// Bytes that they may take together.
    pub fn budget(&self) -> u64 {
        self.ledger.budget()
    }

    /// The processes that read bytes of others, for one request of a caller.
    pub fn parsers(&self, caller: AccountId) -> Client {
        self.parsers.client(caller.0)
    }

    /// How many of their jobs wait and how many run.
    pub fn parser_jobs(&self) -> (usize, usize) {
        self.parsers.activity()
    }

    /// Where large bodies are decoded.
    pub(super) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    /// What the services did.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }
}

impl Endpoint {
    /// What it takes and gives, what stays with its sessions included.
    pub fn signature(&self) -> &Signature {
        &self.shared.model.signature
    }

    /// Runs the model. `inputs` fit the signature, without what is carried. Dropping the future gives the request up.
    pub async fn run(
        &self,
        caller: AccountId,
        inputs: Vec<Tensor>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Tensor>, CallError> {
        let ticket = self.shared.submit(caller, Some(inputs), None)?;
        ticket.answer(timeout).await
    }

    /// Begins a conversation: several runs of one session, each going on from what the one before has
    /// left. Nothing is taken before its first step. `idle` is the longest time between two steps, after
    /// which others have the session.
    pub fn lease(&self, caller: AccountId, idle: Duration) -> Conversation {
        Conversation::new(Arc::clone(&self.shared), caller, idle)
    }

    /// Loads a session and tries the model, unless it has run before.
    pub async fn warm(&self) -> Result<(), CallError> {
        let ticket = self.shared.submit(NOBODY, None, None)?;
        ticket.answer(None).await.map(drop)
    }

    /// Returns the rule for the sides of pictures, if the model has one. The first call tries sizes.
    pub async fn side_rule(&self) -> Option<&SideRule> {
        let rule = self.sides.get_or_try_init(|| sides::rule(&self.shared));
        rule.await.ok()?.as_ref()
    }

    /// What it is doing.
    pub fn activity(&self) -> Activity {
        self.shared.lock().activity()
    }

    /// Returns why the model has no active instance: nothing runs it, or it failed whatever it was given and has not
    /// run since. The next request after a pause may show something else.
    pub fn failure(&self) -> Option<CallError> {
        self.shared.failure()
    }

    /// Whether requests are refused at once: the model failed, and the pause before the next attempt lasts.
    pub fn is_pausing(&self) -> bool {
        self.shared.is_pausing()
    }

    /// The engine and provider that have run the model; none before its first run.
    pub fn runs_on(&self) -> Option<Candidate> {
        self.shared.lock().choice.made()
    }

    /// How its engine adds up products of 8-bit numbers: known after its first run, if the model has any.
    pub fn byte_sums(&self) -> Option<ByteSums> {
        self.shared.lock().byte_sums
    }

    /// The sandbox of its sessions: known after its first run.
    pub fn sandbox(&self) -> Option<Sandbox> {
        self.shared.lock().sandbox.clone()
    }

    /// Numbers of the processes that its sessions run in, for operators.
    pub fn processes(&self) -> Vec<u32> {
        let state = self.shared.lock();
        let processes = state
            .seats
            .values()
            .filter_map(|seat| seat.process.as_ref());
        processes.map(|(_, id)| *id).collect()
    }

    /// Its loaded sessions, the oldest first.
    pub fn sessions(&self) -> Vec<SessionState> {
        let state = self.shared.lock();
        let loaded = state.seats.values().filter(|seat| seat.loaded);
        let told = loaded.map(|seat| SessionState {
            process: seat.process.as_ref().map(|(_, id)| *id),
            bytes: seat.bytes,
        });
        told.collect()
    }

    /// Takes no more requests, lets those it has end, ends its sessions.
    pub async fn drain(&self) {
        self.shared.close();
        let is_done = |state: &shared::State| state.queue.is_empty() && state.running() == 0;
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
            // Its panic was told when it happened.
            let _ = thread.join();
        }
    }
}
