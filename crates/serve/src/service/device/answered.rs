//! Answers by a recipe: a picture, a sound or a text comes in, and labels, boxes, text, classes, a vector, segments,
//! speech or a picture go out.
//!
//! Invariant: pictures are decoded, and drawn on, in parser processes only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::away::{caller, with_parsers};
use super::super::engine::Endpoint;
use super::super::media::{
    MediaAnswerForm, MediaRequest, RecipeOption, failed, interpreted, misfit,
};
use super::super::tensors::{Decoded, Encoding, Picture};
use super::super::{Answer, CallError, Refusal, Request};
use super::choice::ConfigChoice;
use super::heard::PreparedSound;
use super::time::TimeLeft;
use super::variants::MethodEntry;
use super::{Device, PreparedInputs, runnable, sides};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_media::MediaKind;
use pkgtool_media::answer::{TextAnswer, TypedAnswer, TypedAnswerKind};
use pkgtool_media::picture::{Geometry, PictureFormat, Quad};
use pkgtool_media::recipe::{ModelRecipe, set_among};
use pkgtool_media::worker::{self, PreparedPicture};

/// A prepared picture, with the model and the recipe that answer it.
#[derive(Debug)]
pub struct PreparedAnswer {
    endpoint: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
    inputs: Vec<Tensor>,
    geometry: Geometry,
    /// The place of the picture in the request, for errors.
    place: String,
    picture: Bytes,
    form: MediaAnswerForm,
    /// The model that reads each line of the answer.
    reader: Option<LineReader>,
    client: ParserClient,
}

/// A model that reads lines of text, with its recipe.
#[derive(Debug)]
struct LineReader {
    endpoint: Arc<Endpoint>,
    recipe: Arc<ModelRecipe>,
}

impl Device {
    /// Returns the names of the values that its recipes have.
    pub(super) fn recipe_keys(&self) -> &[String] {
        self.recipe_keys.get_or_init(|| {
            if self.description.takes.is_none() || self.classifies.is_some() {
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

    /// Returns the recipe that answers pictures, optionally with a backend, and the one that reads the lines which it
    /// finds.
    pub fn recipes(&self, backend: Option<&str>) -> Vec<&ModelRecipe> {
        if self.description.takes.is_none() || self.classifies.is_some() {
            return Vec::new();
        }
        let choice = backend.map_or_else(ConfigChoice::default, ConfigChoice::of_backend);
        let Ok(entry) = self.answering(&choice) else {
            return Vec::new();
        };
        let Ok(recipe) = entry.recipe() else {
            return Vec::new();
        };
        let reader = self.reader_for((entry, recipe), &choice);
        let reader = reader.map(|(_, recipe)| &**recipe);
        std::iter::once(&**recipe).chain(reader).collect()
    }

    /// Checks the values of a config for the recipe of the method that it selects.
    pub(super) fn check_recipe_options(
        &self,
        choice: &ConfigChoice,
        options: &[RecipeOption],
    ) -> Result<(), Refusal> {
        let entry = self.answering(choice)?;
        let recipe = entry.recipe();
        let recipe = recipe.map_err(|reason| Refusal::at("$.config", reason))?;
        let reader = self.reader_for((entry, recipe), choice);
        let reader = reader.map(|(_, recipe)| recipe);
        with_options(recipe, reader, options).map(drop)
    }

    /// Prepares a picture, a sound or a text.
    pub(super) async fn prepare_media(
        &self,
        mut given: MediaRequest,
        request: &Request,
    ) -> Result<PreparedInputs, CallError> {
        given.check(self.description.takes)?;
        if self.classifies.is_some() {
            return self.prepare_trained(given, request).await;
        }
        let config = request.config.as_deref().unwrap_or_default();
        let (choice, options) = self.read_config(config)?;
        let entry = self.answering(&choice)?;
        let model = runnable(entry)?;
        let recipe = entry
            .recipe()
            .map_err(|reason| Refusal::at(given.place.clone(), reason))?;
        let reader = self.reader_for((entry, recipe), &choice);
        let (reader, other) = reader.unzip();
        let own = std::mem::take(&mut given.options);
        let options = [options.recipe, own].concat();
        let (recipe, other) = with_options(recipe, other, &options)?;
        let form = match (given.form, &request.accept) {
            (Some(form), _) => form,
            (None, Some(accept)) => MediaAnswerForm::accepted(accept)?,
            (None, None) => MediaAnswerForm::Json,
        };
        form.check(recipe.fitted.answer)?;
        if recipe.fitted.answer == TypedAnswerKind::Reply {
            let picture = (&given.bytes[..], &*given.place);
            let reply = self.prepare_reply(picture, (entry, &recipe))?;
            return Ok(PreparedInputs::Generated(reply));
        }
        if recipe.diffuses() {
            let text = self.prepare_generation(given, (entry, recipe), form, request);
            return Ok(PreparedInputs::Painted(Box::new(text.await?)));
        }
        if recipe.fitted.takes == MediaKind::Text {
            let text = self.prepare_utterance(given, (entry, recipe), form, request);
            return Ok(PreparedInputs::Uttered(Box::new(text.await?)));
        }
        let endpoint = self.endpoint(entry, model)?;
        if recipe.fitted.takes == MediaKind::Sound {
            let place = given.place;
            let sound = self.decode_sound(given.bytes, &place, request).await?;
            if recipe.needs_decoder() {
                let spoken = self.prepare_speech(sound, (entry, recipe), (form, place), request);
                return Ok(PreparedInputs::Spoken(Box::new(spoken.await?)));
            }
            let heard = PreparedSound::new(sound, (endpoint, recipe), place);
            return Ok(PreparedInputs::Heard(Box::new(heard)));
        }
        let reader = match reader.zip(other) {
            None => None,
            Some((entry, recipe)) => Some(LineReader {
                endpoint: self.endpoint(entry, runnable(entry)?)?,
                recipe,
            }),
        };
        let client = self.parts.engines.parsers(caller(request));
        let (chosen, picture) = (Arc::clone(&recipe), given.bytes.clone());
        let prepare = move |client: &ParserClient| {
            worker::prepare(client, &chosen.fitted.preparation, &picture)
        };
        let prepared = with_parsers(client.new_request(), prepare).await?;
        let prepared = prepared.map_err(|error| failed(error, MediaKind::Picture, &given.place))?;
        Ok(PreparedInputs::Answered(Box::new(PreparedAnswer {
            endpoint,
            recipe,
            inputs: prepared.inputs,
            geometry: prepared.geometry,
            place: given.place,
            picture: given.bytes,
            form,
            reader,
            client,
        })))
    }

    /// Returns the entry that answers pictures for a choice.
    fn answering(&self, choice: &ConfigChoice) -> Result<&MethodEntry, Refusal> {
        let index = if choice.names_part() {
            choice.resolve_among(&self.variants, |entry| entry.recipe().is_ok())?
        } else {
            choice.resolve_among(&self.variants, |entry| self.leads(entry))?
        };
        Ok(&self.variants.entries[index])
    }

    /// Returns the preferred entry of a variant among those whose recipe is suitable.
    pub(super) fn preferred(
        &self,
        variant: usize,
        suits: impl Fn(&ModelRecipe) -> bool,
    ) -> Option<(&MethodEntry, &Arc<ModelRecipe>)> {
        let entries = self.variants.entries.iter();
        let entries = entries.filter(|entry| entry.variant == variant);
        let recipes = entries.filter_map(|entry| Some((entry, entry.recipe().ok()?)));
        let suitable = recipes.filter(|(_, recipe)| suits(recipe));
        suitable.min_by_key(|(_, recipe)| recipe.rank())
    }

    /// Returns the first entry of the same variant that fits, such as the decoder for an encoder.
    pub(super) fn second<T>(
        &self,
        entry: &MethodEntry,
        fit: impl Fn(Option<&str>, &Signature) -> Option<T>,
    ) -> Option<(&MethodEntry, T)> {
        let others = self.variants.entries.iter();
        let mut others = others.filter(|other| other.variant == entry.variant);
        others.find_map(|other| {
            let signature = &other.model.as_ref().ok()?.signature;
            Some((other, fit(other.component.as_deref(), signature)?))
        })
    }

    /// Returns whether an entry answers for its variant.
    fn leads(&self, entry: &MethodEntry) -> bool {
        let best = self.preferred(entry.variant, |_| true);
        best.is_some_and(|(best, _)| std::ptr::eq(best, entry))
    }

    /// Returns the entry that reads the lines which another one finds, unless a choice names a part of the package.
    fn reader_for(
        &self,
        (entry, recipe): (&MethodEntry, &ModelRecipe),
        choice: &ConfigChoice,
    ) -> Option<(&MethodEntry, &Arc<ModelRecipe>)> {
        if choice.names_part() {
            return None;
        }
        self.preferred(entry.variant, |other| other.reads_for(recipe))
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

/// Returns the recipe and the reader's with these values. Copies them only if there are any.
fn with_options(
    recipe: &Arc<ModelRecipe>,
    reader: Option<&Arc<ModelRecipe>>,
    options: &[RecipeOption],
) -> Result<(Arc<ModelRecipe>, Option<Arc<ModelRecipe>>), Refusal> {
    let (mut recipe, mut reader) = (Arc::clone(recipe), reader.cloned());
    for RecipeOption { name, value, place } in options {
        let (own, other) = (
            Arc::make_mut(&mut recipe),
            reader.as_mut().map(Arc::make_mut),
        );
        let set = set_among(own, other, name, value.clone(), "the request");
        set.map_err(|reason| Refusal::at(place, reason))?;
    }
    Ok((recipe, reader))
}

impl PreparedAnswer {
    /// Runs the model and interprets its outputs. `timeout` applies to all of it.
    pub(super) async fn predict(
        mut self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let time = TimeLeft::of(timeout);
        let asked = (std::mem::take(&mut self.inputs), Some(&*self.place));
        let outputs = sides::run(&self.endpoint, caller, asked, timeout).await?;
        let outputs: Arc<[Tensor]> = outputs.into();
        let (found, texts) = match &self.reader {
            None => (None, None),
            Some(reader) => {
                let found = self.found(&outputs).await?;
                let texts = self.read_lines(reader, caller, &found, time).await?;
                (Some(found), Some(texts))
            }
        };
        let (body, content_type) = match self.form {
            MediaAnswerForm::Json => {
                let (recipe, geometry) = (self.recipe, self.geometry);
                let interpret = move || {
                    let answer = match found {
                        Some(found) => found,
                        None => recipe.fitted.interpret(&outputs, geometry)?,
                    };
                    Ok(answer.with_texts(texts).to_json().to_string())
                };
                (
                    Bytes::from(interpreted(interpret).await?),
                    "application/json",
                )
            }
            MediaAnswerForm::Picture(format) => {
                let drawn = self.draw(outputs, texts, format, time).await?;
                (Bytes::from(drawn), format.media_type())
            }
            MediaAnswerForm::Subtitles(_) | MediaAnswerForm::Sound(_) => {
                return Err(misfit("no words and no speech"));
            }
        };
        Ok(Answer::whole(body, content_type))
    }

    /// Interprets the outputs.
    async fn found(&self, outputs: &Arc<[Tensor]>) -> Result<TypedAnswer, CallError> {
        let (recipe, geometry) = (Arc::clone(&self.recipe), self.geometry);
        let outputs = Arc::clone(outputs);
        interpreted(move || recipe.fitted.interpret(&outputs, geometry)).await
    }

    /// Reads each line that the model has found.
    async fn read_lines(
        &self,
        reader: &LineReader,
        caller: AccountId,
        found: &TypedAnswer,
        time: TimeLeft,
    ) -> Result<Vec<TextAnswer>, CallError> {
        let TypedAnswer::Lines(found) = found else {
            return Ok(Vec::new());
        };
        let mut quads: Vec<Quad> = found.lines.iter().map(|line| line.quad).collect();
        let mut texts = Vec::with_capacity(quads.len());
        // Each round cuts a bounded number of lines out of the picture.
        while !quads.is_empty() {
            let parts = self.cut(reader, quads.clone(), time).await?;
            quads.drain(..parts.len().clamp(1, quads.len()));
            for part in parts {
                let outputs = time.run(&reader.endpoint, caller, part.inputs).await?;
                let recipe = Arc::clone(&reader.recipe);
                let read = move || recipe.fitted.interpret_text(&outputs, part.geometry);
                texts.push(interpreted(read).await?);
            }
        }
        Ok(texts)
    }

    /// Cuts the first lines out of the picture.
    async fn cut(
        &self,
        reader: &LineReader,
        quads: Vec<Quad>,
        time: TimeLeft,
    ) -> Result<Vec<PreparedPicture>, CallError> {
        let (recipe, picture) = (Arc::clone(&reader.recipe), self.picture.clone());
        let cut = move |client: &ParserClient| {
            worker::cut(client, &recipe.fitted.preparation, &picture, quads)
        };
        let parts = time
            .within(with_parsers(self.client.new_request(), cut))
            .await?;
        parts.map_err(|error| failed(error, MediaKind::Picture, &self.place))
    }

    /// Draws the answer over the picture.
    async fn draw(
        self,
        outputs: Arc<[Tensor]>,
        texts: Option<Vec<TextAnswer>>,
        format: PictureFormat,
        time: TimeLeft,
    ) -> Result<Vec<u8>, CallError> {
        let (recipe, picture, geometry) = (self.recipe, self.picture, self.geometry);
        let draw = move |client: &ParserClient| {
            let of_model = (&outputs[..], geometry);
            worker::draw(client, &recipe.fitted, &picture, of_model, texts, format)
        };
        let drawn = time.within(with_parsers(self.client, draw)).await?;
        drawn.map_err(|error| failed(error, MediaKind::Picture, &self.place))
    }
}
