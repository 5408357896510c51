//! Decodes the inputs in a request's body.
//!
//! Invariant: a connection's thread decodes only small bodies and never pictures.

use bytes::Bytes;

use super::super::away::{is_small, with_parsers};
use super::super::engine::EndpointModel;
use super::super::tensors::{self, Decoded};
use super::super::{CallError, Request};
use super::variants::MethodEntry;
use super::{Device, PreparedTensors};
use crate::account::AccountId;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::MediaKind;

impl Device {
    /// Decodes a request for a model; a picture stays encoded.
    pub(super) async fn decoded(
        &self,
        request: &Request,
        model: &EndpointModel,
    ) -> Result<Decoded, CallError> {
        let pictures = self.description.takes == Some(MediaKind::Picture);
        if is_small(&request.body) {
            return Ok(tensors::decode(&request.body, &model.signature, pictures)?);
        }
        let signature = model.signature.clone();
        let decode = move |body: &Bytes| tensors::decode(body, &signature, pictures);
        Ok(self.parts.engines.decoding().of(request, decode).await??)
    }

    /// Returns the decoded inputs with the endpoint that runs them.
    pub(super) async fn with_endpoint(
        &self,
        (entry, model): (&MethodEntry, &EndpointModel),
        decoded: Decoded,
        caller: AccountId,
    ) -> Result<PreparedTensors, CallError> {
        let picture = decoded.picture.as_ref();
        Ok(PreparedTensors {
            endpoint: self.endpoint(entry, model)?,
            picture: picture.map(|picture| picture.place().to_owned()),
            encoding: decoded.encoding,
            inputs: self.inputs(decoded, caller).await?,
        })
    }

    /// Returns the inputs of a decoded request. A parser process decodes a picture.
    async fn inputs(&self, decoded: Decoded, caller: AccountId) -> Result<Vec<Tensor>, CallError> {
        let Some(picture) = decoded.picture else {
            return Ok(decoded.inputs);
        };
        let client = self.parts.engines.parsers(caller);
        let tensor = with_parsers(client, |client| picture.tensor(client)).await?;
        Ok(vec![tensor?])
    }
}
