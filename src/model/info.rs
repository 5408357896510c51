//! The format-neutral description of a model file: methods, their values, where the bytes are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Allowed;
use crate::package::DType;

/// What a model file says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelInfo {
    /// Name of the format, as in [`super::ModelFormat::name`].
    pub format: &'static str,
    /// The format that the file's name says, if it is another one.
    pub named_as: Option<&'static str>,
    /// Version of the format, in its own words (`ET12`, `IR 10, opset 18`).
    pub format_version: String,
    /// The program that wrote the file, where the file names one.
    pub producer: Option<String>,
    /// Whether the file itself names its methods. An ONNX file does not: its one graph stands for
    /// `forward` or for whatever single method a config declares.
    pub names_methods: bool,
    /// Methods in file order; names are unique.
    pub methods: Vec<Method>,
    /// Contiguous areas of the file outside the header, in file order.
    pub segments: Vec<Segment>,
    /// Bytes of weights inside the file.
    pub weight_bytes: u64,
    /// Elements of stored tensors by the name of their type, where the format tells without a look at
    /// the tensors' use; empty where it does not.
    pub weight_types: BTreeMap<String, u64>,
    /// Data this model needs from other files.
    pub external: Vec<ExternalData>,
    /// What a data file holds for models, in file order; empty for models.
    pub named: Vec<NamedData>,
    /// Anything else worth showing, in order (`domain`, `opset ai.onnx`, …).
    pub metadata: Vec<(String, String)>,
}

/// One entry point of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Inputs in calling order.
    pub inputs: Vec<Value>,
    /// Positions of inputs that a caller may leave out.
    pub optional: BTreeSet<usize>,
    /// Outputs in order.
    pub outputs: Vec<Value>,
    /// A method without inputs and instructions, whose outputs are stored in the file: metadata.
    pub constant: bool,
    /// Delegates in file order, one entry a delegated partition.
    pub delegates: Vec<Delegate>,
    /// Operators outside delegates and how often each is called.
    pub operators: BTreeMap<String, u64>,
}

/// A part of a method handed to a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate {
    /// The backend's registered name, such as `XnnpackBackend`.
    pub id: String,
    /// Size of its payload in bytes, where the file says.
    pub payload_bytes: Option<u64>,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Its name, where the file keeps one.
    pub name: Option<String>,
    /// What it is.
    pub kind: ValueKind,
}

/// What an input or output is. Stored values (constants of constant methods, scalars specialised
/// at export) come with it.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// A tensor; for a small constant also its elements in row-major order.
    Tensor {
        /// dtype and shape.
        info: TensorInfo,
        /// Elements of a small constant, row major.
        data: Option<Vec<serde_json::Value>>,
    },
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// A string, cut if it is very long.
    String(String),
    /// Absent.
    None,
    /// Anything else, by its kind: `int_list`, `tensor_list`, `sequence`, `map`, …
    Other(String),
}

/// dtype and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub element: ElementType,
    /// Dimensions, outermost first; `None` where the file does not even give the rank.
    pub dims: Option<Vec<Dim>>,
    /// What the file says of the tensor as a whole.
    pub dynamism: Dynamism,
}

/// What a file says of the dynamism of a whole tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamism {
    /// All sizes are fixed.
    Static,
    /// At least one dimension is dynamic; the stored sizes are upper bounds.
    Bounded,
    /// Each dimension says for itself whether it is dynamic; none states a bound.
    Symbolic,
    /// Only rank and dtype hold.
    Unbounded,
}

/// One dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this size.
    Fixed(u64),
    /// Certainly dynamic.
    Dynamic {
        /// Largest size, where the file states one.
        bound: Option<u64>,
        /// The dimension's symbol, where the file has one.
        name: Option<String>,
        /// Its sizes, where the file declares more than a bound.
        #[serde(default)]
        allowed: Option<Allowed>,
    },
    /// One of the dimensions of a bounded tensor of which the file does not tell which are dynamic.
    Maybe {
        /// Largest size.
        bound: u64,
        /// The reader's best reading: dynamic or not.
        likely_dynamic: bool,
    },
}

/// Element type of a tensor in a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementType {
    /// One that a config can express.
    Known(DType),
    /// One that it cannot, by its name (`uint16`, `qint8`, `string`, …).
    Other(String),
}

/// An area of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// What it holds, in one or two words.
    pub name: String,
    /// File offset of its first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Data outside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalData {
    /// Path as the file writes it, relative to the file's directory; `None` where the format names
    /// only the tensors (ExecuTorch's `.ptd`).
    pub location: Option<String>,
    /// Bytes of that other file that are needed: the largest offset plus length.
    pub needs_bytes: Option<u64>,
    /// How many tensors are there; none where it is a graph that was compiled before.
    pub tensors: u64,
    /// These tensors, where the format says them by name.
    pub named: Vec<NamedData>,
}

/// Bytes with a name, in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedData {
    /// The name.
    pub name: String,
    /// What they are, where they are a tensor.
    pub tensor: Option<TensorInfo>,
}

impl ElementType {
    /// The type's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(dtype) => dtype.name(),
            Self::Other(name) => name,
        }
    }
}

impl Dim {
    /// The dimension as a config writes it: its size, or -1 where it is (or most likely is)
    /// dynamic.
    pub fn config_size(&self) -> i64 {
        match self {
            Self::Fixed(size)
            | Self::Maybe {
                bound: size,
                likely_dynamic: false,
            } => i64::try_from(*size).unwrap_or(i64::MAX),
            Self::Dynamic { .. } | Self::Maybe { .. } => -1,
        }
    }
}

impl TensorInfo {
    /// The shape as a config writes it; `None` where the rank is unknown.
    pub fn config_shape(&self) -> Option<Vec<i64>> {
        let dims = self.dims.as_ref()?;
        Some(dims.iter().map(Dim::config_size).collect())
    }
}

impl Value {
    /// A value without a name.
    pub fn unnamed(kind: ValueKind) -> Self {
        Self { name: None, kind }
    }

    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&TensorInfo> {
        match &self.kind {
            ValueKind::Tensor { info, .. } => Some(info),
            _ => None,
        }
    }
}

impl ModelInfo {
    /// Whether its format has methods; one that has none says nothing of how the model is called.
    pub fn has_signature(&self) -> bool {
        self.names_methods || !self.methods.is_empty()
    }

    /// The method of this name.
    pub fn method(&self, name: &str) -> Option<&Method> {
        self.methods.iter().find(|method| method.name == name)
    }
}

impl ValueKind {
    /// The kind's name: `tensor`, `int`, `double`, `bool`, `string`, `none` or another.
    pub fn name(&self) -> &str {
        match self {
            Self::Tensor { .. } => "tensor",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::None => "none",
            Self::Other(name) => name,
        }
    }
}

/// `1`, `-1`, `-1 (up to 16)`; `16 or -1` where the file does not tell.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic {
                allowed: Some(allowed),
                ..
            } if !allowed.is_only_a_bound() => write!(f, "-1 ({allowed})"),
            Self::Dynamic {
                bound: Some(bound), ..
            } => write!(f, "-1 (up to {bound})"),
            Self::Dynamic {
                name: Some(name), ..
            } => write!(f, "-1 ({name})"),
            Self::Dynamic { .. } => write!(f, "-1"),
            Self::Maybe { bound, .. } => write!(f, "{bound} or -1"),
        }
    }
}

/// `float32[1, -1 (up to 16)]`.
impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = self.element.name();
        let Some(dims) = &self.dims else {
            return write!(f, "{element} of unknown rank");
        };
        let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
        write!(f, "{element}[{}]", dims.join(", "))
    }
}

/// `(float32[1, 3], int) → (float32[-1])`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |values: &[Value]| {
            let texts: Vec<String> = values
                .iter()
                .map(|value| match value.tensor() {
                    Some(info) => info.to_string(),
                    None => value.kind.name().to_owned(),
                })
                .collect();
            texts.join(", ")
        };
        write!(f, "({}) → ({})", side(&self.inputs), side(&self.outputs))
    }
}
