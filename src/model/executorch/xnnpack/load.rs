//! What XNNPACK's delegate wants of its payload when a device loads it.
//!
//! Its header, its FlatBuffer, and that constants are where their values say. A payload that does not
//! begin like one of XNNPACK's is not looked into, nor is any other backend's: see `delegate/mod.rs`.
//! Invariant: reads of all payloads of a program are counted against one budget, and a payload that is
//! delegated several times is read once.

use std::collections::BTreeSet;

use super::super::error::{Error, Place};
use super::super::flatbuffer::{Buffer, Field, Table};
use super::super::storage::{Externals, Storage, Stored};
use super::super::verify::verify;
use super::schema::GRAPH;
use crate::package::Backend;
use crate::source::pages::PageError;
use crate::source::{Pages, ReadAt};

/// The backend.
pub(in super::super) const BACKEND: &str = Backend::Xnnpack.delegate_id();
/// Reads that all payloads of a program have together.
const BUDGET: u64 = 8_000_000;
/// Length of the header `XH00`.
const HEADER: u64 = 30;
/// Bits of a value's flags: input and output of the graph.
const FLAGS: u32 = 3;

const NODES: Field = Field(1, "xnodes");
const VALUES: Field = Field(2, "xvalues");
const BUFFERS: Field = Field(6, "constant_buffer");
const CONSTANTS: Field = Field(8, "constant_data");
const KEY: Field = Field(2, "named_key");
const OFFSET: Field = Field(0, "offset");
const UNION_TYPE: Field = Field(0, "xvalue_union_type");
const UNION: Field = Field(1, "xvalue_union");
const INNER: Field = Field(0, "tensor_value");
const CONSTANT: Field = Field(3, "constant_buffer_idx");
const VALUE_FLAGS: Field = Field(5, "flags");

/// The payloads of a program that were checked.
pub(in super::super) struct Checked<'a> {
    pages: Pages<'a>,
    seen: BTreeSet<u64>,
}

impl<'a> Checked<'a> {
    /// None yet of this file.
    pub(in super::super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, BUDGET),
            seen: BTreeSet::new(),
        }
    }

    /// Checks a payload; names of constants that the program does not hold are added to `externals`.
    pub(in super::super) fn check(
        &mut self,
        payload: Stored,
        storage: &Storage<'_>,
        externals: &mut Externals,
    ) -> Result<(), Error> {
        if !self.seen.insert(payload.offset) {
            return Ok(());
        }
        match self.read(payload, storage, externals) {
            // So large a graph is the device's matter.
            Err(Error::Read {
                error: PageError::BudgetSpent { .. },
                ..
            }) => Ok(()),
            outcome => outcome,
        }
    }

    fn read(
        &self,
        payload: Stored,
        storage: &Storage<'_>,
        externals: &mut Externals,
    ) -> Result<(), Error> {
        let Some(extent) = self.extent(payload)? else {
            return Ok(());
        };
        let (start, size) = extent.graph;
        verify(&self.pages, extent.graph, "XNNGraph", &GRAPH)?;
        let buffer = Buffer::new(&self.pages, start, start + size);
        let root = buffer.root("XNNGraph")?;
        for field in [NODES, VALUES] {
            if !root.has(field)? {
                return Err(Error::MissingField {
                    place: root.place(field),
                });
            }
        }
        let constants = root.tables(CONSTANTS)?;
        let count = constants.len().max(root.tables(BUFFERS)?.len());
        for value in root.tables(VALUES)?.iter_tables() {
            check_value(&value?, count)?;
        }
        // The first stands for no constant.
        for index in 1..constants.len() {
            let constant = constants.table(index)?;
            let key = constant.name(KEY)?.filter(|key| !key.is_empty());
            match key {
                Some(key) if storage.has_named(&key) => {}
                Some(key) => {
                    constant.buffer().keep(64, || constant.here())?;
                    externals.insert(key, None);
                }
                None => {
                    let offset = constant.u64(OFFSET)?;
                    if offset > extent.constants {
                        return Err(Error::DataOffset {
                            place: constant.place(OFFSET),
                            found: offset,
                            most: extent.constants,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Where the graph is, and how many bytes of constants follow; `None` if it is no such payload.
    fn extent(&self, payload: Stored) -> Result<Option<Extent>, Error> {
        let (start, len) = (payload.offset, payload.available);
        if len < HEADER {
            return Ok(None);
        }
        let place = |at: u64, field: &str| Place {
            path: format!("XNNPACK payload header.{field}"),
            offset: start + at,
        };
        let header: [u8; 30] = self.pages.array(start).map_err(|error| Error::Read {
            place: place(0, "magic"),
            error,
        })?;
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("four bytes");
            u64::from(u32::from_le_bytes(bytes))
        };
        match &header[4..8] {
            b"XN00" | b"XN01" => Ok(Some(Extent {
                graph: (start, len),
                constants: 0,
            })),
            b"XH00" => {
                let (offset, size, data) = (number(10), number(14), number(18));
                let constants = header[22..30].try_into().expect("eight bytes");
                let constants = u64::from_le_bytes(constants);
                if size == 0 || offset + size > len {
                    return Err(Error::ProgramSize {
                        place: place(14, "flatbuffer_size"),
                        found: size,
                        least: 8,
                        most: len.saturating_sub(offset),
                    });
                }
                if data.checked_add(constants).is_none_or(|end| end > len) {
                    return Err(Error::Truncated {
                        place: place(22, "constant_data_size"),
                        size: constants,
                        base: data,
                        needs: u128::from(data) + u128::from(constants),
                        len,
                    });
                }
                Ok(Some(Extent {
                    graph: (start + offset, size),
                    constants,
                }))
            }
            _ => Ok(None),
        }
    }
}

/// Parts of a payload.
struct Extent {
    /// Where the FlatBuffer is in the file: offset and size.
    graph: (u64, u64),
    /// Bytes of constants behind it.
    constants: u64,
}

fn check_value(value: &Table<'_>, constants: u64) -> Result<(), Error> {
    let Some(mut tensor) = value.table(UNION)? else {
        return Err(Error::MissingField {
            place: value.place(UNION),
        });
    };
    // A quantised one holds a plain one.
    if value.u8(UNION_TYPE)? == 2 {
        tensor = tensor.required(INNER)?;
    }
    let index = u64::from(tensor.u32(CONSTANT)?);
    if index != 0 && index >= constants {
        return Err(Error::Index {
            place: tensor.place(CONSTANT),
            what: "constants",
            count: constants,
            found: i64::try_from(index).unwrap_or(i64::MAX),
        });
    }
    let flags = tensor.u32(VALUE_FLAGS)?;
    if flags > FLAGS {
        return Err(Error::Value {
            place: tensor.place(VALUE_FLAGS),
            expected: format!("no flag bits above {FLAGS}"),
            found: flags.into(),
        });
    }
    Ok(())
}
