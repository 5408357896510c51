//! Reads an ML Program: named functions that consist of operations (`MIL.proto` of coremltools 9).
//!
//! Invariant: an operation's type, outputs and arguments are those in the file. The engine checks
//! names and operators. Absent scalars are zero or false.

use std::collections::BTreeMap;

use super::proto::{ProtoField, ProtoMessage};
use crate::FormatError;

/// A function of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Its inputs, including states.
    pub inputs: Vec<(String, Type)>,
    /// The block for the operator set that it targets.
    pub block: Block,
}

/// A sequence of operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// Operations in execution order.
    pub operations: Vec<Operation>,
}

/// An operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operation {
    /// Its type (`linear`).
    pub kind: String,
    /// Arguments by name.
    pub inputs: BTreeMap<String, Vec<Argument>>,
    /// Its outputs with their types.
    pub outputs: Vec<(String, Type)>,
    /// Named values other than arguments.
    pub attributes: BTreeMap<String, TypedValue>,
    /// True if it contains blocks: a loop or a branch.
    pub has_blocks: bool,
}

/// An argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// The output of another operation, or an input.
    Name(String),
    /// A value.
    Value(TypedValue),
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// Its element type.
    pub kind: MilType,
    /// Sizes; `None` for one that is unknown before a run.
    pub dims: Vec<Option<u64>>,
    /// True for a state that holds such a tensor.
    pub is_state: bool,
}

/// Types of elements (`MIL.DataType`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum MilType {
    #[default]
    Unknown,
    Bool,
    Text,
    Float16,
    Float32,
    Float64,
    Bfloat16,
    Int8,
    Int16,
    Int32,
    Int64,
    Int4,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Uint4,
    Uint2,
    Uint1,
    Uint6,
    Uint3,
}

/// A value of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedValue {
    /// Its type.
    pub ty: Type,
    /// Its elements.
    pub content: ValueContent,
}

/// The elements of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueContent {
    /// Floats.
    Floats(Vec<f64>),
    /// Integers.
    Ints(Vec<i64>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
    /// Elements in their in-memory encoding.
    Bytes(Vec<u8>),
    /// A record at this offset of the weight file.
    Blob(u64),
}

impl Default for Type {
    fn default() -> Self {
        Self {
            kind: MilType::Unknown,
            dims: Vec::new(),
            is_state: false,
        }
    }
}

impl MilType {
    fn of(code: u64) -> Self {
        match code {
            1 => Self::Bool,
            2 => Self::Text,
            10 => Self::Float16,
            11 => Self::Float32,
            12 => Self::Float64,
            13 => Self::Bfloat16,
            21 => Self::Int8,
            22 => Self::Int16,
            23 => Self::Int32,
            24 => Self::Int64,
            25 => Self::Int4,
            31 => Self::Uint8,
            32 => Self::Uint16,
            33 => Self::Uint32,
            34 => Self::Uint64,
            35 => Self::Uint4,
            36 => Self::Uint2,
            37 => Self::Uint1,
            38 => Self::Uint6,
            39 => Self::Uint3,
            _ => Self::Unknown,
        }
    }

    /// Returns its name, as other formats write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Bfloat16 => "bfloat16",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Int4 => "int4",
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Uint4 => "uint4",
            Self::Uint2 => "uint2",
            Self::Uint1 => "uint1",
            Self::Uint6 => "uint6",
            Self::Uint3 => "uint3",
        }
    }
}

/// Returns the functions of a program by name.
pub(crate) fn read_functions(
    program: ProtoMessage<'_>,
) -> Result<BTreeMap<String, Function>, FormatError> {
    let mut functions = BTreeMap::new();
    for field in program.fields() {
        let field = field?;
        if field.number == 2 {
            let (name, value) = field.map_entry()?;
            let function = value.map(Function::read).transpose()?;
            if let Some(function) = function {
                functions.insert(name, function);
            }
        }
    }
    Ok(functions)
}

impl Function {
    fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let (mut inputs, mut opset, mut blocks) = (Vec::new(), String::new(), BTreeMap::new());
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => inputs.push(named_type(&field)?),
                2 => opset = field.text()?,
                3 => {
                    let (name, block) = field.map_entry()?;
                    blocks.insert(
                        name,
                        block.map(Block::read).transpose()?.unwrap_or_default(),
                    );
                }
                _ => {}
            }
        }
        let block = blocks
            .remove(&opset)
            .ok_or_else(|| message.place().missing())?;
        Ok(Self { inputs, block })
    }
}

impl Block {
    fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut block = Self::default();
        for field in message.fields() {
            let field = field?;
            match field.number {
                2 => block.outputs.push(field.text()?),
                3 => {
                    let operation = field.message("operation")?;
                    block.operations.push(Operation::read(operation)?);
                }
                _ => {}
            }
        }
        Ok(block)
    }
}

impl Operation {
    fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut operation = Self::default();
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => operation.kind = field.text()?,
                2 => {
                    let (name, argument) = field.map_entry()?;
                    let bindings = argument.map(arguments).transpose()?;
                    operation.inputs.insert(name, bindings.unwrap_or_default());
                }
                3 => operation.outputs.push(named_type(&field)?),
                4 => operation.has_blocks = true,
                5 => {
                    let (name, value) = field.map_entry()?;
                    if let Some(value) = value {
                        operation.attributes.insert(name, TypedValue::read(value)?);
                    }
                }
                _ => {}
            }
        }
        Ok(operation)
    }
}

fn arguments(message: ProtoMessage<'_>) -> Result<Vec<Argument>, FormatError> {
    let mut arguments = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        for binding in field.message("binding")?.fields() {
            let binding = binding?;
            match binding.number {
                1 => arguments.push(Argument::Name(binding.text()?)),
                2 => {
                    let value = TypedValue::read(binding.message("value")?)?;
                    arguments.push(Argument::Value(value));
                }
                _ => {}
            }
        }
    }
    Ok(arguments)
}

fn named_type(field: &ProtoField<'_>) -> Result<(String, Type), FormatError> {
    let (mut name, mut ty) = (String::new(), Type::default());
    for field in field.message("named type")?.fields() {
        let field = field?;
        match field.number {
            1 => name = field.text()?,
            2 => ty = Type::read(field.message("type")?)?,
            _ => {}
        }
    }
    Ok((name, ty))
}

impl Type {
    /// Reads a type.
    pub(crate) fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut ty = Self::default();
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => ty = Self::tensor(field.message("tensor type")?)?,
                5 => {
                    for inner in field.message("state type")?.fields() {
                        let inner = inner?;
                        if inner.number == 1 {
                            ty = Self::read(inner.message("type")?)?;
                        }
                    }
                    ty.is_state = true;
                }
                _ => {}
            }
        }
        Ok(ty)
    }

    fn tensor(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut ty = Self::default();
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => ty.kind = MilType::of(field.number()?),
                3 => ty.dims.push(dimension(field.message("dimension")?)?),
                _ => {}
            }
        }
        Ok(ty)
    }

    /// Returns the number of elements, if it is known and fits 64 bits.
    pub fn count(&self) -> Option<u64> {
        self.dims
            .iter()
            .try_fold(1_u64, |count, dim| count.checked_mul((*dim)?))
    }
}

fn dimension(message: ProtoMessage<'_>) -> Result<Option<u64>, FormatError> {
    for field in message.fields() {
        let field = field?;
        if field.number == 1 {
            // Protobuf omits a size of zero.
            let mut size = 0;
            for inner in field.message("constant dimension")?.fields() {
                let inner = inner?;
                if inner.number == 1 {
                    size = inner.number()?;
                }
            }
            return Ok(Some(size));
        }
    }
    Ok(None)
}

impl TypedValue {
    fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let (mut ty, mut content) = (Type::default(), None);
        for field in message.fields() {
            let field = field?;
            match field.number {
                2 => ty = Type::read(field.message("type")?)?,
                3 => content = immediate(field.message("immediate value")?)?,
                5 => {
                    let mut offset = 0;
                    for inner in field.message("blob file value")?.fields() {
                        let inner = inner?;
                        if inner.number == 2 {
                            offset = inner.number()?;
                        }
                    }
                    content = Some(ValueContent::Blob(offset));
                }
                _ => {}
            }
        }
        let content = content.ok_or_else(|| message.place().missing())?;
        Ok(Self { ty, content })
    }
}

/// Reads the elements of a tensor, or of a list of scalars; `None` for other lists and dictionaries.
fn immediate(message: ProtoMessage<'_>) -> Result<Option<ValueContent>, FormatError> {
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => {
                let values = field.message("tensor value")?.fields().next();
                if let Some(values) = values.transpose()? {
                    return elements(values.number, values.message("values")?);
                }
            }
            3 => return list(field.message("list value")?),
            _ => {}
        }
    }
    Ok(None)
}

/// Reads a list of texts or whole numbers.
fn list(message: ProtoMessage<'_>) -> Result<Option<ValueContent>, FormatError> {
    let (mut texts, mut ints) = (Vec::new(), Vec::new());
    for value in message.fields() {
        for field in value?.message("value")?.fields() {
            let field = field?;
            if field.number != 3 {
                continue;
            }
            // A list in a list would be read without end.
            let tensor = field.message("immediate value")?.fields().next();
            let Some(tensor) = tensor.transpose()?.filter(|it| it.number == 1) else {
                return Ok(None);
            };
            let values = tensor.message("tensor value")?.fields().next();
            let Some(values) = values.transpose()? else {
                return Ok(None);
            };
            match elements(values.number, values.message("values")?)? {
                Some(ValueContent::Texts(own)) => texts.extend(own),
                Some(ValueContent::Ints(own)) => ints.extend(own),
                _ => return Ok(None),
            }
        }
    }
    Ok(match (texts.is_empty(), ints.is_empty()) {
        (false, true) => Some(ValueContent::Texts(texts)),
        (true, false) => Some(ValueContent::Ints(ints)),
        _ => None,
    })
}

fn elements(kind: u64, message: ProtoMessage<'_>) -> Result<Option<ValueContent>, FormatError> {
    let (mut ints, mut floats) = (Vec::new(), Vec::new());
    let (mut texts, mut bytes) = (Vec::new(), Vec::new());
    for field in message.fields() {
        let field = field?;
        match kind {
            _ if field.number != 1 => {}
            1 | 6 => field.floats(kind == 6, &mut floats)?,
            2 | 3 | 5 => field.integers(&mut ints)?,
            4 => texts.push(field.text()?),
            7 => bytes = field.bytes()?.to_vec(),
            _ => {
                return Err(field
                    .place()
                    .union_type(7, u8::try_from(kind).unwrap_or(u8::MAX)));
            }
        }
    }
    Ok(Some(match kind {
        1 | 6 => ValueContent::Floats(floats),
        3 => ValueContent::Bools(ints.into_iter().map(|int| int != 0).collect()),
        4 => ValueContent::Texts(texts),
        7 => ValueContent::Bytes(bytes),
        _ => ValueContent::Ints(ints),
    }))
}
