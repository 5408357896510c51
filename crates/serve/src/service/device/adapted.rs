//! Requests of chat adapters to a package: parses them and selects the model that answers.
//!
//! Invariant: a request is parsed before anything of a model is loaded for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::adapter::{AdapterCall, AdapterMethod, AdapterMode};
use super::super::away::caller;
use super::super::json;
use super::super::text::{PreparedText, TextEndpoint, TextRequest};
use super::super::{CallError, Refusal, Request};
use super::choice::{ConfigChoice, KEYS};
use super::variants::MethodEntry;
use super::vectors::{AskedEmbeddings, PreparedEmbeddings};
use super::{Device, PreparedInputs, runnable};

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
        self.engines
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
        let name = self.label.clone();
        if call.method == AdapterMethod::Embeddings {
            let keys = [KEYS, &pkgtool_text::embedding::EmbeddingOptions::KEYS].concat();
            let config = config.map(str::to_owned);
            let read =
                move |body: &Bytes| AskedEmbeddings::read(call, body, config.as_deref(), &keys);
            let (asked, given, config) = self.engines.decoding().of(request, read).await??;
            let caller = caller(request);
            let embedding = self.prepare_embedding(given, config.as_deref(), caller);
            let embedding = embedding.await?;
            let prepared = PreparedEmbeddings::new(asked, embedding, name);
            return Ok(PreparedInputs::Embedded(prepared));
        }
        let config = config.map(str::to_owned);
        let read = move |body: &Bytes| TextRequest::read(call, body, config.as_deref(), KEYS);
        let (asked, config) = self.engines.decoding().of(request, read).await??;
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
        let make = || {
            let (settings, engines) = (self.settings.clone(), Arc::clone(&self.engines));
            TextEndpoint::new(text.tokenizer.clone(), model.clone(), settings, engines)
        };
        Ok(Arc::clone(entry.generator.get_or_init(make)))
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
