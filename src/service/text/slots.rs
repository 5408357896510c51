//! What sessions hold of conversations: each slot is a session that rests with its tokens, for the next turn
//! of the same account.
//!
//! Invariant: what one account said is never held for another; no more slots rest than there may be, and a
//! session that others need is taken away from its slot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::account::AccountId;
use crate::engine::Begins;
use crate::service::CallError;
use crate::service::engine::{Conversation, Endpoint};
use crate::tensor::Tensor;
use crate::text::decoder::{Decoder as _, DecoderModel, StepError, Steps, TokenDecoder};
use crate::text::generation::Transcripts;

/// How long a session waits for the next step of a generation, at most.
const BETWEEN_STEPS: Duration = Duration::from_mins(1);

/// How long a slot rests, at most.
const REST: Duration = Duration::from_mins(10);

/// Conversations that rest.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    resting: Mutex<Vec<Slot>>,
}

/// A conversation: what its session holds.
#[derive(Debug)]
pub(super) struct Slot {
    caller: AccountId,
    pub(super) decoder: TokenDecoder<Leased>,
    /// What was said, with the tokens that it had.
    pub(super) transcripts: Transcripts,
}

/// Steps in a session of an endpoint, which is leased while they go on.
#[derive(Debug)]
pub(super) struct Leased {
    endpoint: Arc<Endpoint>,
    caller: AccountId,
    conversation: Option<Conversation>,
    runtime: Handle,
}

impl Slots {
    /// Room for so many that rest.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            resting: Mutex::default(),
        }
    }

    /// The slot of the caller of which most can be used, as `common` counts.
    pub(super) fn take(
        &self,
        caller: AccountId,
        common: impl Fn(&mut Slot) -> usize,
    ) -> Option<Slot> {
        let mut resting = self.resting();
        let own = resting.iter_mut().enumerate();
        let own = own.filter(|(_, slot)| slot.caller == caller);
        // Of equals the one that rests for longest.
        let best = own
            .map(|(place, slot)| (common(slot), std::cmp::Reverse(place)))
            .max();
        let (_, std::cmp::Reverse(place)) = best?;
        Some(resting.remove(place))
    }

    /// Lets a slot rest; the one that rested for longest goes for it where there is no room.
    pub(super) fn give_back(&self, mut slot: Slot) {
        slot.decoder.steps().rest();
        let mut resting = self.resting();
        let gone = (resting.len() >= self.most).then(|| resting.remove(0));
        resting.push(slot);
        drop(resting);
        drop(gone);
    }

    fn resting(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// A conversation that holds nothing yet.
    pub(super) fn new(
        model: &DecoderModel,
        endpoint: &Arc<Endpoint>,
        caller: AccountId,
        runtime: Handle,
    ) -> Self {
        let steps = Leased {
            endpoint: Arc::clone(endpoint),
            caller,
            conversation: None,
            runtime,
        };
        Self {
            caller,
            decoder: TokenDecoder::new(model.clone(), steps),
            transcripts: Transcripts::default(),
        }
    }

    /// How many tokens of a prompt it holds.
    pub(super) fn common(&self, prompt: &[u32]) -> usize {
        let held = self.decoder.held().iter();
        held.zip(prompt)
            .take_while(|(held, new)| held == new)
            .count()
    }
}

impl Leased {
    fn rest(&self) {
        if let Some(conversation) = &self.conversation {
            conversation.rest(REST);
        }
    }
}

impl Steps for Leased {
    fn step(&mut self, begins: Begins, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, StepError> {
        if self.conversation.is_none() && begins != Begins::Anew {
            return Err(StepError::Taken);
        }
        let mut conversation = self
            .conversation
            .take()
            .unwrap_or_else(|| self.endpoint.lease(self.caller, BETWEEN_STEPS));
        let step = conversation.step(begins, inputs, None);
        match self.runtime.block_on(step) {
            Ok(outputs) => {
                self.conversation = Some(conversation);
                Ok(outputs)
            }
            // The tokens are still known: they are fed again, to another session.
            Err(CallError::Over(_)) => Err(StepError::Taken),
            Err(error) => Err(StepError::Failed(Box::new(error))),
        }
    }
}
