//! Reads one method: an `ExecutionPlan` with its values, instructions and delegates.
//!
//! Invariant: every index in the plan is in range, including indices that this tool does not use.

use std::collections::{BTreeMap, BTreeSet};

use super::delegate::PayloadReader;
use super::evidence::{Evidence, EvidenceOperator, ValueUses};
use super::flatbuffer::{Field, Table, Vector};
use super::schema::{chain, plan};
use super::storage::{Externals, Storage, StoredRange};
use super::value::{Evalue, ProgramTensor, TENSOR};
use super::wiring::{self, Wiring};
use crate::{Delegate, Dynamism, FieldPosition, FormatError, Method, ModelValue};

/// Last member of the union `InstructionArguments`.
const LAST_INSTRUCTION: u8 = 5;
/// Approximate memory per index in a set, in bytes.
const INDEX_COST: u64 = 24;

/// A method with the evidence for its dynamic dimensions.
pub(super) struct MethodPlan {
    /// The method; its bounded tensors are not resolved yet.
    pub(super) method: Method,
    /// Indices of the values that are its inputs.
    pub(super) inputs: Vec<u64>,
    /// Indices of the values that are its outputs.
    pub(super) outputs: Vec<u64>,
    /// Evidence from its instructions.
    pub(super) evidence: Evidence,
    /// Evidence from its delegates.
    pub(super) wiring: Wiring,
}

impl MethodPlan {
    /// Reads a plan. Adds the names of tensors in other files to `externals`.
    pub(super) fn read(
        table: &Table<'_>,
        storage: &mut Storage<'_>,
        payloads: &PayloadReader<'_>,
        externals: &mut Externals,
    ) -> Result<Self, FormatError> {
        let name = table
            .name(plan::NAME)?
            .ok_or_else(|| table.place(plan::NAME).missing())?;
        let (delegates, stored) = read_delegates(table, storage)?;
        let values = table.tables(plan::VALUES)?;
        let mut evidence = Evidence::default();
        check_values(&values, storage, externals, &mut evidence)?;
        let inputs = read_indices(table, plan::INPUTS, &values)?;
        let outputs = read_indices(table, plan::OUTPUTS, &values)?;
        let mut code = InstructionWalk::new(table, &values, delegates.len() as u64)?;
        code.read(table)?;
        code.traces.evaluate(&inputs, storage, &mut evidence)?;
        let method = wiring::MethodParts {
            values: &values,
            inputs: &inputs.iter().copied().collect(),
            storage,
            payloads,
        };
        let wiring = wire_delegates(&method, &outputs, &code, &delegates, &stored)?;
        Ok(Self {
            method: Method {
                name,
                inputs: describe(&inputs, &values, storage)?,
                outputs: describe(&outputs, &values, storage)?,
                constant: inputs.is_empty() && code.instructions == 0,
                delegates,
                operators: code.counts(),
                optional: BTreeSet::new(),
            },
            inputs,
            outputs,
            evidence,
            wiring,
        })
    }
}

/// Connects the graphs of delegates with the method's values. With branches, a value may come from
/// either branch, so nothing is concluded.
fn wire_delegates(
    method: &wiring::MethodParts<'_>,
    outputs: &[u64],
    code: &InstructionWalk<'_>,
    delegates: &[Delegate],
    stored: &[Option<StoredRange>],
) -> Result<Wiring, FormatError> {
    let mut wiring = Wiring::default();
    for &value in method.inputs.iter().chain(outputs) {
        wiring.tensor(method, value)?;
    }
    if code.branches {
        return Ok(wiring);
    }
    for &(delegate, ref args) in &code.delegated {
        if let Some(payload) = stored[delegate] {
            wiring.call(method, (&delegates[delegate].id, payload), args)?;
        }
    }
    Ok(wiring)
}

/// Returns the delegates and the positions of their payloads.
fn read_delegates(
    table: &Table<'_>,
    storage: &mut Storage<'_>,
) -> Result<(Vec<Delegate>, Vec<Option<StoredRange>>), FormatError> {
    let mut delegates = Vec::new();
    let mut payloads = Vec::new();
    for delegate in table.tables(plan::DELEGATES)?.iter_tables() {
        let delegate = delegate?;
        let id = delegate.name(plan::DELEGATE_ID)?.unwrap_or_default();
        let payload = match delegate.table(plan::PROCESSED)? {
            Some(data) => Some(find_payload(&data, &id, storage)?),
            None => None,
        };
        let payload_bytes = payload.map(|payload| payload.available);
        delegates.push(Delegate { id, payload_bytes });
        payloads.push(payload);
    }
    Ok((delegates, payloads))
}

/// Returns the position of a delegate's payload.
pub(super) fn find_payload(
    data: &Table<'_>,
    id: &str,
    storage: &mut Storage<'_>,
) -> Result<StoredRange, FormatError> {
    let index = data.u32(plan::INDEX)?;
    let place = || data.place(plan::INDEX);
    match data.i8(plan::LOCATION)? {
        0 => storage.inline_payload(index, place),
        1 => storage.segment_payload(index, id, place),
        found => Err(data.place(plan::LOCATION).enum_value(1, found)),
    }
}

/// Checks every value of a method and records the evidence of single tensors.
fn check_values(
    values: &Vector<'_>,
    storage: &Storage<'_>,
    externals: &mut Externals,
    evidence: &mut Evidence,
) -> Result<(), FormatError> {
    for outer in values.iter_tables() {
        let found = Evalue::read(outer?)?;
        if found.tag != TENSOR {
            continue;
        }
        let tensor = ProgramTensor::read(found.table()?, storage)?;
        // Only one dimension of this tensor can vary, so that one is dynamic.
        let mut large = tensor.sizes.iter().filter(|&&size| size > 1);
        if let (Dynamism::Bounded, Some(&bound), None) =
            (tensor.dynamism, large.next(), large.next())
        {
            evidence.bounds.insert(bound);
        }
        if let Some(name) = tensor.external.clone()
            && !storage.has_named(&name)
        {
            externals.insert(name, Some(tensor.into_info()));
        }
    }
    Ok(())
}

fn describe(
    indices: &[u64],
    values: &Vector<'_>,
    storage: &Storage<'_>,
) -> Result<Vec<ModelValue>, FormatError> {
    indices
        .iter()
        .map(|&index| {
            let found = Evalue::read(values.table(index)?)?;
            Ok(ModelValue::unnamed(found.describe(storage)?))
        })
        .collect()
}

fn read_indices(
    table: &Table<'_>,
    field: Field,
    values: &Vector<'_>,
) -> Result<Vec<u64>, FormatError> {
    let vector = table.vector(field, 4)?;
    let mut indices = Vec::new();
    for position in 0..vector.len() {
        let found = vector.i32(position)?;
        let place = || vector.place(position);
        table.buffer().keep(INDEX_COST, place)?;
        indices.push(in_range(found, values.len(), "values", place)?);
    }
    Ok(indices)
}

fn in_range(
    found: i32,
    count: u64,
    what: &'static str,
    place: impl FnOnce() -> FieldPosition,
) -> Result<u64, FormatError> {
    u64::try_from(found)
        .ok()
        .filter(|&index| index < count)
        .ok_or_else(|| place().index(what, count, found))
}

/// Returns an operator's full name: `aten::add.out`.
pub(super) fn operator_name(operator: &Table<'_>) -> Result<String, FormatError> {
    let mut name = operator.name(plan::OPERATOR_NAME)?.unwrap_or_default();
    let overload = operator.name(plan::OVERLOAD)?.unwrap_or_default();
    if !overload.is_empty() {
        name.push('.');
        name.push_str(&overload);
    }
    Ok(name)
}

/// A walk over a method's instructions.
struct InstructionWalk<'a> {
    values: Vector<'a>,
    operators: Vec<(String, u64)>,
    delegates: u64,
    instructions: u64,
    /// True if an instruction jumps.
    branches: bool,
    /// Calls of delegates: index of the delegate and arguments.
    delegated: Vec<(usize, Vec<u64>)>,
    traces: ValueUses<'a>,
}

impl<'a> InstructionWalk<'a> {
    fn new(table: &Table<'a>, values: &Vector<'a>, delegates: u64) -> Result<Self, FormatError> {
        let mut operators = Vec::new();
        for operator in table.tables(plan::OPERATORS)?.iter_tables() {
            operators.push((operator_name(&operator?)?, 0));
        }
        Ok(Self {
            values: values.clone(),
            operators,
            delegates,
            instructions: 0,
            branches: false,
            delegated: Vec::new(),
            traces: ValueUses::new(values.clone()),
        })
    }

    fn read(&mut self, table: &Table<'a>) -> Result<(), FormatError> {
        for chain in table.tables(plan::CHAINS)?.iter_tables() {
            let instructions = chain?.tables(chain::INSTRUCTIONS)?;
            for instruction in instructions.iter_tables() {
                self.instructions += 1;
                self.instruction(&instruction?, instructions.len())?;
            }
        }
        Ok(())
    }

    fn instruction(&mut self, table: &Table<'a>, count: u64) -> Result<(), FormatError> {
        let tag = table.u8(chain::ARGS_TYPE)?;
        if tag == 0 || tag > LAST_INSTRUCTION {
            return Err(table
                .place(chain::ARGS_TYPE)
                .union_type(LAST_INSTRUCTION, tag));
        }
        let args = table.required_table(chain::INSTR_ARGS)?;
        match tag {
            1 => self.kernel_call(&args),
            2 => self.delegate_call(&args),
            3 => {
                self.value(&args, chain::MOVE_FROM)?;
                let target = self.value(&args, chain::MOVE_TO)?;
                self.computes(&args, target)
            }
            4 => {
                self.branches = true;
                self.value(&args, chain::CONDITION)?;
                // A jump may target the end, after the last instruction.
                index(&args, chain::DESTINATION, count + 1, "instructions").map(|_| ())
            }
            _ => self.value(&args, chain::FREED).map(|_| ()),
        }
    }

    fn kernel_call(&mut self, call: &Table<'a>) -> Result<(), FormatError> {
        let count = self.operators.len() as u64;
        let operator = index(call, chain::OP_INDEX, count, "operators")?;
        let position = usize::try_from(operator).expect("an index of a Vec");
        self.operators[position].1 += 1;
        let args = call.vector(chain::ARGS, 4)?;
        let mut telling = [0; 3];
        for position in 0..args.len() {
            let value = self.argument(&args, position)?;
            telling[usize::try_from(position).map_or(2, |position| position.min(2))] = value;
        }
        // The last argument of an operator is its result.
        if !args.is_empty() {
            let last = self.argument(&args, args.len() - 1)?;
            self.computes(call, last)?;
        }
        let told = EvidenceOperator::from_name(&self.operators[position].0);
        if let (Some(told), true) = (told, args.len() >= 3) {
            call.buffer().keep(2 * INDEX_COST, || call.here())?;
            self.traces.calls(told, telling);
        }
        Ok(())
    }

    fn delegate_call(&mut self, call: &Table<'a>) -> Result<(), FormatError> {
        let delegate = index(call, chain::DELEGATE_INDEX, self.delegates, "delegates")?;
        let delegate = usize::try_from(delegate).expect("an index of a Vec");
        let args = call.vector(chain::ARGS, 4)?;
        call.buffer().keep(2 * INDEX_COST, || call.here())?;
        let mut passed = Vec::new();
        for position in 0..args.len() {
            let value = self.argument(&args, position)?;
            call.buffer()
                .keep(2 * INDEX_COST, || args.place(position))?;
            self.traces.delegates(value);
            passed.push(value);
        }
        self.delegated.push((delegate, passed));
        Ok(())
    }

    fn computes(&mut self, call: &Table<'a>, value: u64) -> Result<(), FormatError> {
        call.buffer().keep(INDEX_COST, || call.here())?;
        self.traces.computes(value);
        Ok(())
    }

    fn argument(&self, args: &Vector<'a>, position: u64) -> Result<u64, FormatError> {
        let place = || args.place(position);
        in_range(args.i32(position)?, self.values.len(), "values", place)
    }

    fn value(&self, table: &Table<'a>, field: Field) -> Result<u64, FormatError> {
        index(table, field, self.values.len(), "values")
    }

    /// Returns the number of calls of each operator.
    fn counts(self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in self.operators {
            if count > 0 {
                *counts.entry(name).or_default() += count;
            }
        }
        counts
    }
}

fn index(
    table: &Table<'_>,
    field: Field,
    count: u64,
    what: &'static str,
) -> Result<u64, FormatError> {
    in_range(table.i32(field)?, count, what, || table.place(field))
}
