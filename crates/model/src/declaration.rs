//! The `methods` declaration of a config, generated from a model file.
//!
//! Only facts of the file are used. Constant methods hold metadata and are omitted. Inputs and
//! outputs that are not tensors cannot be declared. Names of inputs and outputs are left to the
//! author of the config.

use serde_json::{Map, Value as Json, json};

use super::{ElementType, Method, ModelInfo, ModelValue, TensorInfo};

/// Why a method cannot be declared in a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undeclarable {
    /// An input or output has a dtype that the config format does not list.
    #[error("`{method}` has a tensor of dtype {dtype}, which a config cannot express")]
    DType {
        /// The method.
        method: String,
        /// The dtype, as the model file names it.
        dtype: String,
    },
    /// The model file does not record the rank of an input or output.
    #[error("`{method}` has a tensor of unknown rank")]
    Rank {
        /// The method.
        method: String,
    },
}

/// Returns the `methods` object of a model: method names in file order, each with `inputs` and
/// `outputs`. The object is empty if the model has no callable methods.
///
/// Fails with the first method that a config cannot describe, because a signature with a gap would
/// be wrong.
pub fn methods(info: &ModelInfo) -> Result<Map<String, Json>, Undeclarable> {
    let callable = info.methods.iter().filter(|method| !method.constant);
    callable
        .map(|method| Ok((method.name.clone(), signature(method)?)))
        .collect()
}

/// Returns the signature of one method in the form of a config.
pub fn signature(method: &Method) -> Result<Json, Undeclarable> {
    let tensors = |values: &[ModelValue]| {
        let tensors = values.iter().filter_map(ModelValue::tensor);
        tensors
            .map(|info| tensor(method, info))
            .collect::<Result<Vec<Json>, _>>()
    };
    Ok(json!({ "inputs": tensors(&method.inputs)?, "outputs": tensors(&method.outputs)? }))
}

fn tensor(method: &Method, info: &TensorInfo) -> Result<Json, Undeclarable> {
    let shape = info.config_shape().ok_or_else(|| Undeclarable::Rank {
        method: method.name.clone(),
    })?;
    let ElementType::Known(dtype) = &info.element else {
        return Err(Undeclarable::DType {
            method: method.name.clone(),
            dtype: info.element.name().to_owned(),
        });
    };
    Ok(json!({ "shape": shape, "dtype": dtype.name() }))
}
