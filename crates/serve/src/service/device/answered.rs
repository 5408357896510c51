//! Answers by a recipe: a picture comes in, and labels, boxes, classes, a vector or a picture go out.
//!
//! Invariant: pictures are decoded, and drawn on, in parser processes only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::away::{caller, with_parsers};
use super::super::engine::Endpoint;
use super::super::media::{MediaAnswerForm, MediaRequest, RecipeOption};
use super::super::tensors::{Decoded, Encoding, Picture, takes_no_pictures, undecoded};
use super::super::{Answer, Body, CallError, Refusal, Request};
use super::variants::MethodEntry;
use super::{Device, PreparedInputs, runnable, sides};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::picture::{Geometry, PictureFormat};
use pkgtool_media::recipe::ModelRecipe;
use pkgtool_media::worker::{self, RecipeWorkError};

/// A prepared picture, with the model and the recipe that answer it.
#[derive(Debug)]
pub struct PreparedAnswer {
    endpoint: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
    inputs: Vec<Tensor>,
    geometry: Geometry,
    /// The place of the picture in the request, for errors.
    place: String,
    /// The format of the answer and the picture to draw it over; `None` for an answer as JSON.
    drawing: Option<(PictureFormat, Bytes)>,
    client: ParserClient,
}

impl Device {
    /// Returns the names of the values that its recipes have.
    pub(super) fn recipe_keys(&self) -> &[String] {
        self.recipe_keys.get_or_init(|| {
            if !self.description.takes_pictures || self.classifies.is_some() {
                return Vec::new();
            }
            let entries = self.variants.entries.iter();
            let recipes = entries.filter_map(|entry| entry.recipe().ok());
            let names = recipes.flat_map(|recipe| recipe.fitted.values.keys().cloned());
            let mut names: Vec<String> = names.collect();
            names.sort_unstable();
            names.dedup();
            names
        })
    }

    /// Checks the values of a config for the recipe of the method that it selects.
    pub(super) fn check_recipe_options(
        &self,
        index: usize,
        options: &[RecipeOption],
    ) -> Result<(), Refusal> {
        match self.variants.entries[index].recipe() {
            _ if options.is_empty() => Ok(()),
            Ok(recipe) => with_options(recipe, options).map(drop),
            Err(reason) => Err(Refusal::at("$.config", reason)),
        }
    }

    /// Prepares a picture.
    pub(super) async fn prepare_media(
        &self,
        given: MediaRequest,
        request: &Request,
    ) -> Result<PreparedInputs, CallError> {
        if !self.description.takes_pictures {
            return Err(takes_no_pictures(given.place).into());
        }
        if self.classifies.is_some() {
            return self.prepare_trained(given, request).await;
        }
        let config = request.config.as_deref().unwrap_or_default();
        let (choice, options) = self.read_config(config)?;
        let index = choice.resolve_among(&self.variants, has_recipe)?;
        let entry = &self.variants.entries[index];
        let model = runnable(entry)?;
        let recipe = entry
            .recipe()
            .map_err(|reason| Refusal::at(given.place.clone(), reason))?;
        let options = [options.recipe, given.options].concat();
        let recipe = with_options(recipe, &options)?;
        let form = match (given.form, &request.accept) {
            (Some(form), _) => form,
            (None, Some(accept)) => MediaAnswerForm::accepted(accept)?,
            (None, None) => MediaAnswerForm::Json,
        };
        form.check(recipe.fitted.answer)?;
        let endpoint = self.endpoint(entry, model)?;
        let client = self.engines.parsers(caller(request));
        let (chosen, picture) = (Arc::clone(&recipe), given.bytes.clone());
        let prepare = move |client: &ParserClient| {
            worker::prepare(client, &chosen.fitted.preparation, &picture)
        };
        let prepared = with_parsers(client.new_request(), prepare).await?;
        let prepared = prepared.map_err(|error| failed(error, &given.place))?;
        let drawing = match form {
            MediaAnswerForm::Json => None,
            MediaAnswerForm::Picture(format) => Some((format, given.bytes)),
        };
        Ok(PreparedInputs::Answered(Box::new(PreparedAnswer {
            endpoint,
            recipe,
            inputs: prepared.inputs,
            geometry: prepared.geometry,
            place: given.place,
            drawing,
            client,
        })))
    }

    /// Prepares a picture for a trained classifier.
    async fn prepare_trained(
        &self,
        given: MediaRequest,
        request: &Request,
    ) -> Result<PreparedInputs, CallError> {
        if let Some(option) = given.options.first() {
            let message = "a trained service has no values to override";
            return Err(Refusal::at(option.place.clone(), message).into());
        }
        let config = request.config.as_deref();
        let entry = self.chosen(config)?;
        let model = runnable(entry)?;
        let picture = Picture::of(&model.signature, given.bytes, &given.place)?;
        let decoded = Decoded {
            inputs: Vec::new(),
            picture: Some(picture),
            encoding: Encoding::Json,
        };
        let prepared = self.with_endpoint((entry, model), decoded, caller(request));
        self.prepare_picture(entry, prepared.await?, config)
    }
}

/// Returns whether a recipe answers pictures for a method.
fn has_recipe(entry: &MethodEntry) -> bool {
    entry.recipe().is_ok()
}

/// Returns the recipe with these values. Copies it only if there are any.
fn with_options(
    recipe: &Arc<ModelRecipe>,
    options: &[RecipeOption],
) -> Result<Arc<ModelRecipe>, Refusal> {
    let mut recipe = Arc::clone(recipe);
    for RecipeOption { name, value, place } in options {
        let set = Arc::make_mut(&mut recipe).set(name, value.clone(), "the request");
        set.map_err(|reason| Refusal::at(place, reason))?;
    }
    Ok(recipe)
}

/// Converts an error of work on a picture at `place`.
fn failed(error: RecipeWorkError, place: &str) -> CallError {
    match error {
        RecipeWorkError::Fault(reason) => Refusal::at(place, reason).into(),
        RecipeWorkError::Process(error) => undecoded(&error, place),
    }
}

impl PreparedAnswer {
    /// Runs the model and interprets its outputs. `timeout` applies to the run and to drawing.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let began = Instant::now();
        let asked = (self.inputs, Some(&*self.place));
        let outputs = sides::run(&self.endpoint, caller, asked, timeout).await?;
        let (recipe, geometry) = (self.recipe, self.geometry);
        let (body, content_type) = match self.drawing {
            None => {
                let interpret = move || {
                    let answer = recipe.fitted.interpret(&outputs, geometry);
                    answer.map(|answer| answer.to_json().to_string())
                };
                let body = tokio::task::spawn_blocking(interpret).await;
                let body = body.map_err(|error| CallError::Failed(error.to_string()))?;
                let body = body.map_err(|reason| {
                    CallError::Failed(format!("the outputs do not fit the recipe: {reason}"))
                })?;
                (Bytes::from(body), "application/json")
            }
            Some((format, picture)) => {
                let draw = move |client: &ParserClient| {
                    let of_model = (&outputs[..], geometry);
                    worker::draw(client, &recipe.fitted, &picture, of_model, format)
                };
                let drawing = with_parsers(self.client, draw);
                let drawn = match timeout {
                    None => drawing.await?,
                    Some(after) => {
                        let left = after.saturating_sub(began.elapsed());
                        let drawn = tokio::time::timeout(left, drawing).await;
                        drawn.map_err(|_| CallError::Timeout { after })??
                    }
                };
                let drawn = drawn.map_err(|error| failed(error, &self.place))?;
                (Bytes::from(drawn), format.media_type())
            }
        };
        Ok(Answer {
            status: 200,
            body: Body::Whole(body),
            content_type: content_type.to_owned(),
            spent: None,
        })
    }
}
