//! Summarises the package in a Core ML payload: its description, and the operations of the called
//! function.

use std::collections::{BTreeMap, BTreeSet};

use super::super::content::{PayloadSummary, StateTensor};
use super::super::storage::ByteRange;
use super::located::{LocatedPackage, ModelPart};
use super::package::place;
use super::program::{MilType, Type};
use super::proto;
use super::stored::{Operand, Operands, weight_storage};
use super::walk::{Walk, WalkField, WalkMessage};
use crate::{Dim, FormatError};
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads; models with thousands of operations need some hundred thousand.
const MAX_READS: u64 = 4_000_000;
/// Prefix of the metadata keys that coremltools writes.
const TOOL_METADATA_PREFIX: &str = "com.github.apple.coremltools.";
/// Minimum systems for a version of the specification.
const DEPLOYMENT_TARGETS: [(u64, &str); 7] = [
    (4, "iOS 13, macOS 10.15"),
    (5, "iOS 14, macOS 11"),
    (6, "iOS 15, macOS 12"),
    (7, "iOS 16, macOS 13"),
    (8, "iOS 17, macOS 14"),
    (9, "iOS 18, macOS 15"),
    (10, "iOS 26, macOS 26"),
];

/// Returns the contents of a delegate's payload.
pub(in super::super) fn content(
    source: &dyn ReadAt,
    payload: ByteRange,
    named: &dyn Fn(&str) -> Option<ByteRange>,
) -> Result<PayloadSummary, FormatError> {
    let pages = Pages::with_budget(source, MAX_READS);
    let located = LocatedPackage::find(&pages, payload, named)?;
    let walk = Walk::new(&pages);
    let mut content = PayloadSummary::default();
    let mut functions = BTreeMap::new();
    located.walk(&walk, &mut |part| {
        match part {
            ModelPart::Function(name, function) => {
                functions.insert(name, function);
            }
            ModelPart::Other(field) if field.number == 1 => version(&mut content, field.number()?),
            ModelPart::Other(field) if field.number == 2 => description(&mut content, &field)?,
            ModelPart::Other(_) => {}
        }
        Ok(())
    })?;
    let (name, function) = located.choose(&functions).ok_or_else(|| {
        let wanted = located.function.as_deref().unwrap_or("main");
        place("program", located.model.offset).listing(format_args!("no function `{wanted}`"))
    })?;
    OperationWalk::default().function(&mut content, function.message("function")?)?;
    content.function = Some(name.clone());
    if functions.len() > 1 {
        content.functions = functions.into_keys().collect();
    }
    Ok(content)
}

fn version(content: &mut PayloadSummary, version: u64) {
    let target = DEPLOYMENT_TARGETS
        .iter()
        .find(|(known, _)| *known == version);
    let facts = [("specification version", version.to_string())];
    content.facts.extend(facts);
    let target = target.map(|(_, target)| ("deployment target", (*target).to_owned()));
    content.facts.extend(target);
}

/// Adds the metadata about the tools that created the model.
fn description(content: &mut PayloadSummary, field: &WalkField<'_>) -> Result<(), FormatError> {
    for metadata in field.message("description")?.numbered(100) {
        for field in metadata?.message("metadata")?.numbered(100) {
            let (key, Some(value)) = field?.entry()? else {
                continue;
            };
            let fact = match key.strip_prefix(TOOL_METADATA_PREFIX) {
                Some("version") => "coremltools",
                Some("source") => "converted from",
                _ => continue,
            };
            content.facts.push((fact, value.text()?));
        }
    }
    Ok(())
}

/// State of the walk over a function's operations.
#[derive(Default)]
struct OperationWalk {
    /// Constants that may be weights.
    constants: BTreeMap<String, Operand>,
    /// Constants that are parameters of compressed weights.
    taken: BTreeSet<String>,
}

impl OperationWalk {
    fn function(
        mut self,
        content: &mut PayloadSummary,
        message: WalkMessage<'_>,
    ) -> Result<(), FormatError> {
        let FunctionHead { inputs, opset } = FunctionHead::read(message)?;
        let states = inputs.into_iter().filter(|(_, ty)| ty.is_state);
        content
            .states
            .extend(states.map(|(name, ty)| state(name, &ty)));
        let mut is_there = false;
        for field in message.numbered(3) {
            if let (name, Some(block)) = field?.entry()?
                && name == opset
            {
                is_there = true;
                self.block(content, block.message("block")?)?;
            }
        }
        if !is_there {
            return Err(message.here().missing());
        }
        content.facts.push(("operator set", opset));
        for (name, operand) in &self.constants {
            if !self.taken.contains(name) {
                let elements = operand.ty.count().unwrap_or(0);
                content.weight(operand.plain(), elements);
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        content: &mut PayloadSummary,
        block: WalkMessage<'_>,
    ) -> Result<(), FormatError> {
        for operation in block.numbered(3) {
            self.operation(content, operation?.message("operation")?)?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        content: &mut PayloadSummary,
        operation: WalkMessage<'_>,
    ) -> Result<(), FormatError> {
        let OperationHead {
            kind,
            mut results,
            blocks,
        } = OperationHead::read(operation)?;
        for block in blocks {
            self.block(content, block.message("block")?)?;
        }
        if kind == "const" {
            return self.constant(operation, results.pop());
        }
        content.operator(&kind);
        if kind.starts_with("constexpr_") {
            let operands = self.operands(operation)?;
            if let Some((_, ty)) = results.first()
                && let Some(stored) = weight_storage(&kind, &operands, ty)
            {
                content.weight(stored, ty.count().unwrap_or(0));
            }
            return Ok(());
        }
        for (_, ty) in &results {
            if kind == "quantize" {
                content.quantised(ty.kind.name());
            } else {
                content.computed(ty.kind.name());
            }
        }
        Ok(())
    }

    /// Records a constant that may be a weight: floats, or data in the weight file.
    fn constant(
        &mut self,
        operation: WalkMessage<'_>,
        result: Option<(String, Type)>,
    ) -> Result<(), FormatError> {
        let Some((name, _)) = result else {
            return Ok(());
        };
        for field in operation.numbered(5) {
            if let (key, Some(value)) = field?.entry()?
                && key == "val"
            {
                let operand = operand(&value)?;
                let is_float = operand.ty.kind.name().contains("float");
                let is_weight = is_float || operand.in_file;
                if is_weight && operand.ty.count().is_some_and(|count| count > 1) {
                    self.constants.insert(name.clone(), operand);
                }
            }
        }
        Ok(())
    }

    /// Returns the operands of an operation on compressed weights, which are arguments or
    /// attributes.
    fn operands(&mut self, operation: WalkMessage<'_>) -> Result<Operands, FormatError> {
        let mut operands = Operands::new();
        for field in operation.fields() {
            let field = field?;
            if !matches!(field.number, 2 | 5) {
                continue;
            }
            let (key, Some(value)) = field.entry()? else {
                continue;
            };
            let found = match field.number {
                2 => self.argument(&value)?,
                _ => Some(operand(&value)?),
            };
            operands.extend(found.map(|operand| (key, operand)));
        }
        Ok(operands)
    }

    fn argument(&mut self, argument: &WalkField<'_>) -> Result<Option<Operand>, FormatError> {
        let mut found = None;
        for binding in argument.message("argument")?.numbered(1) {
            for field in binding?.message("binding")?.fields() {
                let field = field?;
                match field.number {
                    1 => {
                        let name = field.text()?;
                        found = self.constants.get(&name).cloned();
                        self.taken.insert(name);
                    }
                    2 => found = Some(operand(&field)?),
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}

/// Reads the type of a value, and whether it is in the weight file.
fn operand(value: &WalkField<'_>) -> Result<Operand, FormatError> {
    let mut operand = Operand::default();
    for field in value.message("value")?.fields() {
        let field = field?;
        match field.number {
            2 => operand.ty = ty(&field)?,
            5 => operand.in_file = true,
            _ => {}
        }
    }
    Ok(operand)
}

/// What a function takes.
pub(super) struct FunctionHead {
    pub(super) inputs: Vec<(String, Type)>,
    pub(super) opset: String,
}

impl FunctionHead {
    pub(super) fn read(function: WalkMessage<'_>) -> Result<Self, FormatError> {
        let (mut inputs, mut opset) = (Vec::new(), String::new());
        for field in function.fields() {
            let field = field?;
            match field.number {
                1 => inputs.push(named_type(&field)?),
                2 => opset = field.text()?,
                _ => {}
            }
        }
        Ok(Self { inputs, opset })
    }
}

/// What an operation does, without its arguments.
pub(super) struct OperationHead<'a> {
    pub(super) kind: String,
    pub(super) results: Vec<(String, Type)>,
    /// The bodies of a loop or branch.
    blocks: Vec<WalkField<'a>>,
}

impl<'a> OperationHead<'a> {
    pub(super) fn read(operation: WalkMessage<'a>) -> Result<Self, FormatError> {
        let (mut kind, mut results, mut blocks) = (String::new(), Vec::new(), Vec::new());
        for field in operation.fields() {
            let field = field?;
            match field.number {
                1 => kind = field.text()?,
                3 => results.push(named_type(&field)?),
                4 => blocks.push(field),
                _ => {}
            }
        }
        Ok(Self {
            kind,
            results,
            blocks,
        })
    }
}

/// Reads a name with its type.
fn named_type(field: &WalkField<'_>) -> Result<(String, Type), FormatError> {
    let (mut name, mut found) = (String::new(), Type::default());
    for field in field.message("named type")?.fields() {
        let field = field?;
        match field.number {
            1 => name = field.text()?,
            2 => found = ty(&field)?,
            _ => {}
        }
    }
    Ok((name, found))
}

fn ty(field: &WalkField<'_>) -> Result<Type, FormatError> {
    let bytes = field.bytes()?;
    Type::read(proto::ProtoMessage::new(
        &bytes,
        field.range()?.offset,
        "type",
    ))
}

fn state(name: String, ty: &Type) -> StateTensor {
    let dim = |dim: &Option<u64>| dim.map_or(Dim::ANY, Dim::Fixed);
    StateTensor {
        name: Some(name),
        element: MilType::name(ty.kind).to_owned(),
        dims: ty.dims.iter().map(dim).collect(),
    }
}
