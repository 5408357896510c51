//! What instructions call, and with what: operators that exist, and arguments of the kinds that kernels and delegates
//! take.
//!
//! The table of operators holds ExecuTorch's own. What is of another namespace is an application's, and not checked.
//! Invariant: every instruction and argument is read at most twice.

use super::super::error::{Error, Place};
use super::super::flatbuffer::{Field, Table, Vector};
use super::super::payload_graph::Taken;
use super::super::schema::{chain, plan, tensor};
use super::super::value::{BOOL, Evalue, TENSOR};
use super::kinds::{self, Kinds};
use super::operators::Operators;
use super::present;

/// Bytes that an operator's full name must stay below.
const NAME_ROOM: usize = 100;
/// Bytes that are kept of an operator, about.
const OPERATOR_COST: u64 = 24;
/// Bytes that are kept of a value, about.
const VALUE_COST: u64 = 3;
/// The type of tensors that a jump may depend on.
const BOOL_ELEMENTS: i8 = 11;

/// An operator of a method, by what is known of it.
#[derive(Clone, Copy)]
enum Callee {
    /// None of this name exists.
    Missing,
    /// One whose arguments are not known.
    Foreign,
    /// One of ExecuTorch's own, with the letters of its arguments.
    Kernel(&'static str),
}

/// A method's instructions, and what they are held against.
struct Calls<'c, 'a> {
    operators: Vector<'a>,
    callees: Vec<Callee>,
    values: &'c Vector<'a>,
    kinds: Vec<Kinds>,
    delegates: &'c [Option<Taken>],
}

/// Checks the instructions of a plan; `delegates` is what calls of each delegate must pass.
pub(super) fn check(
    plan: &Table<'_>,
    values: &Vector<'_>,
    delegates: &[Option<Taken>],
) -> Result<(), Error> {
    let operators = plan.tables(plan::OPERATORS)?;
    operators.keep(OPERATOR_COST)?;
    values.keep(VALUE_COST)?;
    let mut calls = Calls {
        callees: callees(&operators)?,
        operators,
        values,
        kinds: Vec::new(),
        delegates,
    };
    let chains = plan.tables(plan::CHAINS)?;
    if chains.is_empty() {
        return Err(Error::Value {
            place: plan.place(plan::CHAINS),
            expected: "a chain of instructions".to_owned(),
            found: 0,
        });
    }
    for chain in chains.iter_tables() {
        present(&chain?, chain::INSTRUCTIONS)?;
    }
    calls.kinds = kinds::of_values(values, &calls.replaced(&chains)?)?;
    each(&chains, |kind, call| calls.instruction(kind, call))
}

/// Looks up the operators of a plan.
fn callees(operators: &Vector<'_>) -> Result<Vec<Callee>, Error> {
    let mut callees = Vec::new();
    for operator in operators.iter_tables() {
        let operator = operator?;
        present(&operator, plan::OPERATOR_NAME)?;
        let length = super::super::plan::operator_name(&operator)?.len();
        if length >= NAME_ROOM {
            return Err(Error::StringLength {
                place: operator.place(plan::OPERATOR_NAME),
                found: u32::try_from(length).unwrap_or(u32::MAX),
                most: NAME_ROOM as u64 - 1,
            });
        }
        callees.push(match look_up(&operator)? {
            Err(_) => Callee::Missing,
            Ok(None) => Callee::Foreign,
            Ok(Some(letters)) => Callee::Kernel(letters),
        });
    }
    Ok(callees)
}

fn look_up(operator: &Table<'_>) -> Result<Result<Option<&'static str>, String>, Error> {
    let name = operator.name(plan::OPERATOR_NAME)?.unwrap_or_default();
    let overload = operator.name(plan::OVERLOAD)?.unwrap_or_default();
    Ok(Operators::get().arguments(&name, &overload))
}

/// Visits all instructions: the number of their kind, and what they are.
fn each<'a>(
    chains: &Vector<'a>,
    mut visit: impl FnMut(u8, &Table<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    for chain in chains.iter_tables() {
        for instruction in chain?.tables(chain::INSTRUCTIONS)?.iter_tables() {
            let instruction = instruction?;
            let kind = instruction.u8(chain::ARGS_TYPE)?;
            visit(kind, &instruction.required(chain::INSTR_ARGS)?)?;
        }
    }
    Ok(())
}

impl<'a> Calls<'_, 'a> {
    /// Returns for each value whether an instruction replaces it.
    fn replaced(&self, chains: &Vector<'a>) -> Result<Vec<bool>, Error> {
        let count = usize::try_from(self.values.len()).unwrap_or(usize::MAX);
        let mut replaced = vec![false; count];
        each(chains, |kind, call| {
            let value = match kind {
                1 => self.result(call)?,
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

    /// Returns the value that a call of an operator replaces: its last argument, unless the kernel only writes into it.
    fn result(&self, call: &Table<'a>) -> Result<Option<usize>, Error> {
        let writes = match self.callee(call)? {
            Callee::Kernel(letters) => !letters.ends_with('#'),
            Callee::Foreign | Callee::Missing => false,
        };
        let args = call.vector(chain::ARGS, 4)?;
        if writes || args.is_empty() {
            return Ok(None);
        }
        Ok(usize::try_from(args.i32(args.len() - 1)?).ok())
    }

    fn callee(&self, call: &Table<'a>) -> Result<Callee, Error> {
        let index = usize::try_from(call.i32(chain::OP_INDEX)?).ok();
        let callee = index.and_then(|index| self.callees.get(index));
        Ok(callee.copied().unwrap_or(Callee::Foreign))
    }

    fn instruction(&self, kind: u8, call: &Table<'a>) -> Result<(), Error> {
        match kind {
            1 => self.operator_call(call),
            2 => self.delegate_call(call),
            4 => self.jump(call),
            5 => self.one(call, chain::FREED, &[TENSOR], "an instruction that frees"),
            _ => Ok(()),
        }
    }

    fn operator_call(&self, call: &Table<'a>) -> Result<(), Error> {
        present(call, chain::ARGS)?;
        let operator = || {
            self.operators
                .table(call.i32(chain::OP_INDEX)?.try_into().unwrap_or(0))
        };
        let letters = match self.callee(call)? {
            Callee::Foreign => return Ok(()),
            Callee::Kernel(letters) => letters,
            Callee::Missing => {
                let operator = operator()?;
                return Err(Error::Operator {
                    place: operator.place(plan::OPERATOR_NAME),
                    found: super::super::plan::operator_name(&operator)?,
                    expected: look_up(&operator)?.err().unwrap_or_default(),
                });
            }
        };
        let args = call.vector(chain::ARGS, 4)?;
        if args.len() != letters.len() as u64 {
            return Err(Error::Arguments {
                place: args.here(),
                operator: super::super::plan::operator_name(&operator()?)?,
                expected: letters.len(),
                found: args.len(),
            });
        }
        for (position, letter) in (0..).zip(letters.bytes()) {
            let wanted = Kinds::of_letter(letter).unwrap_or(Kinds::ANY);
            let value = args.i32(position)?;
            if self.is(value, wanted) {
                continue;
            }
            let name = super::super::plan::operator_name(&operator()?)?;
            let taker = format!("argument {position} of `{name}`");
            return Err(self.wrong(args.place(position), &taker, wanted, value));
        }
        Ok(())
    }

    /// Checks that a call passes what the delegate's payload takes.
    fn delegate_call(&self, call: &Table<'a>) -> Result<(), Error> {
        present(call, chain::ARGS)?;
        let delegate = usize::try_from(call.i32(chain::DELEGATE_INDEX)?).ok();
        let payload = delegate.and_then(|index| *self.delegates.get(index)?);
        let Some(Taken { count, are_tensors }) = payload else {
            return Ok(());
        };
        let args = call.vector(chain::ARGS, 4)?;
        if args.len() < count {
            return Err(Error::Value {
                place: args.here(),
                expected: format!("at least {count} arguments, as the delegate's payload takes"),
                found: args.len(),
            });
        }
        let wanted = Kinds::of(&[TENSOR]);
        for position in (0..count).filter(|_| are_tensors) {
            let value = args.i32(position)?;
            if !self.is(value, wanted) {
                let taker = "the delegate's payload";
                return Err(self.wrong(args.place(position), taker, wanted, value));
            }
        }
        Ok(())
    }

    /// Checks that a jump depends on a truth value.
    fn jump(&self, call: &Table<'a>) -> Result<(), Error> {
        let taker = "a conditional jump";
        self.one(call, chain::CONDITION, &[BOOL, TENSOR], taker)?;
        let value = call.i32(chain::CONDITION)?;
        if !self.kind(value).is(TENSOR) {
            return Ok(());
        }
        let found = Evalue::read(self.values.table(value.try_into().unwrap_or(0))?)?;
        let code = found.table()?.i8(tensor::SCALAR_TYPE)?;
        if code == BOOL_ELEMENTS {
            return Ok(());
        }
        Err(Error::Value {
            place: found.table()?.place(tensor::SCALAR_TYPE),
            expected: format!("{BOOL_ELEMENTS} (bool), as {taker} takes"),
            found: code.unsigned_abs().into(),
        })
    }

    /// Checks the one value that an instruction names.
    fn one(&self, call: &Table<'a>, field: Field, tags: &[u8], taker: &str) -> Result<(), Error> {
        let value = call.i32(field)?;
        let wanted = Kinds::of(tags);
        if self.is(value, wanted) {
            return Ok(());
        }
        Err(self.wrong(call.place(field), taker, wanted, value))
    }

    fn is(&self, value: i32, wanted: Kinds) -> bool {
        self.kind(value).may_be(wanted)
    }

    /// Returns the kind of a value; the readers have found its index to be in range.
    fn kind(&self, value: i32) -> Kinds {
        let index = usize::try_from(value).ok();
        let kind = index.and_then(|index| self.kinds.get(index));
        kind.copied().unwrap_or(Kinds::ANY)
    }

    fn wrong(&self, place: Place, taker: &str, wanted: Kinds, value: i32) -> Error {
        let found = self.kind(value).names();
        Error::Kind {
            place,
            expected: format!("{}, as {taker} takes", wanted.names()),
            found: format!("value {value}, which is {found}"),
        }
    }
}
