//! Requests of chat adapters to a package: parses them and selects the model that answers.
//!
//! Invariant: a request is parsed before anything of a model is loaded for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::adapter::{AdapterCall, AdapterMethod, AdapterMode};
use super::super::away::caller;
use super::super::json;
use super::super::media::misfit;
use super::super::text::{
    DecoderCompanions, PictureEncoder, PreparedText, TextEndpoint, TextRequest,
};
use super::super::{CallError, Refusal, Request};
use super::choice::{ConfigChoice, KEYS};
use super::variants::MethodEntry;
use super::vectors::{AskedEmbeddings, PreparedEmbeddings};
use super::{Device, PreparedInputs, runnable};
use pkgtool_media::answer::TypedAnswerKind;
use pkgtool_media::recipe::ModelRecipe;
use pkgtool_text::chat::ChatRequest;

/// Keys that mark a plain predict request as a chat or completion request.
const BY_KEY: [(&str, AdapterMethod); 2] = [
    ("messages", AdapterMethod::Chat),
    ("prompt", AdapterMethod::Completion),
];

impl Device {
    /// Returns whether it supports this method of chat adapters.
    pub fn adapts(&self, method: AdapterMethod) -> bool {
        match method {
            AdapterMethod::Chat | AdapterMethod::Completion => self.generates(),
            AdapterMethod::Embeddings => self.description.embeds_texts,
        }
    }

    fn generates(&self) -> bool {
        self.variants.entries.iter().any(MethodEntry::generates)
    }

    /// Returns the adapter call of a request, determined by its data type or its keys.
    pub(super) async fn adapted(
        &self,
        request: &Request,
    ) -> Result<Option<AdapterCall>, CallError> {
        let said = request.data_type.as_deref().and_then(AdapterCall::of);
        if said.is_some() || !self.generates() {
            return Ok(said);
        }
        self.parts
            .engines
            .decoding()
            .of(request, |body| by_key(body))
            .await
    }

    pub(super) async fn prepare_adapted(
        &self,
        call: AdapterCall,
        request: &Request,
    ) -> Result<PreparedInputs, CallError> {
        let config = request.config.as_deref();
        let name = self.parts.label.clone();
        if call.method == AdapterMethod::Embeddings {
            let keys = [KEYS, &pkgtool_text::embedding::EmbeddingOptions::KEYS].concat();
            let config = config.map(str::to_owned);
            let read =
                move |body: &Bytes| AskedEmbeddings::read(call, body, config.as_deref(), &keys);
            let (asked, given, config) = self.parts.engines.decoding().of(request, read).await??;
            let caller = caller(request);
            let embedding = self.prepare_embedding(given, config.as_deref(), caller);
            let embedding = embedding.await?;
            let prepared = PreparedEmbeddings::new(asked, embedding, name);
            return Ok(PreparedInputs::Embedded(prepared));
        }
        let config = config.map(str::to_owned);
        let read = move |body: &Bytes| TextRequest::read(call, body, config.as_deref(), KEYS);
        let (asked, config) = self.parts.engines.decoding().of(request, read).await??;
        let (choice, _) = ConfigChoice::read(config.as_deref().unwrap_or_default(), &[])?;
        let index = choice.resolve_among(&self.variants, MethodEntry::generates)?;
        let endpoint = self.generator(&self.variants.entries[index])?;
        Ok(PreparedInputs::Generated(PreparedText::new(
            endpoint, asked, name,
        )))
    }

    pub(super) fn generator(&self, entry: &MethodEntry) -> Result<Arc<TextEndpoint>, CallError> {
        let model = runnable(entry)?;
        if self.drained.load(Ordering::Acquire) {
            return Err(CallError::Stopped);
        }
        let Some(text) = entry.text.as_ref().filter(|text| text.generates()) else {
            let message = "this service does not generate text: its package needs the capability \
                           `text-generation` and a `tokenizer`";
            return Err(Refusal::at("$.model", message).into());
        };
        if let Some(generator) = entry.generator.get() {
            return Ok(Arc::clone(generator));
        }
        let companions = self.companions(entry)?;
        let make = || {
            let (settings, engines) =
                (self.parts.settings.clone(), Arc::clone(&self.parts.engines));
            let models = (model.clone(), companions);
            TextEndpoint::new(text.tokenizer.clone(), models, settings, engines)
        };
        Ok(Arc::clone(entry.generator.get_or_init(make)))
    }

    /// Returns the models beside a decoder.
    fn companions(&self, entry: &MethodEntry) -> Result<DecoderCompanions, CallError> {
        let Some(embedding) = entry.embedding else {
            return Ok(DecoderCompanions::default());
        };
        let embedding = &self.variants.entries[embedding];
        let replies = |recipe: &ModelRecipe| recipe.fitted.answer == TypedAnswerKind::Reply;
        let pictures = match self.preferred(entry.variant, replies) {
            None => None,
            Some((encoder, recipe)) => Some(PictureEncoder {
                endpoint: self.endpoint(encoder, runnable(encoder)?)?,
                recipe: Arc::clone(recipe),
            }),
        };
        Ok(DecoderCompanions {
            embedding: Some(self.endpoint(embedding, runnable(embedding)?)?),
            pictures,
        })
    }

    /// Prepares words about a picture that comes without a question.
    pub(super) fn prepare_reply(
        &self,
        (picture, place): (&[u8], &str),
        (entry, recipe): (&MethodEntry, &ModelRecipe),
    ) -> Result<PreparedText, CallError> {
        let options = recipe.fitted.reply_options();
        let options = options.map_err(|reason| misfit(&reason))?;
        let picture = (picture, place);
        let chat = ChatRequest::about_picture(picture, &options.prompt, options.most);
        let chat = chat.map_err(|error| Refusal::at(place, error.to_string()))?;
        let entries = self.variants.entries.iter();
        let mut own = entries.filter(|it| it.variant == entry.variant && it.generates());
        let decoder = own.next().ok_or_else(|| {
            let message = "this package has no text decoder beside the encoder of pictures";
            Refusal::at(place, message)
        })?;
        let asked = TextRequest::Reply(Box::new(chat));
        let endpoint = self.generator(decoder)?;
        Ok(PreparedText::new(endpoint, asked, self.parts.label.clone()))
    }
}

/// Determines the adapter call of a plain predict request by its keys.
fn by_key(body: &[u8]) -> Option<AdapterCall> {
    let text = json::text(body).ok()?;
    let members = json::members(text, "$").ok()?;
    let mut known = BY_KEY.into_iter();
    let (_, method) = known.find(|(key, _)| members.iter().any(|(has, _)| has == key))?;
    Some(AdapterCall {
        method,
        mode: AdapterMode::Standard,
    })
}
