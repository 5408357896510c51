//! What a config declares of a model: its methods, as the `methods` field of a variant has them.
//!
//! Only what the file says: constant methods are metadata and left out, inputs and outputs that are no
//! tensors cannot be declared, names are an author's to give.

use serde_json::{Map, Value as Json, json};

use super::{ElementType, Method, ModelInfo, TensorInfo, Value};

/// Why a method has no declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undeclarable {
    /// An input or output has a dtype that the format does not list.
    #[error("`{method}` has a tensor of dtype {dtype}, which a config cannot name")]
    DType {
        /// The method.
        method: String,
        /// The dtype, in the file's words.
        dtype: String,
    },
    /// The file does not even say how many dimensions an input or output has.
    #[error("`{method}` has a tensor of which the file does not give the rank")]
    Rank {
        /// The method.
        method: String,
    },
}

/// The `methods` of a model as one object: names in file order, each with `inputs` and `outputs`; empty where
/// the model has no methods that could be called.
///
/// Fails with the first method that a config cannot describe: a signature with a gap would be wrong.
pub fn methods(info: &ModelInfo) -> Result<Map<String, Json>, Undeclarable> {
    let callable = info.methods.iter().filter(|method| !method.constant);
    callable
        .map(|method| Ok((method.name.clone(), signature(method)?)))
        .collect()
}

/// One method's signature, as a config declares it.
pub fn signature(method: &Method) -> Result<Json, Undeclarable> {
    let tensors = |values: &[Value]| {
        let tensors = values.iter().filter_map(Value::tensor);
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
