//! Field numbers of the tables in `schema.fbs` that the reader uses.

use crate::executorch::flatbuffer::Field;

/// `Model`.
pub(super) mod model {
    use super::Field;
    pub(in crate::tflite) const VERSION: Field = Field(0, "version");
    pub(in crate::tflite) const OPERATOR_CODES: Field = Field(1, "operator_codes");
    pub(in crate::tflite) const SUBGRAPHS: Field = Field(2, "subgraphs");
    pub(in crate::tflite) const DESCRIPTION: Field = Field(3, "description");
    pub(in crate::tflite) const BUFFERS: Field = Field(4, "buffers");
    pub(in crate::tflite) const METADATA: Field = Field(6, "metadata");
    pub(in crate::tflite) const SIGNATURES: Field = Field(7, "signature_defs");
}

/// `OperatorCode`.
pub(super) mod code {
    use super::Field;
    pub(in crate::tflite) const SHORT: Field = Field(0, "deprecated_builtin_code");
    pub(in crate::tflite) const CUSTOM: Field = Field(1, "custom_code");
    pub(in crate::tflite) const BUILTIN: Field = Field(3, "builtin_code");
}

/// `SubGraph`.
pub(super) mod subgraph {
    use super::Field;
    pub(in crate::tflite) const TENSORS: Field = Field(0, "tensors");
    pub(in crate::tflite) const INPUTS: Field = Field(1, "inputs");
    pub(in crate::tflite) const OUTPUTS: Field = Field(2, "outputs");
    pub(in crate::tflite) const OPERATORS: Field = Field(3, "operators");
}

/// `Tensor`.
pub(super) mod tensor {
    use super::Field;
    pub(in crate::tflite) const SHAPE: Field = Field(0, "shape");
    pub(in crate::tflite) const TYPE: Field = Field(1, "type");
    pub(in crate::tflite) const BUFFER: Field = Field(2, "buffer");
    pub(in crate::tflite) const NAME: Field = Field(3, "name");
    pub(in crate::tflite) const QUANTIZATION: Field = Field(4, "quantization");
    pub(in crate::tflite) const IS_VARIABLE: Field = Field(5, "is_variable");
    pub(in crate::tflite) const SPARSITY: Field = Field(6, "sparsity");
    pub(in crate::tflite) const SIGNATURE: Field = Field(7, "shape_signature");
    pub(in crate::tflite) const HAS_RANK: Field = Field(8, "has_rank");
}

/// `QuantizationParameters`.
pub(super) mod quantization {
    use super::Field;
    pub(in crate::tflite) const SCALE: Field = Field(2, "scale");
    pub(in crate::tflite) const ZERO_POINT: Field = Field(3, "zero_point");
}

/// `Operator`.
pub(super) mod operator {
    use super::Field;
    pub(in crate::tflite) const OPCODE: Field = Field(0, "opcode_index");
    pub(in crate::tflite) const INPUTS: Field = Field(1, "inputs");
    pub(in crate::tflite) const OUTPUTS: Field = Field(2, "outputs");
}

/// `Buffer`.
pub(super) mod buffer {
    use super::Field;
    pub(in crate::tflite) const DATA: Field = Field(0, "data");
    pub(in crate::tflite) const OFFSET: Field = Field(1, "offset");
    pub(in crate::tflite) const SIZE: Field = Field(2, "size");
}

/// `Metadata`.
pub(super) mod metadata {
    use super::Field;
    pub(in crate::tflite) const NAME: Field = Field(0, "name");
}

/// `SignatureDef`.
pub(super) mod signature {
    use super::Field;
    pub(in crate::tflite) const INPUTS: Field = Field(0, "inputs");
    pub(in crate::tflite) const OUTPUTS: Field = Field(1, "outputs");
    pub(in crate::tflite) const KEY: Field = Field(2, "signature_key");
    pub(in crate::tflite) const SUBGRAPH: Field = Field(4, "subgraph_index");
}

/// `TensorMap`.
pub(super) mod map {
    use super::Field;
    pub(in crate::tflite) const NAME: Field = Field(0, "name");
    pub(in crate::tflite) const TENSOR: Field = Field(1, "tensor_index");
}
