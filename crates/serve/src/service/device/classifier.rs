//! Two-step classification: the component `encoder` embeds a text or a picture, and the component
//! `head` maps the vector to label probabilities.
//!
//! Invariant: the number of labels equals the number of the head's probabilities. Answers list
//! labels by descending score; equal scores keep the order of the labels file.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::super::engine::Endpoint;
use super::super::{CallError, PackageConfig, Refusal};
use super::time::TimeLeft;
use super::variants::{MethodEntry, Variants, is_encoder};
use super::{Device, Embedding, PreparedInputs, PreparedTensors, runnable};
use crate::account::AccountId;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_media::trained::{HEAD, LabelWish, LabelledAnswer, TrainedLabels, head_input};
use pkgtool_model::Dim;
use pkgtool_text::embedding::EmbeddingInput;

/// Key of a predict config for the maximum number of labels in an answer.
pub(super) const TOP_K_KEY: &str = "top_k";

/// Additional keys for texts.
pub(super) const TEXT_KEYS: [&str; 2] = ["truncate", "max_length"];

/// Key of a predict config for the least probability of an answer.
pub(super) const THRESHOLD_KEY: &str = "threshold";

/// Labels and inputs of a classifying package.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PackageClassifier {
    /// The labels.
    pub(super) labels: TrainedLabels,
    /// True if it classifies texts; otherwise it classifies pictures.
    pub(super) takes_texts: bool,
}

/// Checked texts or a checked picture, with the models that classify them.
#[derive(Debug)]
pub struct PreparedClassification {
    of: VectorEncoding,
    head: Arc<Endpoint>,
    labels: TrainedLabels,
    wish: LabelWish,
}

/// Computation of the vectors.
#[derive(Debug)]
enum VectorEncoding {
    Texts(Embedding),
    Picture(PreparedTensors),
}

#[derive(Debug, Serialize)]
struct ClassifiedTexts<'l> {
    classified_texts: Vec<LabelledAnswer<'l>>,
}

impl PackageClassifier {
    /// Returns the classifier of a package; `None` if labels or a matching encoder and head are
    /// missing.
    pub(super) fn of(
        configs: &[PackageConfig],
        variants: &Variants,
    ) -> Result<Option<Self>, String> {
        let entries = &variants.entries;
        let gives_vectors = |entry: &&MethodEntry| entry.embeds() || entry.embeds_pictures();
        let is_meant = |entry: &&MethodEntry| {
            is_encoder(&entry.package.config, entry.component.as_deref()) && gives_vectors(entry)
        };
        let Some(encoder) = entries.iter().find(is_meant) else {
            return Ok(None);
        };
        let heads = entries
            .iter()
            .filter(|it| it.component.as_deref() == Some(HEAD));
        let mut heads = heads.filter_map(|entry| outputs(entry.signature.as_ref()?));
        let Some(outputs) = heads.next() else {
            return Ok(None);
        };
        let configs = configs.iter().map(|package| &*package.path);
        let Some((path, labels)) = TrainedLabels::beside(configs)? else {
            return Ok(None);
        };
        if labels.names.len() as u64 != outputs || heads.any(|other| other != outputs) {
            return Err(format!(
                "{}: has {} labels, but the component `{HEAD}` returns {outputs} probabilities; write one \
                 label for each",
                path.display(),
                labels.names.len(),
            ));
        }
        Ok(Some(Self {
            labels,
            takes_texts: encoder.embeds(),
        }))
    }
}

/// Returns the number of probabilities of a head. A head takes any number of vectors and has no
/// other input.
fn outputs(signature: &Signature) -> Option<u64> {
    let ([input], [output]) = (&signature.inputs[..], &signature.outputs[..]) else {
        return None;
    };
    let (Some([rows, Dim::Fixed(_)]), Some([_, Dim::Fixed(outputs)])) =
        (input.dims.as_deref(), output.dims.as_deref())
    else {
        return None;
    };
    let takes_any = matches!(rows, Dim::Dynamic { bound: None, .. });
    let is_float = input.dtype == DType::Float32 && output.dtype == DType::Float32;
    (takes_any && is_float).then_some(*outputs)
}

/// Parses the least probability of an answer.
pub(super) fn threshold(value: &RawValue) -> Result<Option<f32>, Refusal> {
    let number = serde_json::from_str::<Option<f32>>(value.get()).ok();
    let number = number.filter(|number| number.is_none_or(|it| (0.0..=1.0).contains(&it)));
    number.ok_or_else(|| {
        let shown = super::super::json::shown(value.get());
        let message = format!("expected a number from 0 to 1, got {shown}");
        Refusal::at(format!("$.config.{THRESHOLD_KEY}"), message)
    })
}

/// Parses the maximum number of labels in an answer.
pub(super) fn most(value: &RawValue) -> Result<Option<usize>, Refusal> {
    let number = serde_json::from_str::<Option<usize>>(value.get()).ok();
    let number = number.filter(|number| *number != Some(0));
    number.ok_or_else(|| {
        let shown = super::super::json::shown(value.get());
        let message = format!("expected a whole number above 0, got {shown}");
        Refusal::at(format!("$.config.{TOP_K_KEY}"), message)
    })
}

impl Device {
    /// Returns the JSON Schema of the answers of a trained classifier; `None` for other services.
    pub fn labelled_schema(&self) -> Option<serde_json::Value> {
        let classifies = self.classifies.as_ref()?;
        let one = classifies.labels.schema();
        Some(if classifies.takes_texts {
            serde_json::json!({
                "type": "object",
                "required": ["classified_texts"],
                "properties": {"classified_texts": {"type": "array", "items": one}},
            })
        } else {
            one
        })
    }

    /// Returns whether it classifies texts.
    pub(super) fn takes_labelled_texts(&self) -> bool {
        self.classifies.as_ref().is_some_and(|it| it.takes_texts)
    }

    /// Checks texts to classify.
    pub(super) async fn prepare_classification(
        &self,
        given: EmbeddingInput,
        config: Option<&str>,
        caller: AccountId,
    ) -> Result<PreparedClassification, CallError> {
        if !self.takes_labelled_texts() {
            let message = "this service takes pictures: provide one in `image_base64`";
            return Err(Refusal::at("$.texts", message).into());
        }
        let config = config.unwrap_or_default();
        let (embedding, entry) = self.encode_texts(given, config, caller).await?;
        self.with_head(entry, VectorEncoding::Texts(embedding), config)
    }

    /// Checks a picture, either to classify it or for the component that a config names.
    pub(super) fn prepare_picture(
        &self,
        entry: &MethodEntry,
        picture: PreparedTensors,
        config: Option<&str>,
    ) -> Result<PreparedInputs, CallError> {
        let config = config.unwrap_or_default();
        if self.read_config(config)?.0.names_component() {
            return Ok(PreparedInputs::Tensors(picture));
        }
        let classification = self.with_head(entry, VectorEncoding::Picture(picture), config)?;
        Ok(PreparedInputs::Classified(classification))
    }

    /// Returns the head in the same variant as an encoder.
    fn with_head(
        &self,
        encoder: &MethodEntry,
        of: VectorEncoding,
        config: &str,
    ) -> Result<PreparedClassification, CallError> {
        let mut entries = self.variants.entries.iter();
        let head = entries.find(|entry| {
            entry.variant == encoder.variant && entry.component.as_deref() == Some(HEAD)
        });
        let (Some(head), Some(classifies)) = (head, &self.classifies) else {
            let message = "its package lacks a component `head` for this encoder";
            return Err(CallError::NoInstances(message.to_owned()));
        };
        let (_, options) = self.read_config(config)?;
        Ok(PreparedClassification {
            of,
            head: self.endpoint(head, runnable(head)?)?,
            labels: classifies.labels.clone(),
            wish: options.labels,
        })
    }
}

impl PreparedClassification {
    /// Classifies. `timeout` applies to the whole classification.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        let time = TimeLeft::of(timeout);
        let (is_texts, vectors) = match self.of {
            VectorEncoding::Texts(embedding) => {
                (true, embedding.run(caller, timeout).await?.vectors)
            }
            VectorEncoding::Picture(tensors) => {
                (false, vec![tensors.vector(caller, timeout).await?])
            }
        };
        let scores = if vectors.is_empty() {
            Vec::new()
        } else {
            let inputs = vec![head_input(&vectors).map_err(CallError::Failed)?];
            let outputs = time.run(&self.head, caller, inputs).await?;
            outputs.first().map(Tensor::to_f32).unwrap_or_default()
        };
        let answers = self.labels.answers(&scores, vectors.len(), self.wish);
        let classified_texts = answers.ok_or_else(|| {
            let message =
                "the component `head` returned another number of probabilities than it declares";
            CallError::Failed(message.to_owned())
        })?;
        let written = if is_texts {
            serde_json::to_vec(&ClassifiedTexts { classified_texts })
        } else {
            serde_json::to_vec(&classified_texts.first())
        };
        written.map_err(|error| CallError::Failed(error.to_string()))
    }
}
