//! A package's models as the base of training: which model computes embeddings, its files, and
//! embedding of pictures.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::call::strip_directories;
use super::super::{CallError, PackageConfig, Refusal, tensors};
use super::variants::{MethodEntry, external_files};
use super::{Device, runnable};
use crate::account::AccountId;
use pkgtool_base::package::Backend;
use pkgtool_model as model;
use pkgtool_text::tokenizer::TokenizerFiles;

/// Kind of content to embed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentKind {
    /// Texts.
    Text,
    /// Pictures, as base64.
    Image,
}

/// A model that computes embeddings, with its files.
#[derive(Debug, Clone)]
pub struct EncoderFiles {
    /// The config that describes it.
    pub package: Arc<PackageConfig>,
    /// The backend.
    pub backend: Backend,
    /// The precision.
    pub precision: String,
    /// Its component, in a multi-component package.
    pub component: Option<String>,
    /// The model's file.
    pub model: PathBuf,
    /// External data files of the model.
    pub external: Vec<PathBuf>,
    /// The tokenizer of a model for texts.
    pub tokenizer: Option<TokenizerFiles>,
    /// Directories that may contain settings for embedding texts.
    pub directories: Vec<PathBuf>,
}

impl ContentKind {
    /// Returns the key of such content in requests and dataset rows.
    pub fn key(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image_base64",
        }
    }
}

impl Device {
    /// Returns whether a classifier can be trained on its embeddings of texts or pictures.
    pub fn trains(&self, holds: ContentKind) -> bool {
        self.classifies.is_none() && self.variants.entries.iter().any(of(holds))
    }

    /// Returns whether a classifier can be trained on its embeddings.
    pub fn is_trainable(&self) -> bool {
        self.trains(ContentKind::Text) || self.trains(ContentKind::Image)
    }

    /// Returns the embedding model for this predict config.
    pub fn encoder(&self, holds: ContentKind, config: &str) -> Result<EncoderFiles, CallError> {
        let entry = self.encoder_entry(holds, config)?;
        let model = &runnable(entry)?.model;
        let info = model::open(model);
        let (info, _) = info
            .map_err(|error| CallError::NoInstances(strip_directories(error.to_string(), model)))?;
        let text = entry.text.as_ref().filter(|_| holds == ContentKind::Text);
        Ok(EncoderFiles {
            package: Arc::clone(&entry.package),
            backend: entry.backend,
            precision: entry.precision.clone(),
            component: entry.component.clone(),
            model: model.clone(),
            external: external_files(model, &info),
            tokenizer: text.map(|text| text.tokenizer.clone()),
            directories: text.map_or_else(Vec::new, |text| text.directories.clone()),
        })
    }

    /// Returns the embedding of a picture. Faults of the picture are reported before the model
    /// runs.
    pub async fn embed_picture(
        &self,
        image_base64: &str,
        config: &str,
        caller: AccountId,
    ) -> Result<Vec<f32>, CallError> {
        let entry = self.encoder_entry(ContentKind::Image, config)?;
        let model = runnable(entry)?;
        let body = serde_json::json!({ "image_base64": image_base64 }).to_string();
        let decoded = tensors::decode(body.as_bytes(), &model.signature, true)?;
        let prepared = self.with_endpoint((entry, model), decoded, caller).await?;
        prepared.vector(caller, None).await
    }

    fn encoder_entry(&self, holds: ContentKind, config: &str) -> Result<&MethodEntry, CallError> {
        if !self.trains(holds) {
            let message = match holds {
                ContentKind::Text => {
                    "the service does not embed texts, so it cannot be trained on a dataset of texts"
                }
                ContentKind::Image => {
                    "the service does not embed pictures, so it cannot be trained on a dataset of pictures"
                }
            };
            return Err(Refusal::at("$.datasetId", message).into());
        }
        let (choice, _) = self.read_config(config)?;
        let index = choice.resolve_among(&self.variants, of(holds))?;
        Ok(&self.variants.entries[index])
    }
}

/// Returns a filter for methods that embed this kind of content.
fn of(holds: ContentKind) -> impl Fn(&MethodEntry) -> bool {
    move |entry| match holds {
        ContentKind::Text => entry.embeds(),
        ContentKind::Image => entry.embeds_pictures(),
    }
}
