//! Reads a complete program for an engine: all values, instructions and delegates of its methods.
//!
//! The result owns its data and excludes weights, which are referenced by their [`ByteRange`] in
//! the file. Invariant: every index between values, operators, delegates and instructions is in
//! range, and every range lies inside the file. The engine checks that values suit their operators.

mod case;
mod data;
mod value;
mod wrong;

use std::collections::BTreeMap;

pub use super::storage::ByteRange;
pub use case::{BundledCase, BundledValue, bundled_cases};
pub use data::{DataFile, NamedTensor, data_files, data_files_in};
pub use value::{BodyValue, TensorBody, TensorData};
pub use wrong::{KnownDefect, known_defects};

use super::container::Container;
use super::flatbuffer::{Buffer, Field, Table, Vector};
use super::program::BASE_BUDGET;
use super::schema::{chain, plan, program};
use super::storage::Storage;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Approximate memory per index in a list, in bytes.
const INDEX_COST: u64 = 16;
/// Approximate memory of a name beyond its text, in bytes.
const NAME_COST: u64 = 64;

/// The methods of a program, and the data they share.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramBody {
    /// Methods in file order.
    pub methods: Vec<MethodBody>,
    /// Named data stored in the program.
    pub named: BTreeMap<String, ByteRange>,
}

/// One method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodBody {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Vec<BodyValue>,
    /// Indices of the values that are its inputs, in order.
    pub inputs: Vec<usize>,
    /// Indices of the values that are its outputs, in order.
    pub outputs: Vec<usize>,
    /// Full names of its operators (`aten::add.out`).
    pub operators: Vec<String>,
    /// Its delegates.
    pub delegates: Vec<DelegateBody>,
    /// Its instructions. A jump targets an index of this list, or its end.
    pub instructions: Vec<Instruction>,
}

/// A delegate of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateBody {
    /// Its backend (`XnnpackBackend`).
    pub id: String,
    /// Its payload; some backends store none.
    pub payload: Option<ByteRange>,
}

/// An instruction. Numbers are indices into the method's lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    /// Call an operator.
    Kernel {
        /// Index of the operator.
        operator: usize,
        /// Values: the arguments of the schema, the outputs, then the returned values.
        args: Vec<usize>,
    },
    /// Call a delegate.
    Delegate {
        /// Index of the delegate.
        delegate: usize,
        /// Values: its inputs, then its outputs.
        args: Vec<usize>,
    },
    /// Assign one value to another.
    Move {
        /// The source value.
        from: usize,
        /// The destination value.
        to: usize,
    },
    /// Jump if a value is false.
    JumpFalse {
        /// The condition.
        condition: usize,
        /// Index of the target instruction.
        destination: usize,
    },
    /// Release a value's memory.
    Free {
        /// The value.
        value: usize,
    },
}

impl ProgramBody {
    /// Reads the program in `source`, bundled or not.
    pub fn read(source: &dyn ReadAt) -> Result<Self, FormatError> {
        let container = Container::find(&Pages::with_budget(source, BASE_BUDGET))?;
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let end = container.start + container.flatbuffer;
        let buffer = Buffer::new(&pages, container.start, end);
        let root = buffer.root("Program")?;
        let mut storage = Storage::read(&root, &container)?;
        let plans = root.tables(program::EXECUTION_PLAN)?;
        let methods = plans
            .iter_tables()
            .map(|plan| MethodBody::read(&plan?, &mut storage))
            .collect::<Result<_, _>>()?;
        let named = storage.named();
        let named = named.map(|(key, stored)| (key.to_owned(), stored.into()));
        Ok(Self {
            methods,
            named: named.collect(),
        })
    }

    /// Returns the method of this name.
    pub fn method(&self, name: &str) -> Option<&MethodBody> {
        self.methods.iter().find(|method| method.name == name)
    }
}

impl MethodBody {
    fn read(table: &Table<'_>, storage: &mut Storage<'_>) -> Result<Self, FormatError> {
        let name = table
            .name(plan::NAME)?
            .ok_or_else(|| table.place(plan::NAME).missing())?;
        let values = table.tables(plan::VALUES)?;
        let count = values.len();
        let delegates = read_delegates(table, storage)?;
        let operators = read_operators(table)?;
        let reader = MethodReader {
            values: count,
            operators: operators.len() as u64,
            delegates: delegates.len() as u64,
        };
        Ok(Self {
            name,
            inputs: reader.indices(&table.vector(plan::INPUTS, 4)?)?,
            outputs: reader.indices(&table.vector(plan::OUTPUTS, 4)?)?,
            instructions: reader.instructions(table)?,
            values: values
                .iter_tables()
                .map(|value| BodyValue::read(value?, count, storage))
                .collect::<Result<_, _>>()?,
            operators,
            delegates,
        })
    }

    /// Returns whether the method may keep state from run to run, such as a cache or a counter.
    pub fn has_state(&self) -> bool {
        let writes = ["aten::copy_", "aten::index_put_", "llama::update_cache.out"];
        let stored = |value: &BodyValue| {
            let tensor = value.tensor();
            tensor.is_some_and(|tensor| matches!(tensor.data, TensorData::State(_)))
        };
        self.values.iter().any(stored)
            || self
                .operators
                .iter()
                .any(|name| writes.contains(&name.as_str()))
    }
}

fn read_delegates(
    table: &Table<'_>,
    storage: &mut Storage<'_>,
) -> Result<Vec<DelegateBody>, FormatError> {
    let mut delegates = Vec::new();
    for delegate in table.tables(plan::DELEGATES)?.iter_tables() {
        let delegate = delegate?;
        delegate.buffer().keep(NAME_COST, || delegate.here())?;
        let id = delegate.name(plan::DELEGATE_ID)?.unwrap_or_default();
        let payload = match delegate.table(plan::PROCESSED)? {
            Some(data) => Some(super::plan::find_payload(&data, &id, storage)?.into()),
            None => None,
        };
        delegates.push(DelegateBody { id, payload });
    }
    Ok(delegates)
}

fn read_operators(table: &Table<'_>) -> Result<Vec<String>, FormatError> {
    let operators = table.tables(plan::OPERATORS)?;
    let names = operators
        .iter_tables()
        .map(|operator| super::plan::operator_name(&operator?));
    names.collect()
}

/// Reads indices of a method and checks that they are in range.
struct MethodReader {
    values: u64,
    operators: u64,
    delegates: u64,
}

impl MethodReader {
    fn instructions(&self, table: &Table<'_>) -> Result<Vec<Instruction>, FormatError> {
        let mut all = Vec::new();
        for chain in table.tables(plan::CHAINS)?.iter_tables() {
            let instructions = chain?.tables(chain::INSTRUCTIONS)?;
            let first = all.len();
            for instruction in instructions.iter_tables() {
                let instruction = self.instruction(&instruction?, first, instructions.len())?;
                all.push(instruction);
            }
        }
        Ok(all)
    }

    fn instruction(
        &self,
        table: &Table<'_>,
        first: usize,
        count: u64,
    ) -> Result<Instruction, FormatError> {
        let keep = |size| table.buffer().keep(size, || table.here());
        keep(NAME_COST)?;
        let tag = table.u8(chain::ARGS_TYPE)?;
        let args = table.required_table(chain::INSTR_ARGS)?;
        let value = |field| index(&args, field, self.values, "values");
        Ok(match tag {
            1 => Instruction::Kernel {
                operator: index(&args, chain::OP_INDEX, self.operators, "operators")?,
                args: self.indices(&args.vector(chain::ARGS, 4)?)?,
            },
            2 => Instruction::Delegate {
                delegate: index(&args, chain::DELEGATE_INDEX, self.delegates, "delegates")?,
                args: self.indices(&args.vector(chain::ARGS, 4)?)?,
            },
            3 => Instruction::Move {
                from: value(chain::MOVE_FROM)?,
                to: value(chain::MOVE_TO)?,
            },
            4 => Instruction::JumpFalse {
                condition: value(chain::CONDITION)?,
                destination: first + index(&args, chain::DESTINATION, count + 1, "instructions")?,
            },
            5 => Instruction::Free {
                value: value(chain::FREED)?,
            },
            found => {
                return Err(table.place(chain::ARGS_TYPE).union_type(5, found));
            }
        })
    }

    fn indices(&self, vector: &Vector<'_>) -> Result<Vec<usize>, FormatError> {
        value_indices(vector, self.values)
    }
}

/// Reads indices of values.
fn value_indices(vector: &Vector<'_>, values: u64) -> Result<Vec<usize>, FormatError> {
    vector.keep(INDEX_COST)?;
    let indices = (0..vector.len()).map(|position| {
        in_range(vector.i32(position)?.into(), values, "values", || {
            vector.place(position)
        })
    });
    indices.collect()
}

fn index(
    table: &Table<'_>,
    field: Field,
    count: u64,
    what: &'static str,
) -> Result<usize, FormatError> {
    in_range(table.i32(field)?.into(), count, what, || table.place(field))
}

fn in_range(
    found: i64,
    count: u64,
    what: &'static str,
    place: impl FnOnce() -> FieldPosition,
) -> Result<usize, FormatError> {
    let index = u64::try_from(found).ok().filter(|&index| index < count);
    index
        .and_then(|index| usize::try_from(index).ok())
        .ok_or_else(|| place().index(what, count, found))
}
