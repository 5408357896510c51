//! Reads the test cases of a bundled program (`.bpte`): inputs and expected outputs.
//!
//! Source: `bundled_program_schema.fbs` (identifier `BP08`) of ExecuTorch 1.5. Elements of tensors
//! stay in the file.

use super::super::container::Container;
use super::super::element::element_of;
use super::super::flatbuffer::{Buffer, Field, Table, Vector};
use super::super::program::BASE_BUDGET;
use super::super::schema::bundle;
use super::ByteRange;
use crate::{ElementType, FormatError};
use pkgtool_base::source::{Pages, ReadAt};

const INPUTS: Field = Field(0, "inputs");
const EXPECTED: Field = Field(1, "expected_outputs");
const UNION_TYPE: Field = Field(0, "val_type");
const UNION: Field = Field(1, "val");
const SCALAR: Field = Field(0, "value");
const SCALAR_TYPE: Field = Field(0, "scalar_type");
const SIZES: Field = Field(1, "sizes");
const DATA: Field = Field(2, "data");
const DIM_ORDER: Field = Field(3, "dim_order");
/// Approximate memory per value, in bytes.
const VALUE_COST: u64 = 128;
/// Maximum number of dimensions of a tensor.
const MAX_RANK: u64 = 64;

/// One test case.
#[derive(Debug, Clone, PartialEq)]
pub struct BundledCase {
    /// The method it calls.
    pub method: String,
    /// Its index among the cases of the method.
    pub index: usize,
    /// Inputs of the call.
    pub inputs: Vec<BundledValue>,
    /// Expected outputs; empty if the case only checks that the method runs.
    pub expected: Vec<BundledValue>,
}

/// An input or an expected output.
#[derive(Debug, Clone, PartialEq)]
pub enum BundledValue {
    /// A tensor, row-major in its dimension order.
    Tensor {
        /// dtype.
        element: ElementType,
        /// Sizes, outermost first.
        sizes: Vec<u64>,
        /// Dimensions in memory order, outermost first.
        dim_order: Vec<usize>,
        /// Position of its elements in the file.
        bytes: ByteRange,
    },
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A floating-point number.
    Double(f64),
}

/// Returns the test cases of a program; empty if it is not bundled.
pub fn bundled_cases(source: &dyn ReadAt) -> Result<Vec<BundledCase>, FormatError> {
    let pages = Pages::with_budget(source, BASE_BUDGET);
    let container = Container::find(&pages)?;
    if container.bundle.is_none() {
        return Ok(Vec::new());
    }
    let buffer = Buffer::new(&pages, 0, pages.len());
    let root = buffer.root("BundledProgram")?;
    let mut cases = Vec::new();
    for suite in root.tables(bundle::SUITES)?.iter_tables() {
        let suite = suite?;
        let method = suite.name(bundle::METHOD)?.unwrap_or_default();
        for (index, case) in suite.tables(bundle::CASES)?.iter_tables().enumerate() {
            let case = case?;
            buffer.keep(VALUE_COST, || case.here())?;
            cases.push(BundledCase {
                method: method.clone(),
                index,
                inputs: read_values(&case.tables(INPUTS)?)?,
                expected: read_values(&case.tables(EXPECTED)?)?,
            });
        }
    }
    Ok(cases)
}

fn read_values(values: &Vector<'_>) -> Result<Vec<BundledValue>, FormatError> {
    values.keep(VALUE_COST)?;
    values
        .iter_tables()
        .map(|value| read_value(&value?))
        .collect()
}

fn read_value(value: &Table<'_>) -> Result<BundledValue, FormatError> {
    let tag = value.u8(UNION_TYPE)?;
    let table = value.required_table(UNION)?;
    match tag {
        1 => read_tensor(&table),
        2 => Ok(BundledValue::Int(table.i64(SCALAR)?)),
        3 => Ok(BundledValue::Bool(table.u8(SCALAR)? != 0)),
        4 => Ok(BundledValue::Double(table.f64(SCALAR)?)),
        found => Err(value.place(UNION_TYPE).union_type(4, found)),
    }
}

fn read_tensor(table: &Table<'_>) -> Result<BundledValue, FormatError> {
    let (element, width) = element_of(table.i8(SCALAR_TYPE)?);
    let sizes = table.vector(SIZES, 4)?;
    if sizes.len() > MAX_RANK {
        return Err(sizes.here().rank(MAX_RANK, sizes.len()));
    }
    let sizes = (0..sizes.len()).map(|at| {
        let found = sizes.i32(at)?;
        u64::try_from(found).map_err(|_| sizes.place(at).negative_size(found))
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_, _>>()?;
    let data = table.vector(DATA, 1)?;
    let mut product = sizes.iter().copied().chain(width);
    let needs = product.try_fold(1_u64, u64::checked_mul);
    if needs != Some(data.len()) {
        return Err(table.place(DATA).expected(
            format_args!("the elements of a tensor of sizes {sizes:?}"),
            data.len(),
        ));
    }
    Ok(BundledValue::Tensor {
        element,
        dim_order: read_order(table, sizes.len())?,
        sizes,
        bytes: ByteRange {
            offset: data.first(),
            size: data.len(),
        },
    })
}

fn read_order(table: &Table<'_>, rank: usize) -> Result<Vec<usize>, FormatError> {
    let order = table.vector(DIM_ORDER, 1)?;
    if order.is_empty() {
        return Ok((0..rank).collect());
    }
    let found = (0..order.len()).map(|at| order.u8(at).map(usize::from));
    let found: Vec<usize> = found.collect::<Result<_, _>>()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    if sorted.into_iter().eq(0..rank) {
        Ok(found)
    } else {
        Err(table.place(DIM_ORDER).layout(0))
    }
}
