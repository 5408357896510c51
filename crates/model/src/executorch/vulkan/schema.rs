//! Field numbers of `VkGraph`: `vulkan/serialization/schema.fbs` of ExecuTorch 1.5.

use super::super::flatbuffer::Field;

pub(super) const CHAIN: Field = Field(1, "chain");
pub(super) const VALUES: Field = Field(2, "values");
pub(super) const INPUTS: Field = Field(3, "input_ids");
pub(super) const OUTPUTS: Field = Field(4, "output_ids");
pub(super) const CONSTANTS: Field = Field(5, "constants");

/// Fields of an `OperatorCall`.
pub(super) const NAME: Field = Field(1, "name");
pub(super) const ARGS: Field = Field(2, "args");

/// Fields of a `VkValue`.
pub(super) const TYPE: Field = Field(0, "value_type");
pub(super) const VALUE: Field = Field(1, "value");

/// Fields of a `VkTensor`.
pub(super) const DATATYPE: Field = Field(0, "datatype");
pub(super) const DIMS: Field = Field(1, "dims");
pub(super) const CONSTANT: Field = Field(2, "constant_id");

/// Fields of the other members of the union.
pub(super) const INT: Field = Field(0, "int_val");
pub(super) const BOOL: Field = Field(0, "bool_val");
pub(super) const DOUBLE: Field = Field(0, "double_val");
pub(super) const TEXT: Field = Field(0, "string_val");
pub(super) const ITEMS: Field = Field(0, "items");
pub(super) const SYMBOL: Field = Field(0, "value");

/// Fields of `VkBytes`.
pub(super) const OFFSET: Field = Field(0, "offset");
pub(super) const LENGTH: Field = Field(1, "length");
pub(super) const KEY: Field = Field(2, "named_key");

/// Members of the union `GraphTypes`, by number.
pub(super) const IS_NULL: u8 = 1;
pub(super) const IS_INT: u8 = 2;
pub(super) const IS_DOUBLE: u8 = 3;
pub(super) const IS_BOOL: u8 = 4;
pub(super) const IS_TENSOR: u8 = 5;
pub(super) const IS_INT_LIST: u8 = 6;
pub(super) const IS_DOUBLE_LIST: u8 = 7;
pub(super) const IS_BOOL_LIST: u8 = 8;
pub(super) const IS_VALUE_LIST: u8 = 9;
pub(super) const IS_TEXT: u8 = 10;
pub(super) const IS_SYMBOL: u8 = 11;
