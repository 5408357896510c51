//! Field numbers of the tables in ExecuTorch's schemas that the reader uses.
//!
//! Sources: `schema/program.fbs` (identifier `ET12`) and `bundled_program_schema.fbs` (identifier
//! `BP08`) of ExecuTorch 1.5. A union takes two numbers: its type, then its value.

/// `Program`, the root.
pub(super) mod program {
    use super::super::flatbuffer::Field;
    pub(in super::super) const VERSION: Field = Field(0, "version");
    pub(in super::super) const EXECUTION_PLAN: Field = Field(1, "execution_plan");
    pub(in super::super) const CONSTANT_BUFFER: Field = Field(2, "constant_buffer");
    pub(in super::super) const DELEGATE_DATA: Field = Field(3, "backend_delegate_data");
    pub(in super::super) const SEGMENTS: Field = Field(4, "segments");
    pub(in super::super) const CONSTANT_SEGMENT: Field = Field(5, "constant_segment");
    pub(in super::super) const MUTABLE_DATA: Field = Field(6, "mutable_data_segments");
    pub(in super::super) const NAMED_DATA: Field = Field(7, "named_data");
}

/// `Buffer` and `BackendDelegateInlineData`: inline bytes.
pub(super) mod inline {
    use super::super::flatbuffer::Field;
    pub(in super::super) const STORAGE: Field = Field(0, "storage");
    pub(in super::super) const DATA: Field = Field(0, "data");
}

/// `DataSegment`, `SubsegmentOffsets`, `NamedData`.
pub(super) mod segment {
    use super::super::flatbuffer::Field;
    pub(in super::super) const OFFSET: Field = Field(0, "offset");
    pub(in super::super) const SIZE: Field = Field(1, "size");
    pub(in super::super) const SUB_INDEX: Field = Field(0, "segment_index");
    pub(in super::super) const SUB_OFFSETS: Field = Field(1, "offsets");
    pub(in super::super) const KEY: Field = Field(0, "key");
    pub(in super::super) const NAMED_INDEX: Field = Field(1, "segment_index");
}

/// `ExecutionPlan`, `Operator`, `BackendDelegate`, `CompileSpec`, `BackendDelegateDataReference`.
pub(super) mod plan {
    use super::super::flatbuffer::Field;
    pub(in super::super) const NAME: Field = Field(0, "name");
    pub(in super::super) const VALUES: Field = Field(2, "values");
    pub(in super::super) const INPUTS: Field = Field(3, "inputs");
    pub(in super::super) const OUTPUTS: Field = Field(4, "outputs");
    pub(in super::super) const CHAINS: Field = Field(5, "chains");
    pub(in super::super) const OPERATORS: Field = Field(6, "operators");
    pub(in super::super) const DELEGATES: Field = Field(7, "delegates");
    pub(in super::super) const MEMORY_SIZES: Field = Field(8, "non_const_buffer_sizes");
    pub(in super::super) const OPERATOR_NAME: Field = Field(0, "name");
    pub(in super::super) const OVERLOAD: Field = Field(1, "overload");
    pub(in super::super) const DELEGATE_ID: Field = Field(0, "id");
    pub(in super::super) const PROCESSED: Field = Field(1, "processed");
    pub(in super::super) const COMPILE_SPECS: Field = Field(2, "compile_specs");
    pub(in super::super) const SPEC_KEY: Field = Field(0, "key");
    pub(in super::super) const SPEC_VALUE: Field = Field(1, "value");
    pub(in super::super) const LOCATION: Field = Field(0, "location");
    pub(in super::super) const INDEX: Field = Field(1, "index");
}

/// `Chain`, `Instruction` and the five kinds of instruction.
pub(super) mod chain {
    use super::super::flatbuffer::Field;
    pub(in super::super) const INSTRUCTIONS: Field = Field(2, "instructions");
    pub(in super::super) const ARGS_TYPE: Field = Field(0, "instr_args_type");
    pub(in super::super) const INSTR_ARGS: Field = Field(1, "instr_args");
    pub(in super::super) const OP_INDEX: Field = Field(0, "op_index");
    pub(in super::super) const DELEGATE_INDEX: Field = Field(0, "delegate_index");
    pub(in super::super) const ARGS: Field = Field(1, "args");
    pub(in super::super) const MOVE_FROM: Field = Field(0, "move_from");
    pub(in super::super) const MOVE_TO: Field = Field(1, "move_to");
    pub(in super::super) const CONDITION: Field = Field(0, "cond_value_index");
    pub(in super::super) const DESTINATION: Field = Field(1, "destination_instruction");
    pub(in super::super) const FREED: Field = Field(0, "value_index");
}

/// `EValue` and the tables of its union but `Tensor`.
pub(super) mod value {
    use super::super::flatbuffer::Field;
    pub(in super::super) const TYPE: Field = Field(0, "val_type");
    pub(in super::super) const VALUE: Field = Field(1, "val");
    pub(in super::super) const INT: Field = Field(0, "int_val");
    pub(in super::super) const BOOL: Field = Field(0, "bool_val");
    pub(in super::super) const DOUBLE: Field = Field(0, "double_val");
    pub(in super::super) const STRING: Field = Field(0, "string_val");
    pub(in super::super) const ITEMS: Field = Field(0, "items");
}

/// `Tensor`, `ExtraTensorInfo` and `AllocationDetails`.
pub(super) mod tensor {
    use super::super::flatbuffer::Field;
    pub(in super::super) const SCALAR_TYPE: Field = Field(0, "scalar_type");
    pub(in super::super) const STORAGE_OFFSET: Field = Field(1, "storage_offset");
    pub(in super::super) const SIZES: Field = Field(2, "sizes");
    pub(in super::super) const DIM_ORDER: Field = Field(3, "dim_order");
    pub(in super::super) const DATA_INDEX: Field = Field(5, "data_buffer_idx");
    pub(in super::super) const ALLOCATION: Field = Field(6, "allocation_info");
    pub(in super::super) const DYNAMISM: Field = Field(8, "shape_dynamism");
    pub(in super::super) const EXTRA: Field = Field(9, "extra_tensor_info");
    pub(in super::super) const MUTABLE_INDEX: Field = Field(0, "mutable_data_segments_idx");
    pub(in super::super) const FULL_NAME: Field = Field(1, "fully_qualified_name");
    pub(in super::super) const LOCATION: Field = Field(2, "location");
    pub(in super::super) const MEMORY: Field = Field(0, "memory_id");
    pub(in super::super) const MEMORY_LOW: Field = Field(1, "memory_offset_low");
    pub(in super::super) const MEMORY_HIGH: Field = Field(2, "memory_offset_high");
}

/// `BundledProgram` and `BundledMethodTestSuite`.
pub(super) mod bundle {
    use super::super::flatbuffer::Field;
    pub(in super::super) const SUITES: Field = Field(1, "method_test_suites");
    pub(in super::super) const PROGRAM: Field = Field(2, "program");
    pub(in super::super) const METHOD: Field = Field(0, "method_name");
    pub(in super::super) const CASES: Field = Field(1, "test_cases");
}
