//! A node and its attributes while they are checked.

use super::operators::TypeSet;
use super::scope::SubgraphInterface;
use super::typing;
use crate::FormatError;
use crate::onnx::wire::WireField;

/// Display names of attribute types, by their numbers in `AttributeProto.AttributeType`.
const TYPE_NAMES: [&str; 15] = [
    "of no type",
    "a float",
    "an int",
    "a string",
    "a tensor",
    "a graph",
    "a list of floats",
    "a list of ints",
    "a list of strings",
    "a list of tensors",
    "a list of graphs",
    "a sparse tensor",
    "a list of sparse tensors",
    "a type",
    "a list of types",
];

/// A node as the file describes it.
#[derive(Default)]
pub(in crate::onnx) struct NodeHeader {
    pub(in crate::onnx) domain: String,
    pub(in crate::onnx) operator: String,
    pub(in crate::onnx) overload: String,
    pub(in crate::onnx) name: Vec<u8>,
    pub(in crate::onnx) inputs: Vec<Vec<u8>>,
    pub(in crate::onnx) outputs: Vec<Vec<u8>>,
    pub(in crate::onnx) attributes: Vec<AttributeHeader>,
    /// Its approximate size in bytes.
    bytes: u64,
}

/// Maximum size of a node's names in bytes; real nodes have some hundred bytes.
const MAX_NODE_BYTES: u64 = 1 << 20;
/// Approximate memory of a name beyond its bytes.
const NAME_COST: u64 = 64;

impl NodeHeader {
    /// Reserves room for a name or attribute in `field`; returns `false` if the node is larger than
    /// any real one.
    pub(in crate::onnx) fn takes_room(&mut self, field: &WireField<'_>) -> bool {
        self.bytes = self
            .bytes
            .saturating_add(field.size().saturating_add(NAME_COST));
        self.bytes <= MAX_NODE_BYTES
    }
}

/// An attribute without its value.
#[derive(Default)]
pub(in crate::onnx) struct AttributeHeader {
    pub(super) name: String,
    /// Its stated type number.
    pub(super) stated_type: Option<i64>,
    /// True if it refers to an attribute of the enclosing function.
    pub(super) is_reference: bool,
    /// Bit set of the type numbers of its values.
    values: u16,
    /// The type of the tensors that it names or holds; 0 if none.
    pub(super) tensors: TypeSet,
    /// The interface of its graph, if that was checked.
    pub(in crate::onnx) graph: Option<SubgraphInterface>,
}

impl AttributeHeader {
    /// Records one of the attribute's fields; `data_type` is the type of the tensor in it, if any.
    pub(in crate::onnx) fn field(
        &mut self,
        field: &WireField<'_>,
        data_type: i64,
    ) -> Result<(), FormatError> {
        let kind = match field.name() {
            "name" => {
                self.name = field.text()?;
                return Ok(());
            }
            "type" => {
                self.stated_type = Some(field.int()?);
                return Ok(());
            }
            "ref_attr_name" => {
                self.is_reference = field.size() > 0;
                return Ok(());
            }
            "f" => 1,
            "i" => {
                self.tensors = typing::tensor(field.int()?);
                2
            }
            "s" => 3,
            "t" => {
                self.tensors = typing::tensor(data_type);
                4
            }
            "g" => 5,
            "floats" => 6,
            "ints" => 7,
            "strings" => 8,
            "tensors" => 9,
            "graphs" => 10,
            "sparse_tensor" => {
                self.tensors = typing::tensor(data_type);
                11
            }
            "sparse_tensors" => 12,
            "tp" => 13,
            "type_protos" => 14,
            _ => return Ok(()),
        };
        // An empty packed list does not count as a value.
        let is_list = matches!(kind, 6 | 7);
        if !is_list || field.size() > 0 {
            self.values |= 1 << kind;
        }
        Ok(())
    }

    /// Returns the type number of its value, if it has exactly one value.
    pub(super) fn value(&self) -> Option<u8> {
        let kind = u8::try_from(self.values.trailing_zeros()).ok()?;
        (self.values.is_power_of_two()).then_some(kind)
    }

    /// Returns whether it has a value of this type number.
    pub(super) fn has(&self, kind: i64) -> bool {
        (0..16).contains(&kind) && self.values & 1 << kind != 0
    }

    /// Returns whether it lacks a value.
    pub(super) fn is_empty(&self) -> bool {
        self.values == 0
    }
}

/// Returns the display name of an attribute type.
pub(super) fn kind_name(kind: i64) -> &'static str {
    let index = usize::try_from(kind).ok();
    index
        .and_then(|index| TYPE_NAMES.get(index))
        .copied()
        .unwrap_or("of an unknown type")
}
