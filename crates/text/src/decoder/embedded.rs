//! Steps of decoders that take embeddings: tokens are converted by a model of their own, and pictures have rows of
//! embeddings already.
//!
//! Invariant: a step has one row of embeddings for each token or place that it feeds.

use std::fmt::Debug;

use super::error::DecodeError;
use super::recognise::DecoderModel;
use super::roles::{self, TokenCount};
use super::shape::StepTokens;
use super::steps::{StepError, StepResult, Steps};
use crate::slot::{PictureId, is_slot};
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::{DType, Signature, Tensor};

/// Maximum number of tokens that one run converts.
const MAX_TOKENS_PER_RUN: usize = 512;

/// A method that converts tokens to embeddings: int64[1, n] -> float32[1, n, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEmbedding {
    dtype: DType,
    length: TokenCount,
    /// Size of an embedding.
    pub width: usize,
}

/// The methods of a decoder that takes embeddings, by their places among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedParts {
    /// The decoder.
    pub decoder: usize,
    /// The method that converts tokens.
    pub embedding: usize,
}

impl EmbeddedParts {
    /// Finds these methods; `None` without such a decoder.
    pub fn find(signatures: &[Option<&Signature>]) -> Option<Self> {
        let known = || signatures.iter().enumerate();
        known().find_map(|(embedding, signature)| {
            let width = TokenEmbedding::recognise((*signature)?)?.width;
            let takes = |signature: &Signature| {
                let mut inputs = signature.inputs.iter();
                inputs.any(|input| roles::embedding_width(input) == Some(width))
            };
            let decoder = known().find(|(_, signature)| signature.is_some_and(takes));
            decoder.map(|(decoder, _)| Self { decoder, embedding })
        })
    }
}

/// Runs a model whose runs keep nothing.
pub trait RunsModel: Debug + Send {
    /// Runs it.
    fn run(&mut self, inputs: Vec<Tensor>) -> StepResult;
}

/// The embeddings of a picture.
#[derive(Debug, Clone)]
pub struct PictureRows {
    /// The picture.
    pub picture: PictureId,
    /// A row for each of its places.
    pub rows: Vec<Vec<f32>>,
}

/// Runs the steps of any decoder; converts tokens first if it takes embeddings.
#[derive(Debug)]
pub struct EmbeddedSteps<S> {
    steps: S,
    embedding: Option<(TokenEmbedding, Box<dyn RunsModel>)>,
    pictures: Vec<PictureRows>,
}

impl TokenEmbedding {
    /// Recognises such a method; `None` if it is of another kind.
    pub fn recognise(signature: &Signature) -> Option<Self> {
        let ([tokens], [embeddings]) = (&signature.inputs[..], &signature.outputs[..]) else {
            return None;
        };
        let dims = tokens.dims.as_deref()?;
        let [batch, length] = dims else { return None };
        let takes_tokens = roles::is_integer(tokens.dtype) && roles::accepts_size(batch, 1);
        Some(Self {
            dtype: tokens.dtype,
            length: TokenCount::of(length),
            width: roles::embedding_width(embeddings).filter(|_| takes_tokens)?,
        })
    }

    /// Returns the inputs that convert one token, for a first run.
    pub fn first_inputs(&self) -> Vec<Tensor> {
        self.inputs(&[0]).into_iter().collect()
    }

    /// Returns the maximum number of tokens of a run.
    fn most(&self) -> usize {
        let (TokenCount::Fixed(most) | TokenCount::Open(Some(most))) = self.length else {
            return MAX_TOKENS_PER_RUN;
        };
        most.clamp(1, MAX_TOKENS_PER_RUN)
    }

    fn inputs(&self, tokens: &[u32]) -> Result<Tensor, StepError> {
        let length = match self.length {
            TokenCount::Fixed(length) => length.max(tokens.len()),
            TokenCount::Open(_) => tokens.len(),
        };
        // Missing tokens are 0.
        let ids = tokens.iter().map(|token| f64::from(*token));
        let tensor = Tensor::from_f64(self.dtype, vec![1, length as u64], ids);
        tensor.map_err(StepError::failed)
    }

    /// Converts tokens to rows.
    fn rows(&self, tokens: &[u32], model: &mut dyn RunsModel) -> Result<Vec<f32>, StepError> {
        let mut rows = Vec::with_capacity(tokens.len() * self.width);
        for tokens in tokens.chunks(self.most()) {
            let outputs = model.run(vec![self.inputs(tokens)?])?;
            let values = outputs.first().map(Tensor::to_f32).unwrap_or_default();
            let wanted = values.get(..tokens.len() * self.width);
            rows.extend_from_slice(wanted.ok_or_else(|| {
                let reason = format!(
                    "the model returned embeddings {:?}: expected {} rows of {}",
                    outputs.first(),
                    tokens.len(),
                    self.width
                );
                StepError::failed(DecodeError::Model(reason))
            })?);
        }
        Ok(rows)
    }
}

impl<S: Steps> EmbeddedSteps<S> {
    /// Creates the steps of a decoder; `embedding` converts tokens, if the decoder takes embeddings.
    pub fn new(steps: S, embedding: Option<(TokenEmbedding, Box<dyn RunsModel>)>) -> Self {
        Self {
            steps,
            embedding,
            pictures: Vec::new(),
        }
    }

    /// Returns the steps of the decoder itself.
    pub fn inner(&mut self) -> &mut S {
        &mut self.steps
    }

    /// Returns the embeddings of a picture that it has.
    pub fn picture(&self, picture: PictureId) -> Option<&PictureRows> {
        self.pictures.iter().find(|it| it.picture == picture)
    }

    /// Replaces its pictures by those of the next prompt.
    pub fn set_pictures(&mut self, pictures: Vec<PictureRows>) {
        self.pictures = pictures;
    }

    /// Returns the embeddings of tokens and places.
    fn embeddings(&mut self, fed: &[u32], vocabulary: usize) -> Result<Option<Tensor>, StepError> {
        let Some((embedding, model)) = &mut self.embedding else {
            return Ok(None);
        };
        let tokens: Vec<u32> = fed.iter().copied().filter(|id| !is_slot(*id)).collect();
        let texts = embedding.rows(&tokens, &mut **model)?;
        let mut texts = texts.chunks_exact(embedding.width.max(1));
        let mut rows: Vec<f32> = Vec::with_capacity(fed.len() * embedding.width);
        for id in fed {
            let row = if is_slot(*id) {
                let mut known = self.pictures.iter();
                known.find_map(|it| Some(&*it.rows[it.picture.row(*id, it.rows.len())?]))
            } else {
                texts.next()
            };
            let row = row.filter(|row| row.len() == embedding.width);
            rows.extend(row.ok_or_else(|| {
                let token = *id;
                StepError::failed(DecodeError::Token { token, vocabulary })
            })?);
        }
        let shape = vec![1, fed.len() as u64, embedding.width as u64];
        let rows = Tensor::new(DType::Float32, shape, bytemuck::pod_collect_to_vec(&rows));
        rows.map(Some).map_err(StepError::failed)
    }
}

impl<S: Steps> Steps for EmbeddedSteps<S> {
    fn step(&mut self, model: &DecoderModel, begins: RunStart, fed: StepTokens<'_>) -> StepResult {
        let embeddings = self.embeddings(fed.tokens, model.vocabulary)?;
        let fed = StepTokens {
            embeddings: embeddings.as_ref(),
            ..fed
        };
        self.steps.step(model, begins, fed)
    }
}
