//! The signature of a method for a run: names, dtypes and dimensions of its inputs and outputs.
//!
//! It comes from the model file; a config adds names that the file lacks, and decides sizes that it leaves open. Numbers
//! that a program takes besides tensors count as tensors without dimensions. Invariant: every value is a tensor of a
//! supported dtype.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::DType;
use pkgtool_base::package::{DeclaredTensor, MethodSignature};
use pkgtool_model::{Dim, ElementType, Method, ModelValue, PixelColours, TensorInfo, ValueKind};

/// Inputs and outputs of one method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The method's name.
    pub method: String,
    /// Inputs in calling order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in order.
    pub outputs: Vec<TensorSpec>,
}

/// One input or output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name: from the file, or else from the config, or else `input_0`, `output_0`, ….
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first; `None` if the file does not state the rank.
    pub dims: Option<Vec<Dim>>,
    /// Its only possible value, as JSON: a number that is fixed in the exported model.
    #[serde(default)]
    pub fixed: Option<String>,
    /// The colours of a picture with values of 0 to 255, if the model describes the input as one.
    #[serde(default)]
    pub pixels: Option<PixelColours>,
}

/// `float32[1, -1 (up to 16)]`: dtype and shape.
impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = &self.dims else {
            return write!(f, "{} of any rank", self.dtype);
        };
        let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(", "))
    }
}

/// A method with inputs or outputs that are not supported tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{side} {index} of `{method}` is {found}; only tensors of numbers and booleans are supported"
)]
pub struct SignatureError {
    /// The method.
    pub method: String,
    /// `input` or `output`.
    pub side: &'static str,
    /// Its index, from 0.
    pub index: usize,
    /// Its actual type.
    pub found: String,
}

impl Signature {
    /// Reads the signature of a model's method. Missing names, and sizes that the file leaves undecided, are taken from
    /// `declared`, if the number of values matches.
    pub fn of(method: &Method, declared: Option<&MethodSignature>) -> Result<Self, SignatureError> {
        let specs =
            |side: &'static str, values: &[ModelValue], declared: Option<&Vec<DeclaredTensor>>| {
                let declared = declared.filter(|declared| declared.len() == values.len());
                // Values without a type (`None` arguments) are skipped, and labels, which follow from probabilities.
                let is_skipped = |value: &ModelValue| {
                    matches!(value.kind, ValueKind::None | ValueKind::ClassLabel(_))
                };
                let values = values.iter().enumerate();
                values
                    .filter(|(_, value)| !is_skipped(value))
                    .map(|(index, value)| {
                        let declared = declared.map(|declared| &declared[index]);
                        spec(value, side, index, declared).ok_or_else(|| SignatureError {
                            method: method.name.clone(),
                            side,
                            index,
                            found: match value.tensor() {
                                Some(info) => format!("a tensor of dtype {}", info.element.name()),
                                None => format!("of kind {}", value.kind.name()),
                            },
                        })
                    })
                    .collect::<Result<Vec<_>, _>>()
            };
        let inputs = declared.and_then(|declared| declared.inputs.as_ref());
        let outputs = declared.and_then(|declared| declared.outputs.as_ref());
        Ok(Self {
            method: method.name.clone(),
            inputs: specs("input", &method.inputs, inputs)?,
            outputs: specs("output", &method.outputs, outputs)?,
        })
    }
}

fn spec(
    value: &ModelValue,
    side: &str,
    index: usize,
    declared: Option<&DeclaredTensor>,
) -> Option<TensorSpec> {
    let named = value.name.clone().filter(|name| !name.is_empty());
    let name = named
        .or_else(|| declared.and_then(|declared| declared.name.clone()))
        .unwrap_or_else(|| format!("{side}_{index}"));
    let number = |dtype, value: &dyn ToString| TensorSpec {
        name: name.clone(),
        dtype,
        dims: Some(Vec::new()),
        fixed: (side == "input").then(|| value.to_string()),
        pixels: None,
    };
    match &value.kind {
        ValueKind::Int(value) => Some(number(DType::Int64, value)),
        ValueKind::Double(value) => Some(number(DType::Float64, value)),
        ValueKind::Bool(value) => Some(number(DType::Bool, value)),
        ValueKind::ClassScores { count, .. } => Some(TensorSpec {
            name,
            dtype: DType::Float32,
            dims: Some(vec![Dim::Fixed(1), Dim::Fixed(*count)]),
            fixed: None,
            pixels: None,
        }),
        ValueKind::Tensor {
            info:
                TensorInfo {
                    element: ElementType::Pixels(picture),
                    ..
                },
            ..
        } => {
            let channels = picture.colours.channels();
            let dims = [1, channels, picture.height, picture.width];
            Some(TensorSpec {
                name,
                dtype: picture.dtype,
                dims: Some(dims.map(Dim::Fixed).to_vec()),
                fixed: None,
                pixels: Some(picture.colours),
            })
        }
        _ => {
            let info = value.tensor()?;
            Some(TensorSpec {
                dtype: info.element.dtype()?,
                dims: info.dims.as_ref().map(|dims| decided(dims, declared)),
                fixed: None,
                pixels: None,
                name,
            })
        }
    }
}

/// Decides dimensions that the file leaves undecided, by a declared shape that fits.
fn decided(dims: &[Dim], declared: Option<&DeclaredTensor>) -> Vec<Dim> {
    let shape = declared.and_then(|declared| declared.shape.as_deref());
    let Some(shape) = shape.filter(|shape| shape.len() == dims.len()) else {
        return dims.to_vec();
    };
    let dims = dims.iter().zip(shape).map(|(dim, size)| match dim {
        Dim::Maybe { bound, .. } if u64::try_from(*size) == Ok(*bound) => Dim::Fixed(*bound),
        Dim::Maybe { bound, .. } if *size == -1 => Dim::Dynamic {
            bound: Some(*bound),
            name: None,
            allowed: None,
        },
        other => other.clone(),
    });
    dims.collect()
}
