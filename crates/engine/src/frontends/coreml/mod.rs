//! Lowers Core ML ML Programs: their operations, through the operator table.
//!
//! Most operations are lowered to calls of `ATen` operators ([`CoremlLowering::aten`]). Values declared
//! as float16 are computed in float32, or rounded where the program declares them ([`Rounding`]).
//! Sizes known only at run time stay symbolic instead of becoming tensors.

mod activation;
mod constant;
mod convolution;
mod create;
mod cut;
mod held;
mod image;
mod index;
mod layer;
mod normal;
mod packed;
mod pointwise;
mod pool;
mod quantized;
mod real;
mod rearrange;
mod recurrent;
mod reduce;
mod sample;
mod scatter;
mod shape;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tract_onnx::tract_core::internal::*;

use super::payload::{PayloadCall, lower_nodes};
use crate::Rounding;
use crate::graph::builder::{Builder, Wire};
use crate::graph::calling::{CallArg, CallContext, CallResult};
use crate::graph::frame::{FrameSlot, MethodFrame};
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::table::{NodeTable, find};
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_model::executorch::body::ByteRange;
use pkgtool_model::executorch::coreml::{MilType, Operation, PackageFunction, Type, TypedValue};

use held::CoremlOperand;

/// Lowers an operation and returns its results, one for each output.
type LowerOperation = fn(&mut CoremlLowering<'_, '_>, &Operation) -> Results;

/// The results of an operation, one for each output.
type Results = TractResult<Vec<CoremlOperand>>;

/// Operations by type.
type OperationTable = NodeTable<LowerOperation>;

const OPERATION_TABLES: [OperationTable; 17] = [
    activation::TABLE,
    convolution::TABLE,
    create::TABLE,
    image::TABLE,
    index::TABLE,
    layer::TABLE,
    normal::TABLE,
    packed::TABLE,
    pointwise::TABLE,
    pool::TABLE,
    quantized::TABLE,
    rearrange::TABLE,
    recurrent::TABLE,
    reduce::TABLE,
    sample::TABLE,
    scatter::TABLE,
    shape::TABLE,
];

/// Returns whether operations of a type are supported.
pub(crate) fn is_supported(kind: &str) -> bool {
    find(&OPERATION_TABLES, kind).is_some()
}

/// A function being lowered.
struct CoremlLowering<'f, 'm> {
    frame: &'f mut MethodFrame<'m>,
    package: &'f PackageFunction,
    rounding: Rounding,
    values: HashMap<String, CoremlOperand>,
    /// States by name: their index and current content.
    states: BTreeMap<String, (usize, Wire)>,
}

/// Reads the package in a payload, or returns the standalone package.
fn read(
    weights: &ProgramWeights,
    payload: ByteRange,
) -> Result<Arc<PackageFunction>, LibraryFailure> {
    if let Some(package) = weights.package() {
        return Ok(package);
    }
    let named = |key: &str| weights.place(key);
    PackageFunction::read(weights.program(), payload, &named)
        .map(Arc::new)
        .map_err(|error| LibraryFailure::new(error.to_string()))
}

/// Returns the types of a payload's unsupported operations.
pub(crate) fn missing(
    weights: &ProgramWeights,
    payload: ByteRange,
) -> Result<BTreeSet<String>, LibraryFailure> {
    let package = read(weights, payload)?;
    let operations = &package.function.block.operations;
    let unknown = operations.iter().filter(|operation| {
        operation.has_blocks
            || (operation.kind != "const" && find(&OPERATION_TABLES, &operation.kind).is_none())
    });
    Ok(unknown.map(|operation| operation.kind.clone()).collect())
}

/// Lowers the call of a payload's function.
pub(crate) fn lower(
    frame: &mut MethodFrame<'_>,
    call: PayloadCall<'_>,
) -> Result<(), LibraryFailure> {
    let scope = call.scope;
    let package = read(frame.weights, call.payload)?;
    let (inputs, outputs) = call.split(frame, package.inputs.len(), package.outputs.len())?;
    let mut lowering = CoremlLowering {
        rounding: frame.rounding,
        frame,
        package: &package,
        values: HashMap::new(),
        states: BTreeMap::new(),
    };
    guarded(|| lowering.inputs(scope, inputs))?;
    let operations = package.function.block.operations.iter();
    let operations = operations.map(|operation| (operation.kind.as_str(), operation));
    lower_nodes(
        &mut lowering,
        CoremlLowering::builder,
        (scope, "operation"),
        operations,
        CoremlLowering::operation,
    )?;
    lowering.frame.builder.set_scope(scope.to_owned());
    for (name, &value) in package.outputs.iter().zip(outputs) {
        guarded(|| {
            let wire = lowering.named(name)?;
            lowering.frame.set_tensor(value, wire)
        })?;
    }
    for (value, wire) in lowering.states.into_values() {
        frame.now.slots.insert(value, FrameSlot::Tensor(wire));
    }
    Ok(())
}

impl CoremlLowering<'_, '_> {
    /// Reads the inputs as the function declares them, and the current states.
    fn inputs(&mut self, scope: &str, args: &[usize]) -> TractResult<()> {
        let declared: HashMap<&String, &Type> = self
            .package
            .function
            .inputs
            .iter()
            .map(|(name, ty)| (name, ty))
            .collect();
        for (name, &value) in self.package.inputs.iter().zip(args) {
            let FrameSlot::Tensor(wire) = self.frame.slot(value)? else {
                bail!("input `{name}` is not a tensor");
            };
            let ty = declared.get(name);
            let ty = ty.with_context(|| format!("the function has no input `{name}`"))?;
            let wire = self.frame.builder.cast(wire, self.stored_dtype(ty)?)?;
            self.values
                .insert(name.clone(), CoremlOperand::Tensor(wire));
        }
        for (name, ty) in &self.package.function.inputs {
            if !ty.is_state {
                continue;
            }
            let shape: Option<Vec<u64>> = ty.dims.iter().copied().collect();
            let shape = shape.context("sizes of a state are not fixed")?;
            let dtype = self.stored_dtype(ty)?;
            let name_of = format!("{scope} {name}");
            let state = self.frame.delegate_state(&name_of, (dtype, &shape), None)?;
            self.states.insert(name.clone(), state);
        }
        Ok(())
    }

    /// Returns the dtype in which values of a type are stored.
    fn stored_dtype(&self, ty: &Type) -> TractResult<DType> {
        Ok(self.rounding.computed_dtype(dtype_of(ty.kind)?))
    }

    /// Lowers one operation and stores its results.
    fn operation(&mut self, operation: &Operation) -> TractResult<()> {
        if operation.kind == "const" {
            let value = operation
                .attributes
                .get("val")
                .context("a constant has no value")?;
            for (name, _) in &operation.outputs {
                self.values
                    .insert(name.clone(), CoremlOperand::Constant(value.clone()));
            }
            return Ok(());
        }
        let lower = find(&OPERATION_TABLES, &operation.kind).context("unsupported operation")?;
        let given = lower(self, operation)?;
        ensure!(
            given.len() == operation.outputs.len(),
            "wrong number of results: got {}, expected {}",
            given.len(),
            operation.outputs.len()
        );
        for ((name, ty), held) in operation.outputs.iter().zip(given) {
            let held = match held {
                // Labels and dictionaries stand for probabilities.
                CoremlOperand::Tensor(wire) if operation.kind != layer::CLASSIFY => {
                    let dtype = self.stored_dtype(ty)?;
                    CoremlOperand::Tensor(self.frame.builder.cast(wire, dtype)?)
                }
                other => other,
            };
            self.values.insert(name.clone(), held);
        }
        Ok(())
    }

    /// Returns the graph under construction.
    fn builder(&mut self) -> &mut Builder {
        &mut self.frame.builder
    }

    /// Returns the context for calling operators of the table.
    fn caller(&mut self) -> CallContext<'_, '_> {
        CallContext {
            builder: &mut self.frame.builder,
            weights: self.frame.weights,
        }
    }

    /// Calls an operator of the table that returns one tensor.
    fn aten(&mut self, name: &str, args: Vec<CallArg>, dtype: DType) -> TractResult<Wire> {
        self.caller().tensor(name, args, dtype)
    }

    /// Calls an operator of the table whose tensor is the result of an operation.
    fn result(&mut self, operation: &Operation, name: &str, args: Vec<CallArg>) -> Results {
        let dtype = self.dtype(operation)?;
        self.aten_result(name, args, dtype)
    }

    /// Calls an operator of the table whose tensor is the only result.
    fn aten_result(&mut self, name: &str, args: Vec<CallArg>, dtype: DType) -> Results {
        self.aten(name, args, dtype).map(one)
    }

    /// Calls an operator and returns the first of its tensors.
    fn first(&mut self, name: &str, args: Vec<CallArg>, outs: &[DType]) -> TractResult<Wire> {
        let outs: Vec<CallResult> = outs
            .iter()
            .map(|dtype| CallResult::Tensor(*dtype))
            .collect();
        match self.caller().call(name, args, &outs)?.first() {
            Some(FrameSlot::Tensor(wire)) => Ok(*wire),
            _ => bail!("`{name}` did not return a tensor"),
        }
    }

    /// Returns the dtype of an operation's first result.
    fn dtype(&self, operation: &Operation) -> TractResult<DType> {
        let (_, ty) = operation
            .outputs
            .first()
            .context("an operation has no result")?;
        self.stored_dtype(ty)
    }
}

/// Returns one tensor as the result of an operation.
fn one(wire: Wire) -> Vec<CoremlOperand> {
    vec![CoremlOperand::Tensor(wire)]
}

/// Returns the dtype of a type's elements; elements narrower than a byte are stored in a byte.
fn dtype_of(kind: MilType) -> TractResult<DType> {
    Ok(match kind {
        MilType::Bool => DType::Bool,
        MilType::Float16 => DType::Float16,
        MilType::Bfloat16 => DType::Bfloat16,
        MilType::Float32 => DType::Float32,
        MilType::Float64 => DType::Float64,
        MilType::Int4 | MilType::Int8 => DType::Int8,
        MilType::Int16 => DType::Int16,
        MilType::Int32 => DType::Int32,
        MilType::Int64 => DType::Int64,
        MilType::Uint1
        | MilType::Uint2
        | MilType::Uint3
        | MilType::Uint4
        | MilType::Uint6
        | MilType::Uint8 => DType::Uint8,
        MilType::Uint16 => DType::Uint16,
        MilType::Uint32 => DType::Uint32,
        MilType::Uint64 => DType::Uint64,
        MilType::Text | MilType::Unknown => bail!("invalid element type {kind:?}"),
    })
}

/// Returns the types of all supported operations.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    crate::graph::table::kinds(&OPERATION_TABLES)
}

/// Returns the types of a payload's operations.
#[cfg(test)]
pub(crate) fn met(weights: &ProgramWeights, payload: ByteRange) -> Vec<String> {
    let package = read(weights, payload).expect("fixtures can be read");
    let operations = package.function.block.operations.iter();
    operations.map(|operation| operation.kind.clone()).collect()
}
