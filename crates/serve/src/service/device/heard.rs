//! Answers for sounds: the model runs once for each window.
//!
//! Invariant: sounds are decoded in parser processes only, and the samples take a share of the memory for bodies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::away::{caller, with_parsers};
use super::super::engine::Endpoint;
use super::super::media::{failed, interpreted, misfit};
use super::super::{Answer, BodyReservation, CallError, OutOfBodyMemory, Refusal, Request};
use super::Device;
use super::time::TimeLeft;
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_media::MediaKind;
use pkgtool_media::recipe::{ModelRecipe, SoundRun};
use pkgtool_media::sound::Sound;
use pkgtool_media::worker;

/// A decoded sound, with the model and the recipe that answer it.
#[derive(Debug)]
pub struct PreparedSound {
    endpoint: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
    run: SoundRun,
    /// The place of the sound in the request, for errors.
    place: String,
    /// The samples' share of the memory for bodies.
    _memory: Option<BodyReservation>,
}

/// A decoded sound.
#[derive(Debug)]
pub(super) struct DecodedSound {
    pub(super) sound: Sound,
    /// The samples' share of the memory for bodies.
    pub(super) memory: Option<BodyReservation>,
}

impl Device {
    /// Decodes a sound at `place` of the request.
    pub(super) async fn decode_sound(
        &self,
        bytes: Bytes,
        place: &str,
        request: &Request,
    ) -> Result<DecodedSound, CallError> {
        let client = self.parts.engines.parsers(caller(request));
        let hear = move |client: &ParserClient| worker::hear(client, &bytes);
        let sound = with_parsers(client, hear).await?;
        let sound = sound.map_err(|error| failed(error, MediaKind::Sound, place))?;
        let memory = match &request.memory {
            Some(own) => Some(reserve(own, &sound, place).await?),
            None => None,
        };
        Ok(DecodedSound { sound, memory })
    }
}

/// Reserves memory for the samples of a sound at `place` of the request.
async fn reserve(
    own: &BodyReservation,
    sound: &Sound,
    place: &str,
) -> Result<BodyReservation, CallError> {
    let reserved = own.another(size_of_val(sound.samples())).await;
    reserved.map_err(|error| match error {
        OutOfBodyMemory::Full => {
            let seconds = sound.seconds();
            let message = format!(
                "the sound has {seconds:.0} seconds, too long for the memory of this server: send it in parts"
            );
            Refusal::at(place, message).into()
        }
        OutOfBodyMemory::Share => error.into(),
    })
}

impl PreparedSound {
    /// Prepares the runs of a model over a sound at `place` of the request.
    pub(super) fn new(
        DecodedSound { sound, memory }: DecodedSound,
        (endpoint, recipe): (Arc<Endpoint>, Arc<ModelRecipe>),
        place: String,
    ) -> Self {
        Self {
            endpoint,
            recipe,
            run: SoundRun::new(sound),
            place,
            _memory: memory,
        }
    }

    /// Runs the model on all windows and interprets its outputs. `timeout` applies to all of it.
    pub(super) async fn predict(
        mut self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let time = TimeLeft::of(timeout);
        let recipe = &self.recipe.fitted;
        let place = self.place;
        let unsuited = |reason: String| CallError::from(Refusal::at(&place, reason));
        // A window is small, so its preparation takes less time than a thread of its own would.
        while let Some(inputs) = self.run.next_inputs(recipe).map_err(unsuited)? {
            let outputs = time.run(&self.endpoint, caller, inputs).await?;
            let added = self.run.add(recipe, outputs);
            added.map_err(|reason| misfit(&reason))?;
        }
        let (run, recipe) = (self.run, self.recipe);
        let answer = move || Ok(run.answer(&recipe.fitted)?.to_json().to_string());
        Ok(Answer::whole(
            interpreted(answer).await?,
            "application/json",
        ))
    }
}
