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

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::away::Decoding;
use super::meter::Meters;
use super::{CallError, Isolation, ServiceSettings};
use crate::account::AccountId;
use crate::runtime::parsers::{Client, Parsers};
use crate::runtime::target::Candidate;
use crate::tensor::input::{Generator, InputArgs, assemble, open_dims};
use crate::tensor::{Signature, Tensor};

pub use conversation::Conversation;
pub use model::{Activity, EndpointModel, SessionState};

use ledger::Ledger;
use loaded::Source;
use shared::{Host, Shared};

/// On whose behalf [`Endpoint::warm`] runs: no account has this number.
const NOBODY: AccountId = AccountId(i64::MIN);

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
        Arc::new(Endpoint { shared })
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

    /// Loads a session and runs it once, on zeros. A model whose inputs have no known rank is only
    /// loaded.
    pub async fn warm(&self) -> Result<(), CallError> {
        let mut outcome = Ok(());
        // The smallest sizes first: the largest may take long, and few models need them.
        for smallest in [true, false] {
            let carrying = &self.shared.model.carrying;
            let inputs = zeros(&carrying.visible(self.signature()), smallest);
            let last = inputs.is_none();
            let answer = self.shared.submit(NOBODY, inputs, None)?.answer(None).await;
            outcome = answer.map(|_| ());
            if last || !matches!(outcome, Err(CallError::Failed(_))) {
                break;
            }
        }
        outcome
    }

    /// What it is doing.
    pub fn activity(&self) -> Activity {
        self.shared.lock().activity()
    }

    /// Whether its requests are refused now because nothing on this machine runs the model.
    pub fn is_refused(&self) -> bool {
        self.shared
            .lock()
            .refusal(std::time::Instant::now())
            .is_some()
    }

    /// The engine and provider that have run the model; none before its first run.
    pub fn runs_on(&self) -> Option<Candidate> {
        self.shared.lock().choice.made()
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

/// Zeros for all inputs, with open dimensions at 1 or at what the model states.
fn zeros(signature: &Signature, smallest: bool) -> Option<Vec<Tensor>> {
    let mut args = InputArgs {
        default: Some(Generator::Zeros),
        ..InputArgs::default()
    };
    if smallest {
        let open = open_dims(signature, &args).ok()?;
        args.dims = open.iter().map(|dim| format!("{}=1", dim.label)).collect();
    }
    assemble(signature, &args).ok()
}
