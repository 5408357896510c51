//! What requests to a method may have in them, for those who describe it.
//!
//! Invariant: what it says is accepted is not refused when a request is checked.

use super::super::engine::EndpointModel;
use super::embedding::{TakesTexts, TextFiles};
use crate::tensor::DType;
use crate::tensor::input::{self, Extent};

/// What a method takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takes {
    /// Its inputs, in order.
    pub inputs: Vec<TakesInput>,
    /// Texts in place of tensors, where they may be given.
    pub texts: Option<TakesTexts>,
}

/// What an input takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakesInput {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; `None` where the model does not give the rank.
    pub extents: Option<Vec<Extent>>,
    /// The only value that it may have, as JSON.
    pub fixed: Option<String>,
    /// Its elements are indices into so many rows.
    pub rows: Option<u64>,
}

impl Takes {
    pub(super) fn of(model: &EndpointModel, text: Option<&TextFiles>) -> Self {
        let signature = &model.signature;
        let rows = input::table_rows(&model.model, model.format, signature);
        let extents = input::extents(signature);
        let inputs = signature.inputs.iter().zip(extents).zip(rows);
        let inputs = inputs.map(|((spec, extents), rows)| TakesInput {
            name: spec.name.clone(),
            dtype: spec.dtype,
            extents,
            fixed: spec.fixed.clone(),
            rows,
        });
        let text = text.filter(|text| text.embeds(signature));
        Self {
            inputs: inputs.collect(),
            texts: text.and_then(|text| text.takes(model)),
        }
    }
}
