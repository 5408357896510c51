//! The format-neutral description of a model file: its methods, their inputs and outputs, and its
//! data areas.
//!
//! Every format reader produces a [`ModelInfo`]; validation, comparison and the engines use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Allowed;
use pkgtool_base::package::DType;

/// The contents of a model file, as far as its header describes them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelInfo {
    /// Name of the format, as in [`super::ModelFormat::name`].
    pub format: &'static str,
    /// Name of the format that the file name suggests, if it differs from `format`.
    pub format_by_name: Option<&'static str>,
    /// Version of the format, in its own terms (`ET12`, `IR 10, opset 18`).
    pub format_version: String,
    /// The program that wrote the file, if the file names one.
    pub producer: Option<String>,
    /// True if the file itself names its methods. An ONNX file does not: its single graph stands
    /// for `forward` or for the only method that a config declares.
    pub names_methods: bool,
    /// Methods in file order; names are unique.
    pub methods: Vec<Method>,
    /// Contiguous areas of the file outside the header, in file order.
    pub segments: Vec<Segment>,
    /// Size of the weights inside the file, in bytes.
    pub weight_bytes: u64,
    /// Number of stored elements by type name. Empty if the format reveals this only through the
    /// use of the tensors.
    pub weight_types: BTreeMap<String, u64>,
    /// Data this model needs from other files.
    pub external: Vec<ExternalData>,
    /// Contents of a data file, in file order; empty for models.
    pub named: Vec<NamedData>,
    /// Further facts worth showing, in order (`domain`, `opset ai.onnx`, …).
    pub metadata: Vec<(String, String)>,
}

/// One entry point of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Inputs in calling order.
    pub inputs: Vec<ModelValue>,
    /// Positions of optional inputs.
    pub optional: BTreeSet<usize>,
    /// Outputs in order.
    pub outputs: Vec<ModelValue>,
    /// True for a method without inputs and instructions, whose outputs are stored in the file as
    /// metadata.
    pub constant: bool,
    /// Delegates in file order, one entry per delegated partition.
    pub delegates: Vec<Delegate>,
    /// Operators outside delegates, with the number of calls.
    pub operators: BTreeMap<String, u64>,
}

/// A part of a method that a backend executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate {
    /// The backend's registered name, such as `XnnpackBackend`.
    pub id: String,
    /// Size of its payload in bytes, if the file records it.
    pub payload_bytes: Option<u64>,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelValue {
    /// Its name, if the file stores one.
    pub name: Option<String>,
    /// Its type, and its value if the file stores one.
    pub kind: ValueKind,
}

/// The type of an input or output. Values stored in the file (constants of constant methods,
/// scalars specialised at export) are included.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// A tensor; a small constant also has its elements in row-major order.
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
    /// A string, truncated if it is very long.
    String(String),
    /// Absent.
    None,
    /// Any other type, by its name: `int_list`, `tensor_list`, `sequence`, `map`, …
    Other(String),
    /// The most likely label of a classifier, as text or number.
    ClassLabel(String),
    /// The probabilities of a classifier's labels.
    ClassScores {
        /// The type's name.
        name: String,
        /// Number of labels.
        count: u64,
    },
}

/// The dtype and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub element: ElementType,
    /// Dimensions, outermost first; `None` if the file does not record the rank.
    pub dims: Option<Vec<Dim>>,
    /// How the shape of the whole tensor may vary.
    pub dynamism: Dynamism,
}

/// How the shape of a whole tensor may vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamism {
    /// All sizes are fixed.
    Static,
    /// At least one dimension is dynamic; the stored sizes are upper bounds.
    Bounded,
    /// Each dimension is marked as fixed or dynamic; the file states no bounds.
    Symbolic,
    /// Only rank and dtype are guaranteed.
    Unbounded,
}

/// One dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this size.
    Fixed(u64),
    /// Dynamic for certain.
    Dynamic {
        /// Largest size, if the file states one.
        bound: Option<u64>,
        /// The dimension's symbol, if the file has one.
        name: Option<String>,
        /// Its accepted sizes, if the file declares more than a bound.
        #[serde(default)]
        allowed: Option<Allowed>,
    },
    /// A dimension of a bounded tensor whose file does not record which dimensions are dynamic.
    Maybe {
        /// Largest size.
        bound: u64,
        /// The reader's best guess: dynamic or fixed.
        likely_dynamic: bool,
    },
}

/// Element type of a tensor in a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementType {
    /// A type that a config can express.
    Known(DType),
    /// A type that a config cannot express, by its name (`uint16`, `qint8`, `string`, …).
    Other(String),
    /// Pixels of a picture.
    Pixels(Box<PictureInput>),
}

/// A picture as an input of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PictureInput {
    /// Its description, for people.
    pub name: String,
    /// Its colours.
    pub colours: PixelColours,
    /// Dtype of the tensor that the model computes with. Its values are 0 to 255.
    pub dtype: DType,
    /// Its usual width, in pixels.
    pub width: u64,
    /// Its usual height, in pixels.
    pub height: u64,
}

/// The colours of a picture's pixels, in the order of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelColours {
    /// Brightness alone.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
}

impl PixelColours {
    /// Returns the number of channels.
    pub fn channels(self) -> u64 {
        match self {
            Self::Grey => 1,
            Self::Rgb | Self::Bgr => 3,
        }
    }
}

/// An area of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its content, in one or two words.
    pub name: String,
    /// File offset of its first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Data that the model stores in another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalData {
    /// Path as the file writes it, relative to the file's directory; `None` if the format names
    /// only tensors (ExecuTorch's `.ptd`).
    pub location: Option<String>,
    /// Number of bytes needed of the other file: the largest offset plus length.
    pub needs_bytes: Option<u64>,
    /// Number of tensors in the other file; 0 for a precompiled graph.
    pub tensors: u64,
    /// These tensors, if the format identifies them by name.
    pub named: Vec<NamedData>,
}

/// A named entry of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedData {
    /// The name.
    pub name: String,
    /// Type and shape, if the entry is a tensor.
    pub tensor: Option<TensorInfo>,
}

impl ElementType {
    /// Returns the type's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(dtype) => dtype.name(),
            Self::Other(name) => name,
            Self::Pixels(picture) => &picture.name,
        }
    }

    /// Returns the type of this name.
    pub fn named(name: &str) -> Self {
        let known = DType::from_name(name).filter(|dtype| dtype.is_configurable());
        known.map_or_else(|| Self::Other(name.to_owned()), Self::Known)
    }

    /// Returns the type of a tensor with such elements; `None` for types that tensors do not
    /// support (strings, complex numbers, sub-byte types).
    pub fn dtype(&self) -> Option<DType> {
        DType::from_name(self.name())
    }
}

impl Dim {
    /// Any size.
    pub const ANY: Self = Self::Dynamic {
        bound: None,
        name: None,
        allowed: None,
    };

    /// Returns the dimension as a config writes it: its size, or -1 if it is dynamic or most likely
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
    /// Returns the shape as a config writes it; `None` if the rank is unknown.
    pub fn config_shape(&self) -> Option<Vec<i64>> {
        let dims = self.dims.as_ref()?;
        Some(dims.iter().map(Dim::config_size).collect())
    }
}

impl ModelValue {
    /// Returns a value without a name.
    pub fn unnamed(kind: ValueKind) -> Self {
        Self { name: None, kind }
    }

    /// Returns the tensor, if the value is one.
    pub fn tensor(&self) -> Option<&TensorInfo> {
        match &self.kind {
            ValueKind::Tensor { info, .. } => Some(info),
            _ => None,
        }
    }
}

impl ModelInfo {
    /// Returns whether the file describes how the model is called. Formats without methods do not.
    pub fn has_signature(&self) -> bool {
        self.names_methods || !self.methods.is_empty()
    }

    /// Returns the method of this name.
    pub fn method(&self, name: &str) -> Option<&Method> {
        self.methods.iter().find(|method| method.name == name)
    }
}

impl ValueKind {
    /// Returns the type's name: `tensor`, `int`, `double`, `bool`, `string`, `none` or another.
    pub fn name(&self) -> &str {
        match self {
            Self::Tensor { .. } => "tensor",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::None => "none",
            Self::Other(name) | Self::ClassLabel(name) | Self::ClassScores { name, .. } => name,
        }
    }
}

/// Formats as `1`, `-1`, `-1 (up to 16)`, or `16 or -1` if the file does not record whether it is
/// dynamic.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic {
                allowed: Some(allowed),
                ..
            } if !allowed.is_upper_bound_only() => write!(f, "-1 ({allowed})"),
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

/// Formats as `float32[1, -1 (up to 16)]`.
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

/// Formats as `(float32[1, 3], int) → (float32[-1])`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |values: &[ModelValue]| {
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
