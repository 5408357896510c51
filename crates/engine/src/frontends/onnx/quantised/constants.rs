//! The stored tensors of a model: values of scales, zero points and biases, and sizes of weights.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tract_onnx::pb::{ModelProto, TensorProto};

use crate::frontends::onnx::graph::{attribute, each_graph};
use crate::frontends::onnx::weights::LoadTensor;
use pkgtool_kernels::bytes::Sign;

/// ONNX's codes of element types.
const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;
const INT64: i32 = 7;

/// Maximum number of elements of a list that is read: one per channel.
const MAX_LIST_ELEMENTS: usize = 1 << 20;

/// The element type of a stored tensor, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Float,
    Uint8,
    Int8,
    Int32,
    Int64,
    Other,
}

impl Element {
    /// Returns the signedness of bytes; `None` for other types.
    pub(super) const fn sign(self) -> Option<Sign> {
        match self {
            Self::Int8 => Some(Sign::Signed),
            Self::Uint8 => Some(Sign::Unsigned),
            _ => None,
        }
    }
}

/// A stored tensor.
#[derive(Debug)]
pub(super) struct Constant {
    pub(super) dims: Vec<usize>,
    pub(super) element: Element,
    /// The elements of a list or a single number.
    pub(super) values: Option<Vec<f64>>,
}

/// The stored tensors of a model, by name. `None` for a name that two graphs use for different
/// tensors.
#[derive(Debug, Default)]
pub(super) struct StoredConstants(HashMap<String, Option<Constant>>);

impl StoredConstants {
    /// Collects the initializers and constants of all graphs of `model`.
    pub(super) fn of(model: &ModelProto, load: &LoadTensor<'_>) -> Self {
        let mut found = HashMap::new();
        let mut add = |name: &str, tensor| match found.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Constant::of(tensor, load));
            }
            Entry::Occupied(mut entry) => {
                entry.insert(None);
            }
        };
        each_graph(model, &mut |graph| {
            for tensor in &graph.initializer {
                add(&tensor.name, tensor);
            }
            for node in graph.node.iter().filter(|node| node.op_type == "Constant") {
                let value = attribute(node, "value").and_then(|value| value.t.as_ref());
                if let (Some(name), Some(tensor)) = (node.output.first(), value) {
                    add(name, tensor);
                }
            }
        });
        Self(found)
    }

    /// Returns the tensor of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Constant> {
        self.0.get(name)?.as_ref()
    }

    /// Returns the elements of a list of this type.
    pub(super) fn list(&self, name: &str, element: Element) -> Option<&[f64]> {
        let constant = self.get(name)?;
        let values = constant.values.as_deref();
        values.filter(|_| constant.element == element)
    }

    /// Returns the only element of a float32 tensor.
    pub(super) fn float(&self, name: &str) -> Option<f32> {
        match self.list(name, Element::Float)? {
            #[expect(clippy::cast_possible_truncation, reason = "a float32 value")]
            [value] => Some(*value as f32),
            _ => None,
        }
    }

    /// Returns the integers of an int64 list, such as axes.
    pub(super) fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let values = self.list(name, Element::Int64)?;
        #[expect(clippy::cast_possible_truncation, reason = "small integers")]
        let whole = values.iter().map(|value| *value as i64);
        Some(whole.collect())
    }
}

impl Constant {
    fn of(tensor: &TensorProto, load: &LoadTensor<'_>) -> Option<Self> {
        let dims = tensor.dims.iter().map(|size| usize::try_from(*size).ok());
        let dims: Vec<usize> = dims.collect::<Option<_>>()?;
        let element = match tensor.data_type {
            FLOAT => Element::Float,
            UINT8 => Element::Uint8,
            INT8 => Element::Int8,
            INT32 => Element::Int32,
            INT64 => Element::Int64,
            _ => Element::Other,
        };
        let count = dims
            .iter()
            .try_fold(1_usize, |all, size| all.checked_mul(*size))?;
        let is_list =
            count <= MAX_LIST_ELEMENTS && dims.iter().filter(|size| **size != 1).count() <= 1;
        let values = (is_list && element != Element::Other).then(|| values(tensor, load));
        Some(Self {
            dims,
            element,
            values: values.flatten().filter(|values| values.len() == count),
        })
    }
}

/// Returns the elements of a tensor, wherever they are stored.
fn values(tensor: &TensorProto, load: &LoadTensor<'_>) -> Option<Vec<f64>> {
    let tensor = load(tensor)?;
    let wide = tensor.cast_to::<f64>().ok()?;
    let view = wide.try_as_plain_ram().ok()?;
    view.as_slice::<f64>().ok().map(<[f64]>::to_vec)
}
