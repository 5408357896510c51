//! Method signatures in a common form, from a config's declaration or from a model file.

use std::fmt;

use super::size::{DimensionSize, DynamicRange};
use pkgtool_base::package::{DeclaredTensor, MethodSignature};
use pkgtool_model::{Dynamism, Method, ModelValue, TensorInfo};

/// The signature of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeclaredSignature {
    pub(super) name: String,
    pub(super) inputs: Vec<Spec>,
    pub(super) outputs: Vec<Spec>,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: Option<String>,
    pub(super) what: SpecType,
}

/// The type of an input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpecType {
    /// A tensor, as far as it is known.
    Tensor {
        dtype: Option<String>,
        dims: Option<Vec<DimensionSize>>,
    },
    /// Another kind of value, by the name of its kind.
    Other(String),
}

impl DeclaredSignature {
    /// Converts a declared method; an invalid list of tensors counts as empty.
    pub(super) fn declared(method: &MethodSignature) -> Self {
        let specs = |tensors: &Option<Vec<DeclaredTensor>>| {
            let tensors = tensors.iter().flatten();
            tensors.map(Spec::declared).collect()
        };
        Self {
            name: method.name.clone(),
            inputs: specs(&method.inputs),
            outputs: specs(&method.outputs),
        }
    }

    /// Converts a method of a model file.
    pub(super) fn of_model(method: &Method) -> Self {
        let specs = |values: &[ModelValue]| values.iter().map(Spec::of_model).collect();
        Self {
            name: method.name.clone(),
            inputs: specs(&method.inputs),
            outputs: specs(&method.outputs),
        }
    }

    /// Returns the signature without values that a config cannot declare.
    pub(super) fn declarable(mut self) -> Self {
        let is_tensor = |spec: &Spec| matches!(spec.what, SpecType::Tensor { .. });
        self.inputs.retain(is_tensor);
        self.outputs.retain(is_tensor);
        self
    }
}

impl Spec {
    fn declared(tensor: &DeclaredTensor) -> Self {
        let dims = tensor.shape.as_ref().and_then(|shape| {
            let sizes = shape.iter().map(|size| DimensionSize::declared(*size));
            sizes.collect::<Option<Vec<DimensionSize>>>()
        });
        Self {
            name: tensor.name.clone(),
            what: SpecType::Tensor {
                dtype: tensor.dtype.map(|dtype| dtype.name().to_owned()),
                dims,
            },
        }
    }

    fn of_model(value: &ModelValue) -> Self {
        let what = match value.tensor() {
            Some(info) => SpecType::Tensor {
                dtype: Some(info.element.name().to_owned()),
                dims: dims(info),
            },
            None => SpecType::Other(value.kind.name().to_owned()),
        };
        Self {
            name: value.name.clone(),
            what,
        }
    }
}

fn dims(info: &TensorInfo) -> Option<Vec<DimensionSize>> {
    let dims = info.dims.as_ref()?;
    // For an unbounded tensor only the rank is reliable.
    let size = |dim| match info.dynamism {
        Dynamism::Unbounded => DimensionSize::Dynamic(DynamicRange::Unknown),
        _ => DimensionSize::of_model(dim),
    };
    Some(dims.iter().map(size).collect())
}

/// Formats like `(float32[1, 3], int) → (float32[-1])`.
impl fmt::Display for DeclaredSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |specs: &[Spec]| {
            let texts: Vec<String> = specs.iter().map(|spec| spec.what.to_string()).collect();
            texts.join(", ")
        };
        write!(f, "({}) → ({})", side(&self.inputs), side(&self.outputs))
    }
}

/// Formats like `float32[1, -1]`.
impl fmt::Display for SpecType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor { dtype, dims } => {
                let dtype = dtype.as_deref().unwrap_or("tensor");
                match dims {
                    Some(dims) => {
                        let dims: Vec<String> = dims.iter().map(DimensionSize::to_string).collect();
                        write!(f, "{dtype}[{}]", dims.join(", "))
                    }
                    None => write!(f, "{dtype} of unknown rank"),
                }
            }
            Self::Other(kind) => f.write_str(kind),
        }
    }
}
