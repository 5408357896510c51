//! Text generation services: chat and completion requests to a package's decoder model.
//!
//! Invariant: model and tokenizer are loaded at the first request. A request holds a session only
//! while it has a turn. A client that disconnects stops its generation.

mod answering;
mod lanes;
mod pictures;
mod request;
mod rest;
mod slots;
mod wire;

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::task::JoinError;

use super::away::{NO_ACCOUNT, call_error};
use super::engine::{Endpoint, EndpointModel, Engines};
use super::turns::ResourceTurns;
use super::{CallError, Refusal, ServiceSettings};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_text::decoder::{DecoderModel, EmbeddedSteps};
use pkgtool_text::model::{TextError, TextModel};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerError, TokenizerFiles};

pub(super) use answering::PreparedText;
pub(super) use pictures::{DecoderCompanions, PictureEncoder};
pub(super) use request::{TextRequest, merged};

use lanes::SharedSession;
use slots::{Leased, SessionSlot, Slots, StepRunner};

/// Error code that clients know for a request longer than the context.
const CONTEXT_LENGTH_EXCEEDED: &str = "context_length_exceeded";

/// A package's decoder with its tokenizer: one method of one model file.
#[derive(Debug)]
pub(super) struct TextEndpoint {
    files: TokenizerFiles,
    model: EndpointModel,
    companions: DecoderCompanions,
    settings: ServiceSettings,
    engines: Arc<Engines>,
    turns: Arc<ResourceTurns>,
    loaded: OnceLock<Result<LoadedText, String>>,
}

/// State loaded at the first request.
#[derive(Debug)]
pub(super) struct LoadedText {
    text: TextModel,
    endpoint: Arc<Endpoint>,
    /// The models beside the decoder.
    companions: DecoderCompanions,
    /// Sessions that conversations share; empty if each conversation has its own session.
    shared: Vec<Arc<SharedSession>>,
    slots: Slots,
    /// The decoder with the results of a trial.
    tried: OnceLock<DecoderModel>,
}

impl TextEndpoint {
    /// Creates the endpoint without loading anything.
    pub(super) fn new(
        files: TokenizerFiles,
        (model, companions): (EndpointModel, DecoderCompanions),
        settings: ServiceSettings,
        engines: Arc<Engines>,
    ) -> Arc<Self> {
        Arc::new(Self {
            turns: ResourceTurns::new(settings.instances, settings.queue),
            files,
            model,
            companions,
            settings,
            engines,
            loaded: OnceLock::new(),
        })
    }

    /// Returns the endpoint of its sessions, once loaded.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        let loaded = self.loaded.get()?.as_ref().ok()?;
        Some(&loaded.endpoint)
    }

    /// Returns the reason for missing instances, as far as known.
    pub(super) fn failure(&self) -> Option<CallError> {
        match self.loaded.get()? {
            Ok(loaded) => loaded.endpoint.failure(),
            Err(reason) => Some(self.inactive(reason)),
        }
    }

    /// Returns whether requests are rejected at once.
    pub(super) fn is_pausing(&self) -> bool {
        match self.loaded.get() {
            Some(Ok(loaded)) => loaded.endpoint.is_pausing(),
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// Loads everything and tries the decoder with one step.
    pub(super) async fn warm(self: &Arc<Self>) -> Result<(), CallError> {
        let endpoint = Arc::clone(self);
        let client = self.engines.parsers(NO_ACCOUNT);
        let again = client.clone();
        let loading = tokio::task::spawn_blocking(move || endpoint.loaded(&again).map(drop));
        let failed = |error: JoinError| CallError::Failed(error.to_string());
        loading.await.map_err(failed)??;
        self.companions.warm().await?;
        self.loaded(&client)?.endpoint.warm().await
    }

    /// Removes the server's directories from an error for clients.
    fn without_paths(&self, error: CallError) -> CallError {
        error.without_directories(std::iter::once(&self.model.model))
    }

    /// Returns the number of requests waiting for a turn.
    pub(super) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Loads the tokenizer and the model's description at the first call, which takes seconds.
    fn loaded(&self, client: &ParserClient) -> Result<&LoadedText, CallError> {
        let load = || {
            let loaded = self.load(client);
            if let Err(reason) = &loaded {
                let service = &self.model.service;
                tracing::warn!(service, reason, "cannot generate texts");
            }
            loaded
        };
        let loaded = self.loaded.get_or_init(load).as_ref();
        loaded.map_err(|reason| self.inactive(reason))
    }

    /// Returns the error of every request if the decoder or its tokenizer cannot be loaded.
    fn inactive(&self, reason: &str) -> CallError {
        self.without_paths(CallError::NoInstances(reason.to_owned()))
    }

    fn load(&self, client: &ParserClient) -> Result<LoadedText, String> {
        // Others wait for the tokenizer too, so the first request's cancellation must not stop the
        // load.
        let tokenizer = Tokenizer::with_worker(&self.files, &client.new_request());
        let tokenizer = tokenizer.map_err(|error| error.to_string())?;
        let path = &self.model.model;
        let (info, _) =
            pkgtool_model::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let decoder = DecoderModel::recognise(path, &info, &self.model.signature, None)
            .map_err(|error| error.to_string())?;
        if decoder.embedding_width().is_some() && self.companions.embedding.is_none() {
            return Err(
                "the decoder takes embeddings, and no method converts tokens to them".to_owned(),
            );
        }
        let model = EndpointModel {
            carrying: decoder.carrying.clone(),
            first: decoder.first_inputs(),
            ..self.model.clone()
        };
        let text = TextModel::load(Arc::new(tokenizer), &self.files, path, decoder)
            .map_err(|error| error.to_string())?;
        let endpoint = self.engines.endpoint(model, &self.settings);
        let instances = self.settings.instances.max(1);
        let each = self.settings.batch_max_size.max(1);
        let shared = (0..instances).map(|_| SharedSession::new(&endpoint, each));
        let shared: Vec<_> = shared.filter(|_| text.decoder().has_lanes()).collect();
        let at_once = if shared.is_empty() {
            instances
        } else {
            instances.saturating_mul(each)
        };
        self.turns.widen(at_once - instances);
        Ok(LoadedText {
            text,
            endpoint,
            companions: self.companions.clone(),
            shared,
            slots: Slots::new(at_once),
            tried: OnceLock::new(),
        })
    }
}

impl LoadedText {
    /// Creates an empty conversation.
    fn slot(&self, caller: AccountId, runtime: Handle) -> SessionSlot {
        let model = self.tried.get().unwrap_or(self.text.decoder());
        let embedding = self.companions.embedding(caller, runtime.clone());
        let steps = EmbeddedSteps::new(self.way(caller, runtime), embedding);
        let mut slot = SessionSlot::new(model, caller, steps);
        // The trial runs once. If it fails, the conversation will report the reason.
        if self.tried.get().is_none() && slot.decoder.try_truncation().is_ok() {
            let _ = self.tried.set(slot.decoder.model().clone());
        }
        slot
    }

    /// Chooses the session for the steps of a new conversation.
    fn way(&self, caller: AccountId, runtime: Handle) -> StepRunner {
        match self.shared.iter().min_by_key(|session| session.active()) {
            Some(session) => StepRunner::Lane(session.lane(caller, runtime)),
            None => StepRunner::Own(Leased::new(&self.endpoint, caller, runtime)),
        }
    }
}

/// Converts an error of the text layer to a call error.
fn refused(error: &TextError) -> CallError {
    let message = error.to_string();
    if error.is_of_request() {
        let place = error.field().map(|field| format!("$.{field}"));
        let code = error.is_too_long().then_some(CONTEXT_LENGTH_EXCEEDED);
        return CallError::Refused(Refusal {
            message,
            place,
            code,
        });
    }
    match error {
        TextError::Tokenizer(TokenizerError::Parser(error)) => {
            call_error("the tokenizer failed to encode the prompt", error)
        }
        TextError::NoTemplate(_) | TextError::Settings { .. } | TextError::File { .. } => {
            CallError::NoInstances(message)
        }
        _ => CallError::Failed(message),
    }
}
