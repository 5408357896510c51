//! Checks the calls in a method's instructions: operators must exist, and arguments must have types
//! that kernels and delegates accept.
//!
//! The operator table covers ExecuTorch's own operators. Operators in other namespaces belong to
//! applications and are not checked. Invariant: every instruction and argument is read at most
//! twice.

use super::super::flatbuffer::{Field, Table, Vector};
use super::super::payload_graph::AcceptedArguments;
use super::super::schema::{chain, plan, tensor};
use super::super::value::{BOOL, Evalue, TENSOR};
use super::kinds::{self, ValueTypes};
use super::operators::OperatorTable;
use super::require_field;
use crate::{FieldPosition, FormatError};

/// Size limit of an operator's full name in bytes (exclusive).
const NAME_BUFFER_BYTES: usize = 100;
/// Approximate memory per operator, in bytes.
const OPERATOR_MEMORY_BYTES: u64 = 24;
/// Approximate memory per value, in bytes.
const VALUE_MEMORY_BYTES: u64 = 3;
/// `ScalarType` of the tensors that a jump may depend on.
const BOOL_SCALAR_TYPE: i8 = 11;

/// A called operator, by the result of its lookup.
#[derive(Clone, Copy)]
enum Callee {
    /// The operator does not exist.
    Missing,
    /// The arguments of the operator are unknown.
    Unchecked,
    /// A kernel of ExecuTorch, with the type letters of its arguments.
    Kernel(&'static str),
}

/// A check of a method's instructions.
struct CallChecker<'c, 'a> {
    operators: Vector<'a>,
    callees: Vec<Callee>,
    values: &'c Vector<'a>,
    value_types: Vec<ValueTypes>,
    delegates: &'c [Option<AcceptedArguments>],
}

/// Checks the instructions of a plan; `delegates` are the arguments that calls of each delegate
/// must pass.
pub(super) fn check(
    plan: &Table<'_>,
    values: &Vector<'_>,
    delegates: &[Option<AcceptedArguments>],
) -> Result<(), FormatError> {
    let operators = plan.tables(plan::OPERATORS)?;
    operators.keep(OPERATOR_MEMORY_BYTES)?;
    values.keep(VALUE_MEMORY_BYTES)?;
    let mut calls = CallChecker {
        callees: look_up_callees(&operators)?,
        operators,
        values,
        value_types: Vec::new(),
        delegates,
    };
    let chains = plan.tables(plan::CHAINS)?;
    if chains.is_empty() {
        return Err(plan
            .place(plan::CHAINS)
            .expected("a chain of instructions", 0));
    }
    for chain in chains.iter_tables() {
        require_field(&chain?, chain::INSTRUCTIONS)?;
    }
    calls.value_types = kinds::types_of_values(values, &calls.replaced_values(&chains)?)?;
    visit_instructions(&chains, |kind, call| calls.check_instruction(kind, call))
}

/// Looks up the operators of a plan.
fn look_up_callees(operators: &Vector<'_>) -> Result<Vec<Callee>, FormatError> {
    let mut callees = Vec::new();
    for operator in operators.iter_tables() {
        let operator = operator?;
        require_field(&operator, plan::OPERATOR_NAME)?;
        let length = super::super::plan::operator_name(&operator)?.len();
        if length >= NAME_BUFFER_BYTES {
            return Err(operator.place(plan::OPERATOR_NAME).expected(
                format_args!("a string of at most {} bytes", NAME_BUFFER_BYTES as u64 - 1),
                format_args!("a length of {length}"),
            ));
        }
        callees.push(match look_up(&operator)? {
            Err(_) => Callee::Missing,
            Ok(None) => Callee::Unchecked,
            Ok(Some(letters)) => Callee::Kernel(letters),
        });
    }
    Ok(callees)
}

fn look_up(operator: &Table<'_>) -> Result<Result<Option<&'static str>, String>, FormatError> {
    let name = operator.name(plan::OPERATOR_NAME)?.unwrap_or_default();
    let overload = operator.name(plan::OVERLOAD)?.unwrap_or_default();
    Ok(OperatorTable::get().arguments(&name, &overload))
}

/// Visits all instructions with their type number and table.
fn visit_instructions<'a>(
    chains: &Vector<'a>,
    mut visit: impl FnMut(u8, &Table<'a>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    for chain in chains.iter_tables() {
        for instruction in chain?.tables(chain::INSTRUCTIONS)?.iter_tables() {
            let instruction = instruction?;
            let kind = instruction.u8(chain::ARGS_TYPE)?;
            visit(kind, &instruction.required_table(chain::INSTR_ARGS)?)?;
        }
    }
    Ok(())
}

impl<'a> CallChecker<'_, 'a> {
    /// Returns for each value whether an instruction replaces it.
    fn replaced_values(&self, chains: &Vector<'a>) -> Result<Vec<bool>, FormatError> {
        let count = usize::try_from(self.values.len()).unwrap_or(usize::MAX);
        let mut replaced = vec![false; count];
        visit_instructions(chains, |kind, call| {
            let value = match kind {
                1 => self.replaced_result(call)?,
                3 => usize::try_from(call.i32(chain::MOVE_TO)?).ok(),
                _ => None,
            };
            if let Some(found) = value.and_then(|value| replaced.get_mut(value)) {
                *found = true;
            }
            Ok(())
        })?;
        Ok(replaced)
    }

    /// Returns the value that an operator call replaces: its last argument, unless the kernel only
    /// writes into it.
    fn replaced_result(&self, call: &Table<'a>) -> Result<Option<usize>, FormatError> {
        let writes = match self.callee(call)? {
            Callee::Kernel(letters) => !letters.ends_with('#'),
            Callee::Unchecked | Callee::Missing => false,
        };
        let args = call.vector(chain::ARGS, 4)?;
        if writes || args.is_empty() {
            return Ok(None);
        }
        Ok(usize::try_from(args.i32(args.len() - 1)?).ok())
    }

    fn callee(&self, call: &Table<'a>) -> Result<Callee, FormatError> {
        let index = usize::try_from(call.i32(chain::OP_INDEX)?).ok();
        let callee = index.and_then(|index| self.callees.get(index));
        Ok(callee.copied().unwrap_or(Callee::Unchecked))
    }

    fn check_instruction(&self, kind: u8, call: &Table<'a>) -> Result<(), FormatError> {
        match kind {
            1 => self.check_operator_call(call),
            2 => self.check_delegate_call(call),
            4 => self.check_jump(call),
            5 => self.one(call, chain::FREED, &[TENSOR], "a free instruction"),
            _ => Ok(()),
        }
    }

    fn check_operator_call(&self, call: &Table<'a>) -> Result<(), FormatError> {
        require_field(call, chain::ARGS)?;
        let operator = || {
            self.operators
                .table(call.i32(chain::OP_INDEX)?.try_into().unwrap_or(0))
        };
        let letters = match self.callee(call)? {
            Callee::Unchecked => return Ok(()),
            Callee::Kernel(letters) => letters,
            Callee::Missing => {
                let operator = operator()?;
                return Err(operator.place(plan::OPERATOR_NAME).violates(format_args!(
                    "unknown operator `{}`: expected {}",
                    super::super::plan::operator_name(&operator)?,
                    look_up(&operator)?.err().unwrap_or_default()
                )));
            }
        };
        let args = call.vector(chain::ARGS, 4)?;
        if args.len() != letters.len() as u64 {
            return Err(args.here().expected(
                format_args!(
                    "{} arguments, as `{}` takes with its result",
                    letters.len(),
                    super::super::plan::operator_name(&operator()?)?
                ),
                args.len(),
            ));
        }
        for (position, letter) in (0..).zip(letters.bytes()) {
            let wanted = ValueTypes::from_letter(letter).unwrap_or(ValueTypes::ANY);
            let value = args.i32(position)?;
            if self.is(value, wanted) {
                continue;
            }
            let name = super::super::plan::operator_name(&operator()?)?;
            let taker = format!("argument {position} of `{name}`");
            return Err(self.type_error(&args.place(position), &taker, wanted, value));
        }
        Ok(())
    }

    /// Checks that a call passes the arguments that the delegate's payload takes.
    fn check_delegate_call(&self, call: &Table<'a>) -> Result<(), FormatError> {
        require_field(call, chain::ARGS)?;
        let delegate = usize::try_from(call.i32(chain::DELEGATE_INDEX)?).ok();
        let payload = delegate.and_then(|index| *self.delegates.get(index)?);
        let Some(AcceptedArguments { count, are_tensors }) = payload else {
            return Ok(());
        };
        let args = call.vector(chain::ARGS, 4)?;
        if args.len() < count {
            return Err(args.here().expected(
                format_args!("at least {count} arguments for the delegate's payload"),
                args.len(),
            ));
        }
        let wanted = ValueTypes::of(&[TENSOR]);
        for position in (0..count).filter(|_| are_tensors) {
            let value = args.i32(position)?;
            if !self.is(value, wanted) {
                let taker = "the delegate's payload";
                return Err(self.type_error(&args.place(position), taker, wanted, value));
            }
        }
        Ok(())
    }

    /// Checks that a jump depends on a boolean.
    fn check_jump(&self, call: &Table<'a>) -> Result<(), FormatError> {
        let taker = "a conditional jump";
        self.one(call, chain::CONDITION, &[BOOL, TENSOR], taker)?;
        let value = call.i32(chain::CONDITION)?;
        if !self.kind(value).is(TENSOR) {
            return Ok(());
        }
        let found = Evalue::read(self.values.table(value.try_into().unwrap_or(0))?)?;
        let code = found.table()?.i8(tensor::SCALAR_TYPE)?;
        if code == BOOL_SCALAR_TYPE {
            return Ok(());
        }
        Err(found.table()?.place(tensor::SCALAR_TYPE).expected(
            format_args!("{BOOL_SCALAR_TYPE} (bool) for {taker}"),
            code.unsigned_abs(),
        ))
    }

    /// Checks the single value that an instruction names.
    fn one(
        &self,
        call: &Table<'a>,
        field: Field,
        tags: &[u8],
        taker: &str,
    ) -> Result<(), FormatError> {
        let value = call.i32(field)?;
        let wanted = ValueTypes::of(tags);
        if self.is(value, wanted) {
            return Ok(());
        }
        Err(self.type_error(&call.place(field), taker, wanted, value))
    }

    fn is(&self, value: i32, wanted: ValueTypes) -> bool {
        self.kind(value).overlaps(wanted)
    }

    /// Returns the type of a value; the readers have checked its index.
    fn kind(&self, value: i32) -> ValueTypes {
        let index = usize::try_from(value).ok();
        let kind = index.and_then(|index| self.value_types.get(index));
        kind.copied().unwrap_or(ValueTypes::ANY)
    }

    fn type_error(
        &self,
        place: &FieldPosition,
        taker: &str,
        wanted: ValueTypes,
        value: i32,
    ) -> FormatError {
        let found = self.kind(value).names();
        place.expected(
            format_args!("{} for {taker}", wanted.names()),
            format_args!("value {value} ({found})"),
        )
    }
}
