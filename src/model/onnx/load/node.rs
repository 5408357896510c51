//! What is known of a node while it is checked.

use super::operators::Types;
use super::scope::Interface;
use super::typing;
use crate::model::onnx::Error;
use crate::model::onnx::wire::Field;

/// The attribute's names of types, by their numbers in `AttributeProto.AttributeType`.
const KINDS: [&str; 15] = [
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

/// A node as the file has it.
#[derive(Default)]
pub(in crate::model::onnx) struct Node {
    pub(in crate::model::onnx) domain: String,
    pub(in crate::model::onnx) operator: String,
    pub(in crate::model::onnx) overload: String,
    pub(in crate::model::onnx) name: Vec<u8>,
    pub(in crate::model::onnx) inputs: Vec<Vec<u8>>,
    pub(in crate::model::onnx) outputs: Vec<Vec<u8>>,
    pub(in crate::model::onnx) attributes: Vec<Attribute>,
    /// About how many bytes it takes.
    bytes: u64,
}

/// Most bytes that a node's names may take; real nodes have some hundreds.
const MAX_BYTES: u64 = 1 << 20;
/// What a name costs beyond its bytes, roughly.
const NAME_SIZE: u64 = 64;

impl Node {
    /// Takes room for a name or attribute in `field`; `false` if the node is larger than any real one.
    pub(in crate::model::onnx) fn takes_room(&mut self, field: &Field<'_>) -> bool {
        self.bytes = self
            .bytes
            .saturating_add(field.size().saturating_add(NAME_SIZE));
        self.bytes <= MAX_BYTES
    }
}

/// An attribute without its value.
#[derive(Default)]
pub(in crate::model::onnx) struct Attribute {
    pub(super) name: String,
    /// The type that it states, by its number.
    pub(super) stated: Option<i64>,
    /// Whether it takes its value from an attribute of the function around it.
    pub(super) refers: bool,
    /// Its kinds of values: a bit for each number of a type.
    values: u16,
    /// The type of tensors that it names or holds; 0 if none.
    pub(super) tensors: Types,
    /// The graph that it holds, as far as it was checked.
    pub(in crate::model::onnx) graph: Option<Interface>,
}

impl Attribute {
    /// Notes one of the attribute's fields; `data_type` is that of the tensor in it, if it is one.
    pub(in crate::model::onnx) fn field(
        &mut self,
        field: &Field<'_>,
        data_type: i64,
    ) -> Result<(), Error> {
        let kind = match field.name() {
            "name" => {
                self.name = field.text()?;
                return Ok(());
            }
            "type" => {
                self.stated = Some(field.int()?);
                return Ok(());
            }
            "ref_attr_name" => {
                self.refers = field.size() > 0;
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
        // An empty packed list is no value.
        let is_list = matches!(kind, 6 | 7);
        if !is_list || field.size() > 0 {
            self.values |= 1 << kind;
        }
        Ok(())
    }

    /// Returns the type of its value, by its number, if it has exactly one value.
    pub(super) fn value(&self) -> Option<u8> {
        let kind = u8::try_from(self.values.trailing_zeros()).ok()?;
        (self.values.is_power_of_two()).then_some(kind)
    }

    /// Returns whether it has a value of the type of this number.
    pub(super) fn has(&self, kind: i64) -> bool {
        (0..16).contains(&kind) && self.values & 1 << kind != 0
    }

    /// Returns whether it has no value at all.
    pub(super) fn is_empty(&self) -> bool {
        self.values == 0
    }
}

/// Returns the name of a type of attributes.
pub(super) fn kind_name(kind: i64) -> &'static str {
    let index = usize::try_from(kind).ok();
    index
        .and_then(|index| KINDS.get(index))
        .copied()
        .unwrap_or("of an unknown type")
}
