//! Models beside a decoder that takes embeddings: one converts tokens, another one pictures.
//!
//! Invariant: pictures are decoded in parser processes only.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::rest::step_error;
use crate::account::AccountId;
use crate::service::CallError;
use crate::service::engine::Endpoint;
use crate::service::media::{failed, misfit};
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::MediaKind;
use pkgtool_media::recipe::ModelRecipe;
use pkgtool_media::worker;
use pkgtool_text::chat::ChatPicture;
use pkgtool_text::decoder::{PictureRows, RunsModel, StepResult, TokenEmbedding};

/// The models beside a decoder.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct DecoderCompanions {
    /// Converts tokens, for a decoder that takes embeddings.
    pub(in crate::service) embedding: Option<Arc<Endpoint>>,
    /// Converts pictures.
    pub(in crate::service) pictures: Option<PictureEncoder>,
}

/// A model that converts pictures to rows of embeddings, with its recipe.
#[derive(Debug, Clone)]
pub(in crate::service) struct PictureEncoder {
    /// The model.
    pub(in crate::service) endpoint: Arc<Endpoint>,
    /// The recipe of its inputs.
    pub(in crate::service) recipe: Arc<ModelRecipe>,
}

/// Runs an endpoint from a blocking thread.
#[derive(Debug)]
struct EndpointRuns {
    endpoint: Arc<Endpoint>,
    caller: AccountId,
    runtime: Handle,
}

impl DecoderCompanions {
    /// Returns what converts tokens for a caller.
    pub(super) fn embedding(
        &self,
        caller: AccountId,
        runtime: Handle,
    ) -> Option<(TokenEmbedding, Box<dyn RunsModel>)> {
        let endpoint = self.embedding.as_ref()?;
        let embedding = TokenEmbedding::recognise(endpoint.signature())?;
        let runs: Box<dyn RunsModel> = Box::new(EndpointRuns {
            endpoint: Arc::clone(endpoint),
            caller,
            runtime,
        });
        Some((embedding, runs))
    }

    /// Loads the models and tries them.
    pub(super) async fn warm(&self) -> Result<(), CallError> {
        let pictures = self.pictures.as_ref().map(|it| &it.endpoint);
        for endpoint in self.embedding.iter().chain(pictures) {
            endpoint.warm().await?;
        }
        Ok(())
    }
}

impl PictureEncoder {
    /// Converts a picture at `place` of the request, from a blocking thread.
    pub(super) fn rows(
        &self,
        (picture, place): (&ChatPicture, &str),
        (caller, runtime): (AccountId, &Handle),
        client: &ParserClient,
    ) -> Result<PictureRows, CallError> {
        let recipe = &self.recipe.fitted;
        let prepared = worker::prepare(client, &recipe.preparation, &picture.bytes);
        let prepared = prepared.map_err(|error| failed(error, MediaKind::Picture, place))?;
        let run = self.endpoint.run(caller, prepared.inputs, None);
        let outputs = runtime.block_on(run)?;
        Ok(PictureRows {
            picture: picture.id,
            rows: recipe.rows(&outputs).map_err(|reason| misfit(&reason))?,
        })
    }
}

impl RunsModel for EndpointRuns {
    fn run(&mut self, inputs: Vec<Tensor>) -> StepResult {
        let run = self.endpoint.run(self.caller, inputs, None);
        self.runtime.block_on(run).map_err(step_error)
    }
}
