//! The instructions of a method as those see them that measure how long each takes.

use super::container::Container;
use super::error::Error;
use super::flatbuffer::{Buffer, Table};
use super::schema::{chain, plan, program};
use crate::source::pages::DEFAULT_BUDGET;
use crate::source::{Pages, ReadAt};

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Runs an operator's kernel.
    Kernel,
    /// Runs a delegated part on the backend of this name.
    Delegate(String),
    /// Moves or frees a value.
    Other,
}

/// The instructions of a method in the order in which they run; `None` if that is not their order in
/// the file, because some of them jump, or if there is no such method.
pub fn calls(source: &dyn ReadAt, method: &str) -> Result<Option<Vec<Call>>, Error> {
    let pages = Pages::with_budget(source, DEFAULT_BUDGET);
    let container = Container::find(&pages)?;
    let end = container.start + container.flatbuffer;
    let buffer = Buffer::new(&pages, container.start, end);
    let root = buffer.root("Program")?;
    for table in root.tables(program::EXECUTION_PLAN)?.iter_tables() {
        let table = table?;
        if table.name(plan::NAME)?.as_deref() == Some(method) {
            return of_plan(&table);
        }
    }
    Ok(None)
}

fn of_plan(table: &Table<'_>) -> Result<Option<Vec<Call>>, Error> {
    let mut ids = Vec::new();
    for delegate in table.tables(plan::DELEGATES)?.iter_tables() {
        ids.push(delegate?.name(plan::DELEGATE_ID)?.unwrap_or_default());
    }
    let mut calls = Vec::new();
    for chain in table.tables(plan::CHAINS)?.iter_tables() {
        for instruction in chain?.tables(chain::INSTRUCTIONS)?.iter_tables() {
            let instruction = instruction?;
            let call = match instruction.u8(chain::ARGS_TYPE)? {
                1 => Call::Kernel,
                2 => {
                    let args = instruction.required(chain::INSTR_ARGS)?;
                    let index = usize::try_from(args.i32(chain::DELEGATE_INDEX)?).ok();
                    let id = index.and_then(|index| ids.get(index));
                    Call::Delegate(id.cloned().unwrap_or_default())
                }
                4 => return Ok(None),
                _ => Call::Other,
            };
            instruction.buffer().keep(48, || instruction.here())?;
            calls.push(call);
        }
    }
    Ok(Some(calls))
}
