//! Packages that classify in two steps: a component `encoder` makes a vector of a text or a picture, a component
//! `head` probabilities of labels of it.
//!
//! Invariant: labels are as many as the head's probabilities, and answers have them in the order of their
//! scores; of equal ones the first of the file goes first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use serde_json::value::RawValue;

use super::super::engine::Endpoint;
use super::super::{CallError, PackageConfig, Refusal};
use super::variants::{Entry, HEAD, Variants, is_encoder};
use super::{Device, Embedding, Prepared, PreparedTensors, runnable};
use crate::account::AccountId;
use crate::model::Dim;
use crate::source;
use crate::tensor::{DType, Signature, Tensor};
use crate::text::embedding::Given;

/// The key of a predict config for the most labels of an answer.
pub(super) const MOST: &str = "top_k";

/// Keys for texts, beside it.
pub(super) const OF_TEXTS: [&str; 2] = ["truncate", "max_length"];

/// The file with the labels, beside the package's configs or in the directory above.
pub const LABELS_FILE: &str = "labels.json";

/// Longest such file, in bytes.
const LONGEST: u64 = 1 << 20;

/// What a package classifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Classifies {
    /// The labels, in the order of the head's probabilities.
    pub(super) labels: Arc<[String]>,
    /// Whether texts are given to it, and not pictures.
    pub(super) takes_texts: bool,
}

/// Texts or a picture that were checked, and what classifies them.
#[derive(Debug)]
pub struct PreparedClassification {
    of: Encoding,
    head: Arc<Endpoint>,
    labels: Arc<[String]>,
    /// Most labels of each answer.
    most: Option<usize>,
}

/// What makes the vectors.
#[derive(Debug)]
enum Encoding {
    Texts(Embedding),
    Picture(PreparedTensors),
}

/// A label and how likely it is.
#[derive(Debug, Serialize)]
struct Scored<'l> {
    label: &'l str,
    score: f32,
    index: usize,
}

/// The labels of one text or picture.
#[derive(Debug, Serialize)]
struct Classified<'l> {
    labels: Vec<Scored<'l>>,
}

#[derive(Debug, Serialize)]
struct ClassifiedTexts<'l> {
    classified_texts: Vec<Classified<'l>>,
}

impl Classifies {
    /// What a package classifies; nothing if it has no labels, or no encoder and head that go together.
    pub(super) fn of(
        configs: &[PackageConfig],
        variants: &Variants,
    ) -> Result<Option<Self>, String> {
        let entries = &variants.entries;
        let gives_vectors = |entry: &&Entry| entry.embeds() || entry.embeds_pictures();
        let is_meant = |entry: &&Entry| {
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
        let Some((path, labels)) = labels(configs)? else {
            return Ok(None);
        };
        if labels.len() as u64 != outputs || heads.any(|other| other != outputs) {
            return Err(format!(
                "{}: has {} labels, and the component `{HEAD}` gives {outputs} probabilities; write one \
                 label for each",
                path.display(),
                labels.len(),
            ));
        }
        Ok(Some(Self {
            labels: labels.into(),
            takes_texts: encoder.embeds(),
        }))
    }
}

/// How many probabilities a head gives: it takes any number of vectors and nothing else.
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

/// The first file of labels beside the configs, and what it says.
fn labels(configs: &[PackageConfig]) -> Result<Option<(PathBuf, Vec<String>)>, String> {
    let places = configs.iter().flat_map(|package| {
        let directory = package.path.parent().unwrap_or(Path::new(""));
        [Some(directory), directory.parent()]
    });
    let mut paths = places
        .flatten()
        .map(|directory| directory.join(LABELS_FILE));
    let Some(path) = paths.find(|path| path.is_file()) else {
        return Ok(None);
    };
    let fault = |reason: String| format!("{}: {reason}", path.display());
    let text = source::read_text(&path, LONGEST).map_err(|error| fault(error.to_string()))?;
    let labels: Vec<String> = serde_json::from_str(&text)
        .map_err(|error| fault(format!("a JSON array of labels belongs here: {error}")))?;
    Ok(Some((path, labels)))
}

/// The most labels of an answer, as a config says it.
pub(super) fn most(value: &RawValue) -> Result<Option<usize>, Refusal> {
    let number = serde_json::from_str::<Option<usize>>(value.get()).ok();
    let number = number.filter(|number| *number != Some(0));
    number.ok_or_else(|| {
        let shown = super::super::json::shown(value.get());
        let message = format!("a whole number above 0 belongs here, not {shown}");
        Refusal::at(format!("$.config.{MOST}"), message)
    })
}

impl Device {
    /// Whether texts are given to it for their labels.
    pub(super) fn takes_labelled_texts(&self) -> bool {
        self.classifies.as_ref().is_some_and(|it| it.takes_texts)
    }

    /// Checks texts whose labels are asked for.
    pub(super) async fn prepare_classification(
        &self,
        given: Given,
        config: Option<&str>,
        caller: AccountId,
    ) -> Result<PreparedClassification, CallError> {
        if !self.takes_labelled_texts() {
            let message = "this service takes pictures: give one in `image_base64`";
            return Err(Refusal::at("$.texts", message).into());
        }
        let config = config.unwrap_or_default();
        let (embedding, entry) = self.encode_texts(given, config, caller).await?;
        self.with_head(entry, Encoding::Texts(embedding), config)
    }

    /// A picture that was checked: for its labels, or for what the component that a config names gives.
    pub(super) fn prepare_picture(
        &self,
        entry: &Entry,
        picture: PreparedTensors,
        config: Option<&str>,
    ) -> Result<Prepared, CallError> {
        let config = config.unwrap_or_default();
        if self.read_config(config)?.0.names_component() {
            return Ok(Prepared::Tensors(picture));
        }
        let classification = self.with_head(entry, Encoding::Picture(picture), config)?;
        Ok(Prepared::Classified(classification))
    }

    /// The head that stands in the same variant as an encoder.
    fn with_head(
        &self,
        encoder: &Entry,
        of: Encoding,
        config: &str,
    ) -> Result<PreparedClassification, CallError> {
        let mut entries = self.variants.entries.iter();
        let head = entries.find(|entry| {
            entry.variant == encoder.variant && entry.component.as_deref() == Some(HEAD)
        });
        let (Some(head), Some(classifies)) = (head, &self.classifies) else {
            let message = "its package has no component `head` beside this encoder";
            return Err(CallError::NoInstances(message.to_owned()));
        };
        Ok(PreparedClassification {
            of,
            head: self.endpoint(head, runnable(head)?)?,
            labels: Arc::clone(&classifies.labels),
            most: self.read_config(config)?.1.most,
        })
    }
}

impl PreparedClassification {
    /// Classifies. `timeout` is for all of it together.
    pub(super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        let began = std::time::Instant::now();
        let (is_texts, vectors) = match self.of {
            Encoding::Texts(embedding) => (true, embedding.run(caller, timeout).await?.vectors),
            Encoding::Picture(tensors) => (false, vec![tensors.vector(caller, timeout).await?]),
        };
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let scores = if vectors.is_empty() {
            Vec::new()
        } else {
            let outputs = self.head.run(caller, vec![rows(&vectors)?], left);
            let outputs = outputs.await.map_err(|error| match (error, timeout) {
                (CallError::Timeout { .. }, Some(after)) => CallError::Timeout { after },
                (error, _) => error,
            })?;
            outputs.first().map(Tensor::to_f32).unwrap_or_default()
        };
        if scores.len() != vectors.len() * self.labels.len() {
            let message = "the component `head` gave another number of probabilities than it says";
            return Err(CallError::Failed(message.to_owned()));
        }
        let mut classified = scores
            .chunks_exact(self.labels.len().max(1))
            .map(|scores| classified(scores, &self.labels, self.most));
        let written = if is_texts {
            let classified_texts = classified.collect();
            serde_json::to_vec(&ClassifiedTexts { classified_texts })
        } else {
            serde_json::to_vec(&classified.next())
        };
        written.map_err(|error| CallError::Failed(error.to_string()))
    }
}

/// Vectors as one tensor.
fn rows(vectors: &[Vec<f32>]) -> Result<Tensor, CallError> {
    let width = vectors.first().map_or(0, Vec::len);
    let bytes = vectors.iter().flatten().flat_map(|it| it.to_le_bytes());
    let shape = vec![vectors.len() as u64, width as u64];
    let tensor = Tensor::new(DType::Float32, shape, bytes.collect());
    tensor.map_err(|error| CallError::Failed(format!("vectors of several lengths: {error}")))
}

fn classified<'l>(scores: &[f32], labels: &'l [String], most: Option<usize>) -> Classified<'l> {
    let pairs = labels.iter().zip(scores).enumerate();
    let pairs = pairs.map(|(index, (label, score))| Scored {
        label,
        score: *score,
        index,
    });
    let mut labels: Vec<Scored<'_>> = pairs.collect();
    // It is stable: of equal scores the first goes first.
    labels.sort_by(|a, b| b.score.total_cmp(&a.score));
    labels.truncate(most.unwrap_or(usize::MAX));
    Classified { labels }
}
