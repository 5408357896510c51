//! Pictures of texts: an encoder, a denoiser for each step, and a painter.

use std::sync::Arc;
use std::time::Duration;

use super::super::away::{caller, with_parsers};
use super::super::engine::Endpoint;
use super::super::media::{MediaAnswerForm, MediaRequest, interpreted, misfit};
use super::super::{Answer, CallError, Refusal, Request};
use super::embedding::UNUSABLE_FILES;
use super::time::TimeLeft;
use super::variants::MethodEntry;
use super::{Device, runnable};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_media::answer::{TypedAnswer, TypedAnswerKind};
use pkgtool_media::diffusion::{DiffusionModel, DiffusionRun, DiffusionShape};
use pkgtool_media::recipe::ModelRecipe;

/// A picture that has not begun, with the models that make it.
#[derive(Debug)]
pub struct PreparedGeneration {
    encoder: Arc<Endpoint>,
    denoiser: Arc<Endpoint>,
    painter: Arc<Endpoint>,
    run: DiffusionRun,
    form: MediaAnswerForm,
}

impl Device {
    /// Prepares the picture of a text by an entry of the device.
    pub(super) async fn prepare_generation(
        &self,
        given: MediaRequest,
        (entry, recipe): (&MethodEntry, Arc<ModelRecipe>),
        form: MediaAnswerForm,
        request: &Request,
    ) -> Result<PreparedGeneration, CallError> {
        let place = given.place;
        let refused = |reason: String| Refusal::at(&place, reason);
        if given.phonemes {
            return Err(
                refused("the service makes pictures of texts, not of phonemes".to_owned()).into(),
            );
        }
        let text = String::from_utf8(given.bytes.into());
        let text = text.map_err(|_| refused("expected UTF-8".to_owned()))?;
        let (denoiser, painter, models) = self.diffusion(entry, &recipe).ok_or_else(|| {
            let expected = recipe.expected_diffusion();
            refused(format!(
                "no methods make a picture of what this one encodes: expected {expected}"
            ))
        })?;
        let files = entry.text.as_ref().ok_or_else(|| {
            refused("the package has no tokenizer: its config must name one".to_owned())
        })?;
        let client = self.parts.engines.parsers(caller(request));
        let tokenizer = self.tokenizers.get(&files.tokenizer, &client).await;
        let tokenizer = tokenizer.map_err(|reason| {
            tracing::error!(service = %self.parts.label, reason, "cannot make pictures");
            CallError::NoInstances(UNUSABLE_FILES.to_owned())
        })?;
        let chosen = Arc::clone(&recipe);
        let encode = move |client: &ParserClient| {
            let tokenizer = tokenizer.on_behalf(client.new_request());
            let encode = |text: &str, most: usize| {
                let ids = tokenizer.encode_truncated(text, most);
                ids.map_err(|error| error.to_string())
            };
            let padding = tokenizer.padding().id;
            chosen.fitted.prompts(&text, padding, encode)
        };
        let tokens = with_parsers(client.new_request(), encode).await?;
        let [negative, text] = tokens.map_err(refused)?;
        let run = recipe.fitted.diffusion_run(models, [&negative, &text]);
        Ok(PreparedGeneration {
            run: run.map_err(|reason| Refusal::at("$.config", reason))?,
            encoder: self.endpoint(entry, runnable(entry)?)?,
            denoiser: self.endpoint(denoiser, runnable(denoiser)?)?,
            painter: self.endpoint(painter, runnable(painter)?)?,
            form,
        })
    }

    /// Returns the denoiser and the painter behind an encoder.
    fn diffusion(
        &self,
        entry: &MethodEntry,
        recipe: &ModelRecipe,
    ) -> Option<(&MethodEntry, &MethodEntry, DiffusionShape)> {
        let others = self.variants.entries.iter();
        let others = others.filter(|other| other.variant == entry.variant);
        let others = others.filter_map(|other| {
            let signature = &other.model.as_ref().ok()?.signature;
            Some((other, other.component.as_deref(), signature))
        });
        recipe.diffusion(&others.collect::<Vec<_>>())
    }
}

impl PreparedGeneration {
    /// Runs the models until the picture is complete. `timeout` applies to all of it.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let time = TimeLeft::of(timeout);
        let Self { mut run, form, .. } = self;
        while let Some((next, inputs)) = run.next_run().map_err(|reason| misfit(&reason))? {
            let endpoint = match next {
                DiffusionModel::Encoder => &self.encoder,
                DiffusionModel::Denoiser => &self.denoiser,
                DiffusionModel::Painter => &self.painter,
            };
            let outputs = time.run(endpoint, caller, inputs).await?;
            run = interpreted(move || run.add(&outputs).map(|()| run)).await?;
        }
        let encode = move || {
            let picture = run.answer()?;
            if let MediaAnswerForm::Picture(format) = form {
                return Ok((format.encode(&picture.picture)?, format.media_type()));
            }
            let json = TypedAnswer::Picture(picture).to_json().to_string();
            Ok((json.into_bytes(), TypedAnswerKind::JSON))
        };
        let (body, content_type) = interpreted(encode).await?;
        Ok(Answer::whole(body, content_type))
    }
}
