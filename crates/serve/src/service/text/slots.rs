//! Cache of resting conversations: a slot keeps a session with its tokens (the KV cache) for the
//! next turn of the same account.
//!
//! Invariant: one account's conversation is never reused for another. The number of resting slots
//! is limited, and sessions that others need are taken from their slots.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use super::lanes::{ActiveConversation, LaneSteps};
use super::rest::{MAX_REST, MAX_STEP_PAUSE, is_over, step_error};
use crate::account::AccountId;
use crate::service::engine::{Endpoint, EndpointConversation};
use pkgtool_engine::RunStart;
use pkgtool_text::decoder::{
    Decoder as _, DecoderModel, EmbeddedSteps, PictureRows, StepError, StepResult, StepTokens,
    Steps, TokenDecoder,
};
use pkgtool_text::generation::Transcripts;
use pkgtool_text::slot::PictureId;

/// The resting conversations.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    resting: Mutex<Vec<SessionSlot>>,
}

/// A conversation and its session.
#[derive(Debug)]
pub(super) struct SessionSlot {
    caller: AccountId,
    pub(super) decoder: TokenDecoder<EmbeddedSteps<StepRunner>>,
    /// Texts of the conversation with their tokens.
    pub(super) transcripts: Transcripts,
}

/// The session that runs a conversation's steps.
#[derive(Debug)]
pub(super) enum StepRunner {
    /// Its own session.
    Own(Leased),
    /// A lane of a shared session.
    Lane(LaneSteps),
}

/// Runs steps in a leased session of an endpoint.
#[derive(Debug)]
pub(super) struct Leased {
    endpoint: Arc<Endpoint>,
    caller: AccountId,
    conversation: Option<EndpointConversation>,
    /// True if it has rested since its last step.
    has_rested: bool,
    runtime: Handle,
}

impl Slots {
    /// Creates a cache for this many conversations.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            resting: Mutex::default(),
        }
    }

    /// Takes the caller's slot that shares the most tokens with the prompt, as counted by `common`.
    pub(super) fn take(
        &self,
        caller: AccountId,
        common: impl Fn(&mut SessionSlot) -> usize,
    ) -> Option<SessionSlot> {
        let mut resting = self.resting();
        let own = resting.iter_mut().enumerate();
        let own = own.filter(|(_, slot)| slot.caller == caller);
        // Among equal ones, the slot that has rested longest.
        let best = own
            .map(|(place, slot)| (common(slot), std::cmp::Reverse(place)))
            .max();
        let (_, std::cmp::Reverse(place)) = best?;
        Some(resting.remove(place))
    }

    /// Returns the rows of a picture that a slot of the caller has.
    pub(super) fn picture(&self, caller: AccountId, picture: PictureId) -> Option<PictureRows> {
        let mut resting = self.resting();
        let mut own = resting.iter_mut().filter(|slot| slot.caller == caller);
        own.find_map(|slot| slot.decoder.steps().picture(picture).cloned())
    }

    /// Lets a slot rest. If the cache is full, the slot that has rested longest is evicted.
    pub(super) fn give_back(&self, mut slot: SessionSlot) {
        slot.decoder.steps().inner().rest();
        let mut resting = self.resting();
        let gone = (resting.len() >= self.most).then(|| resting.remove(0));
        resting.push(slot);
        drop(resting);
        drop(gone);
    }

    fn resting(&self) -> MutexGuard<'_, Vec<SessionSlot>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionSlot {
    /// Creates an empty conversation.
    pub(super) fn new(
        model: &DecoderModel,
        caller: AccountId,
        steps: EmbeddedSteps<StepRunner>,
    ) -> Self {
        Self {
            caller,
            decoder: TokenDecoder::new(model.clone(), steps),
            transcripts: Transcripts::default(),
        }
    }

    /// Returns how many tokens at the beginning of a prompt it holds.
    pub(super) fn common(&self, prompt: &[u32]) -> usize {
        let held = self.decoder.held().iter();
        held.zip(prompt)
            .take_while(|(held, new)| held == new)
            .count()
    }
}

impl StepRunner {
    /// Marks its conversation as active for those that share its session.
    pub(super) fn on_its_way(&self) -> Option<ActiveConversation> {
        match self {
            Self::Own(_) => None,
            Self::Lane(lane) => Some(lane.on_its_way()),
        }
    }

    fn rest(&mut self) {
        match self {
            Self::Own(leased) => leased.rest(),
            // A shared session rests when all its conversations do.
            Self::Lane(_) => {}
        }
    }
}

impl Steps for StepRunner {
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
        match self {
            Self::Own(leased) => leased.step(model, begins, fed),
            Self::Lane(lane) => lane.step(model, begins, fed),
        }
    }
}

impl Leased {
    /// Creates the steps; the session is leased at the first step.
    pub(super) fn new(endpoint: &Arc<Endpoint>, caller: AccountId, runtime: Handle) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            caller,
            conversation: None,
            has_rested: false,
            runtime,
        }
    }

    fn rest(&mut self) {
        if let Some(conversation) = &self.conversation {
            conversation.rest(MAX_REST);
            self.has_rested = true;
        }
    }
}

impl Steps for Leased {
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
        let inputs = model.inputs(&[fed]).map_err(StepError::failed)?;
        if self.conversation.is_none() && begins != RunStart::Anew {
            return Err(StepError::Evicted);
        }
        let mut conversation = self
            .conversation
            .take()
            .unwrap_or_else(|| self.endpoint.lease(self.caller, MAX_STEP_PAUSE));
        let has_rested = std::mem::take(&mut self.has_rested);
        let step = conversation.step(begins, inputs, None);
        let outputs = self.runtime.block_on(step).map_err(step_error);
        match outputs {
            Ok(outputs) => {
                self.conversation = Some(conversation);
                Ok(outputs)
            }
            // The tokens are known and are fed again, to another session.
            Err(error) if is_over(&error, has_rested) => Err(StepError::Evicted),
            Err(error) => Err(error),
        }
    }
}
