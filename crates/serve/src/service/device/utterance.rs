//! Speech: a model runs once for each piece of a text.

use std::sync::Arc;
use std::time::Duration;

use super::super::away::{caller, with_parsers};
use super::super::engine::Endpoint;
use super::super::media::{MediaAnswerForm, MediaRequest, failed, interpreted, misfit};
use super::super::{Answer, CallError, Refusal, Request};
use super::time::TimeLeft;
use super::variants::MethodEntry;
use super::{Device, runnable};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_media::MediaKind;
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::recipe::{FittedSynthesizer, ModelRecipe, TextRun};
use pkgtool_media::worker;

/// The phonemes of a text, with the model and the recipe that speak it.
#[derive(Debug)]
pub struct PreparedUtterance {
    endpoint: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
    /// The model that makes the sound of what the first one predicts.
    synthesizer: Option<(Arc<Endpoint>, Arc<FittedSynthesizer>)>,
    run: TextRun,
    form: MediaAnswerForm,
    /// The place of the text in the request, for errors.
    place: String,
}

impl Device {
    /// Prepares the speech of a text by an entry of the device.
    pub(super) async fn prepare_utterance(
        &self,
        given: MediaRequest,
        (entry, recipe): (&MethodEntry, Arc<ModelRecipe>),
        form: MediaAnswerForm,
        request: &Request,
    ) -> Result<PreparedUtterance, CallError> {
        let place = given.place;
        let refused = |reason: String| Refusal::at(&place, reason);
        let text = String::from_utf8(given.bytes.into());
        let text = text.map_err(|_| refused("expected UTF-8".to_owned()))?;
        let phonemes = if given.phonemes {
            text
        } else {
            let client = self.parts.engines.parsers(caller(request));
            let convert = move |client: &ParserClient| worker::english(client, &text);
            let converted = with_parsers(client, convert).await?;
            converted.map_err(|error| failed(error, MediaKind::Text, &place))?
        };
        let synthesizer = if recipe.needs_decoder() {
            let found = self.second(entry, |component, it| recipe.synthesizer(component, it));
            let (other, fitted) = found.ok_or_else(|| {
                let expected = recipe.expected_decoder();
                refused(format!(
                    "no method makes the sound of what this one predicts: expected {expected}"
                ))
            })?;
            let endpoint = self.endpoint(other, runnable(other)?)?;
            Some((endpoint, Arc::new(fitted)))
        } else {
            None
        };
        let model = runnable(entry)?;
        let endpoint = self.endpoint(entry, model)?;
        let (path, chosen) = (model.model.clone(), Arc::clone(&recipe));
        // It reads the file of the voice.
        let start = move || TextRun::new(&chosen, &path, &phonemes);
        let run = tokio::task::spawn_blocking(start).await;
        let run = run.map_err(|error| CallError::Failed(error.to_string()))?;
        let run = run.map_err(|reason| refused(self.relative(reason)))?;
        Ok(PreparedUtterance {
            endpoint,
            recipe,
            synthesizer,
            run,
            form,
            place,
        })
    }
}

impl PreparedUtterance {
    /// Runs the model on all pieces. `timeout` applies to all of it.
    pub(super) async fn predict(
        mut self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let time = TimeLeft::of(timeout);
        let place = self.place;
        let unsuited = |reason: String| CallError::from(Refusal::at(&place, reason));
        while let Some(inputs) = self
            .run
            .next_inputs(&self.recipe.fitted)
            .map_err(unsuited)?
        {
            let mut outputs = time.run(&self.endpoint, caller, inputs).await?;
            let synthesizer = self.synthesizer.as_ref();
            if let Some((endpoint, fitted)) = synthesizer {
                let recipe = &self.recipe.fitted;
                let inputs = self.run.synthesizer_inputs(recipe, fitted, &outputs);
                let Some(inputs) = inputs.map_err(|reason| misfit(&reason))? else {
                    continue;
                };
                outputs = time.run(endpoint, caller, inputs).await?;
            }
            let fitted = synthesizer.map(|(_, fitted)| Arc::clone(fitted));
            let (mut run, recipe) = (self.run, Arc::clone(&self.recipe));
            let add = move || {
                let added = run.add(&recipe.fitted, fitted.as_deref(), &outputs);
                added.map(|()| run)
            };
            self.run = interpreted(add).await?;
        }
        let (run, form) = (self.run, self.form);
        let encode = move || {
            let speech = run.answer()?;
            if let MediaAnswerForm::Sound(format) = form {
                return Ok((speech.encode(format)?, format.media_type()));
            }
            let json = TypedAnswer::Speech(speech).to_json().to_string();
            Ok((json.into_bytes(), "application/json"))
        };
        let (body, content_type) = interpreted(encode).await?;
        Ok(Answer::whole(body, content_type))
    }
}
