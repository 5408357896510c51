//! Transcripts of sounds: an encoder runs once for each window, and a decoder once for each token.

use std::sync::Arc;
use std::time::Duration;

use super::super::away::caller;
use super::super::engine::{Endpoint, EndpointConversation, EndpointModel};
use super::super::media::{MediaAnswerForm, interpreted, misfit};
use super::super::{Answer, BodyReservation, CallError, Refusal, Request};
use super::embedding::UNUSABLE_FILES;
use super::heard::DecodedSound;
use super::time::TimeLeft;
use super::variants::MethodEntry;
use super::{Device, runnable};
use crate::account::AccountId;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::recipe::{FittedDecoder, ModelRecipe};
use pkgtool_media::speech::{SpeechRun, SpeechStep, SpeechTokens};
use pkgtool_text::tokenizer::Tokenizer;

/// Time that a decoder keeps its tokens for a request whose next step does not come.
const MAX_STEP_PAUSE: Duration = Duration::from_secs(30);

/// A decoded sound, with the models that make words of it.
#[derive(Debug)]
pub struct PreparedSpeech {
    encoder: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
    decoder: SpeechDecoder,
    run: SpeechRun,
    form: MediaAnswerForm,
    /// The place of the sound in the request, for errors.
    place: String,
    /// The samples' share of the memory for bodies.
    _memory: Option<BodyReservation>,
}

/// A decoder and its tokenizer.
#[derive(Debug)]
struct SpeechDecoder {
    endpoint: Arc<Endpoint>,
    fitted: FittedDecoder,
    tokenizer: Arc<Tokenizer>,
    /// The session of a decoder that keeps its tokens.
    session: Option<EndpointConversation>,
}

impl Device {
    /// Returns the endpoint of a decoder. One that gives keys and values for its next run keeps them in its sessions, apart
    /// from requests for the method itself.
    fn stepping_endpoint(
        &self,
        entry: &MethodEntry,
        fitted: &FittedDecoder,
    ) -> Result<Arc<Endpoint>, CallError> {
        let model = runnable(entry)?;
        if fitted.carrying.is_empty() {
            return self.endpoint(entry, model);
        }
        let model = EndpointModel {
            carrying: fitted.carrying.clone(),
            ..model.clone()
        };
        self.endpoint_in(&entry.steps, &model)
    }

    /// Prepares the transcript of a sound by an entry of the device.
    pub(super) async fn prepare_speech(
        &self,
        sound: DecodedSound,
        (entry, recipe): (&MethodEntry, Arc<ModelRecipe>),
        (form, place): (MediaAnswerForm, String),
        request: &Request,
    ) -> Result<PreparedSpeech, CallError> {
        let DecodedSound { sound, memory } = sound;
        let refused = |reason: String| Refusal::at(&place, reason);
        let found = self.second(entry, |component, it| recipe.decoder(component, it));
        let (other, fitted) = found.ok_or_else(|| {
            let expected = recipe.expected_decoder();
            refused(format!(
                "no method decodes what this one encodes: expected {expected}"
            ))
        })?;
        let text = entry.text.as_ref().ok_or_else(|| {
            refused("the package has no tokenizer: its config must name one".to_owned())
        })?;
        let client = self.parts.engines.parsers(caller(request));
        let tokenizer = self.tokenizers.get(&text.tokenizer, &client).await;
        let tokenizer = tokenizer.map_err(|reason| {
            tracing::error!(service = %self.parts.label, reason, "cannot transcribe");
            CallError::NoInstances(UNUSABLE_FILES.to_owned())
        })?;
        let mut options = recipe.fitted.speech_options().map_err(refused)?;
        options.keeps_tokens = fitted.keeps_tokens;
        let vocabulary = fitted
            .vocabulary
            .unwrap_or_else(|| tokenizer.vocabulary().len());
        let tokens = SpeechTokens::find(vocabulary, |token| tokenizer.id_of(token));
        let tokens = tokens.map_err(refused)?;
        let run = SpeechRun::new(sound, tokens, &options).map_err(refused)?;
        Ok(PreparedSpeech {
            encoder: self.endpoint(entry, runnable(entry)?)?,
            decoder: SpeechDecoder {
                endpoint: self.stepping_endpoint(other, &fitted)?,
                fitted,
                tokenizer,
                session: None,
            },
            recipe,
            run,
            form,
            place,
            _memory: memory,
        })
    }
}

impl PreparedSpeech {
    /// Runs the models until the transcript is complete. `timeout` applies to all of it.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let time = TimeLeft::of(timeout);
        let Self {
            encoder,
            recipe,
            mut decoder,
            mut run,
            form,
            place,
            ..
        } = self;
        while let Some(step) = run.next_step() {
            match step {
                SpeechStep::Encode(samples) => {
                    let recipe = Arc::clone(&recipe);
                    let prepare = move || recipe.fitted.window(samples);
                    let inputs = tokio::task::spawn_blocking(prepare).await;
                    let inputs = inputs.map_err(|error| CallError::Failed(error.to_string()))?;
                    let inputs = inputs.map_err(|reason| Refusal::at(&place, reason))?;
                    run.add_states(time.run(&encoder, caller, inputs).await?);
                }
                SpeechStep::Decode { tokens, position } => {
                    let inputs = decoder.fitted.inputs(&tokens, position, run.states());
                    let inputs = inputs.map_err(|reason| misfit(&reason))?;
                    let outputs = decoder.step(caller, inputs, position, time).await?;
                    let logits = outputs.into_iter().next();
                    let logits = logits.ok_or_else(|| misfit("the decoder has no output"))?;
                    let tokenizer = Arc::clone(&decoder.tokenizer);
                    // Choosing among tens of thousands of tokens takes about a millisecond.
                    let added = move || {
                        let text_of = |ids: &[u32]| {
                            let text = tokenizer.decode(ids, true);
                            text.map_err(|error| error.to_string())
                        };
                        run.add_logits(&logits, &text_of)?;
                        Ok(run)
                    };
                    run = interpreted(added).await?;
                }
            }
        }
        let words = run.answer();
        let (text, media_type) = match form {
            MediaAnswerForm::Subtitles(format) => (words.subtitles(format), format.media_type()),
            _ => (
                TypedAnswer::Transcript(words).to_json().to_string(),
                "application/json",
            ),
        };
        Ok(Answer::whole(text, media_type))
    }
}

impl SpeechDecoder {
    /// Runs the decoder. One that keeps its tokens has a session for the window.
    async fn step(
        &mut self,
        caller: AccountId,
        inputs: Vec<Tensor>,
        position: usize,
        time: TimeLeft,
    ) -> Result<Vec<Tensor>, CallError> {
        if !self.fitted.keeps_tokens {
            return time.run(&self.endpoint, caller, inputs).await;
        }
        if position == 0 {
            self.session = Some(self.endpoint.lease(caller, MAX_STEP_PAUSE));
        }
        let session = self.session.as_mut();
        let session = session.ok_or_else(|| misfit("the decoder did not begin"))?;
        time.within(session.run(inputs, None)).await
    }
}
