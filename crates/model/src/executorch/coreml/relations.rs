//! Extracts evidence of dynamic dimensions from a Core ML package.
//!
//! The description lists the accepted sizes of each input: an input with several sizes is dynamic.
//! The types in the program mark the fixed sizes of every value; a size that is unknown there may
//! still be constant. The operations in [`Values::operation`] show how dimensions depend on each
//! other. Enumerated shapes count as the range from the smallest to the largest size.

use std::collections::BTreeMap;

use super::super::evidence::DimFact;
use super::super::payload_graph::{MAX_PORTS, PayloadGraph, PayloadShape, Ports, UNKNOWN_SIZE};
use super::super::storage::ByteRange;
use super::content::{FunctionHead, OperationHead};
use super::description::{InputSizes, SizeRange, inputs};
use super::located::{LocatedPackage, ModelPart};
use super::program::Type;
use super::walk::{Walk, WalkField, WalkMessage};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// Maximum number of dimensions of a tensor.
const MAX_RANK: usize = 16;

/// Operations that keep the shape of `x`.
const ELEMENTWISE: &[&str] = &[
    "abs",
    "cast",
    "ceil",
    "clip",
    "cos",
    "elu",
    "erf",
    "exp",
    "exp2",
    "floor",
    "gelu",
    "identity",
    "inverse",
    "layer_norm",
    "leaky_relu",
    "log",
    "logical_not",
    "relu",
    "relu6",
    "round",
    "rsqrt",
    "sigmoid",
    "sigmoid_hard",
    "sign",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "softsign",
    "sqrt",
    "square",
    "tanh",
    "thresholded_relu",
];
/// Operations that broadcast their arguments `x` and `y`.
const BROADCAST: &[&str] = &[
    "add",
    "equal",
    "floor_div",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "not_equal",
    "pow",
    "real_div",
    "sub",
];

/// Adds the facts in the package; returns the inputs and outputs of the called function.
pub(in super::super) fn relate(
    pages: &Pages<'_>,
    payload: ByteRange,
    named: &dyn Fn(&str) -> Option<ByteRange>,
    graph: &mut PayloadGraph<'_>,
) -> Result<Option<Ports>, FormatError> {
    let located = LocatedPackage::find(pages, payload, named)?;
    let Some(ports) = &located.ports else {
        return Ok(None);
    };
    let walk = Walk::new(pages);
    let (mut description, mut functions) = (None, BTreeMap::new());
    located.walk(&walk, &mut |part| {
        match part {
            ModelPart::Function(name, function) => {
                functions.insert(name, function);
            }
            ModelPart::Other(field) if field.number == 2 => description = Some(field),
            ModelPart::Other(_) => {}
        }
        Ok(())
    })?;
    let Some((name, function)) = located.choose(&functions) else {
        return Ok(None);
    };
    let described = match &description {
        Some(field) => inputs(field, name)?,
        None => InputSizes::new(),
    };
    let mut values = Values {
        graph,
        shapes: BTreeMap::new(),
    };
    values.function(function.message("function")?, &described)?;
    let most = usize::try_from(MAX_PORTS).unwrap_or(usize::MAX);
    let sides = [&ports.input_names, &ports.output_names];
    let shapes = sides.into_iter().flat_map(|side| {
        let of = |name: &String| values.shapes.get(name).cloned();
        side.iter().take(most).map(of).collect::<Vec<_>>()
    });
    Ok(Some(Ports {
        shapes: shapes.collect(),
        in_memory_order: false,
    }))
}

/// Returns the number of inputs and outputs of a payload, if it records them.
pub(in super::super) fn count_ports(
    pages: &Pages<'_>,
    payload: ByteRange,
    named: &dyn Fn(&str) -> Option<ByteRange>,
) -> Result<Option<u64>, FormatError> {
    let ports = LocatedPackage::find(pages, payload, named)?.ports;
    Ok(ports.map(|ports| (ports.input_names.len() + ports.output_names.len()) as u64))
}

/// The tensors of a function.
struct Values<'g, 'r> {
    graph: &'g mut PayloadGraph<'r>,
    shapes: BTreeMap<String, PayloadShape>,
}

impl Values<'_, '_> {
    fn function(
        &mut self,
        function: WalkMessage<'_>,
        described: &InputSizes,
    ) -> Result<(), FormatError> {
        let FunctionHead { inputs, opset } = FunctionHead::read(function)?;
        for (name, ty) in inputs.into_iter().filter(|(_, ty)| !ty.is_state) {
            let sizes = described.get(&name).map_or(&[][..], Vec::as_slice);
            self.input(name, &ty, sizes);
        }
        for field in function.numbered(3) {
            if let (name, Some(block)) = field?.entry()?
                && name == opset
            {
                for operation in block.message("block")?.numbered(3) {
                    self.operation(&operation?)?;
                }
            }
        }
        Ok(())
    }

    /// Adds an input with the sizes in the description, if these agree with the program.
    fn input(&mut self, name: String, ty: &Type, sizes: &[SizeRange]) {
        let sizes = Some(sizes).filter(|sizes| sizes.len() == ty.dims.len());
        let known = ty.dims.iter().enumerate().map(|(dim, size)| {
            let said = sizes.map(|sizes| sizes[dim]);
            match (*size, said) {
                // A size in the program that the description excludes is ignored.
                (Some(size), Some(said)) if !said.is_only(size) => (UNKNOWN_SIZE, None, 0),
                (Some(size), _) => (size, Some(DimFact::Fixed), 0),
                (None, Some(said)) if said.most != Some(said.least) => {
                    let bound = said.most.unwrap_or(UNKNOWN_SIZE);
                    (bound, Some(DimFact::Dynamic), said.least)
                }
                (None, _) => (UNKNOWN_SIZE, None, 0),
            }
        });
        self.tensor(name, known.collect());
    }

    fn tensor(&mut self, name: String, known: Vec<(u64, Option<DimFact>, u64)>) {
        let bounds = known.iter().map(|(bound, _, _)| *bound).collect();
        let Some(shape) = Some(bounds)
            .filter(|bounds: &Vec<u64>| bounds.len() <= MAX_RANK)
            .and_then(|bounds| self.graph.shape(bounds))
        else {
            return;
        };
        for (dim, (_, certain, least)) in known.into_iter().enumerate() {
            if let Some(certain) = certain {
                self.graph.fact(shape.dim(dim), certain);
            }
            if least > 0 {
                self.graph.at_least(shape.dim(dim), least);
            }
        }
        self.shapes.insert(name, shape);
    }

    /// Adds the results of an operation, and the rules between their shapes and its arguments.
    fn operation(&mut self, operation: &WalkField<'_>) -> Result<(), FormatError> {
        let operation = operation.message("operation")?;
        let OperationHead { kind, results, .. } = OperationHead::read(operation)?;
        if kind == "const" || kind.starts_with("constexpr_") {
            return Ok(());
        }
        let single = results.len() == 1;
        let is_open = results.iter().any(|(_, ty)| ty.dims.contains(&None));
        let names: Vec<String> = results.iter().map(|(name, _)| name.clone()).collect();
        for (name, ty) in results {
            let known = ty.dims.iter().map(|size| match size {
                Some(size) => (*size, Some(DimFact::Fixed), 0),
                None => (UNKNOWN_SIZE, None, 0),
            });
            self.tensor(name, known.collect());
        }
        // Fixed results need no rule.
        if let Some(result) = names.first().filter(|_| single && is_open) {
            self.rule(&kind, result, operation)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        kind: &str,
        result: &str,
        operation: WalkMessage<'_>,
    ) -> Result<(), FormatError> {
        let is_linear = kind == "linear";
        let (keeps, joins) = (ELEMENTWISE.contains(&kind), BROADCAST.contains(&kind));
        if !is_linear && !keeps && !joins {
            return Ok(());
        }
        let (mut x, mut y) = (None, None);
        for field in operation.numbered(2) {
            if let (key, Some(argument)) = field?.entry()? {
                match key.as_str() {
                    "x" => x = name_of(&argument)?,
                    "y" => y = name_of(&argument)?,
                    _ => {}
                }
            }
        }
        let shape = |name: Option<String>| self.shapes.get(&name?).cloned();
        let (Some(to), x, y) = (self.shapes.get(result).cloned(), shape(x), shape(y)) else {
            return Ok(());
        };
        match (x, y) {
            (Some(x), _) if is_linear && x.rank() == to.rank() => {
                for dim in 0..to.rank().saturating_sub(1) {
                    self.graph.equal((&to, dim), (&x, dim));
                }
            }
            (Some(x), _) if keeps && x.rank() == to.rank() => {
                for dim in 0..to.rank() {
                    self.graph.equal((&to, dim), (&x, dim));
                }
            }
            (Some(x), Some(y)) if joins => self.graph.broadcast(&to, &x, &y),
            _ => {}
        }
        Ok(())
    }
}

impl SizeRange {
    fn is_only(self, size: u64) -> bool {
        self.least == size && self.most == Some(size)
    }
}

/// Returns the name that an argument is bound to; `None` for a value.
fn name_of(argument: &WalkField<'_>) -> Result<Option<String>, FormatError> {
    for binding in argument.message("argument")?.numbered(1) {
        if let Some(name) = binding?.message("binding")?.numbered(1).next() {
            return name?.text().map(Some);
        }
    }
    Ok(None)
}
