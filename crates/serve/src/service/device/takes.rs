//! Describes the inputs that requests to a method may contain, for API documentation.
//!
//! Invariant: inputs that it describes as valid are accepted when a request is checked.

use super::super::engine::EndpointModel;
use super::embedding::{TextFiles, TextLimits};
use pkgtool_engine::tensor::DType;
use pkgtool_engine::tensor::input::{self, Extent};

/// Inputs of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodTakes {
    /// Its inputs, in order.
    pub inputs: Vec<InputDescription>,
    /// Texts instead of tensors, if supported.
    pub texts: Option<TextLimits>,
}

/// An input of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputDescription {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; `None` if the model does not declare the rank.
    pub extents: Option<Vec<Extent>>,
    /// The only allowed value, as JSON.
    pub fixed: Option<String>,
    /// Number of rows that its elements are indices into.
    pub rows: Option<u64>,
}

impl MethodTakes {
    pub(super) fn of(model: &EndpointModel, text: Option<&TextFiles>) -> Self {
        let signature = &model.signature;
        let rows = input::table_rows(&model.model, model.format, signature);
        let extents = input::extents(signature);
        let inputs = signature.inputs.iter().zip(extents).zip(rows);
        let inputs = inputs.map(|((spec, extents), rows)| InputDescription {
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
