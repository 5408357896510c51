//! What is read of the payloads of delegates.
//!
//! [`READERS`] is the list of those that can be read, by the id of their backend. Each keeps a graph: `mlx`
//! says of each dimension whether it varies, `vulkan` and `xnnpack` how dimensions hang together. Payloads of
//! Core ML and Qualcomm tell nothing here. Reading is bounded: no weights, a budget of accesses of its own for all
//! payloads of a program, a limit to what is kept. Invariant: a payload that is unknown or broken tells nothing
//! and is no error here: the program can be described without it. What a device refuses is found by `checked`.

mod checked;

pub(super) use checked::{Check, Checked};

use super::error::Error;
use super::flatbuffer::{Buffer, Table};
use super::payload_graph::{Graph, Ports, Room};
use super::relations::Relations;
use super::storage::ByteRange;
use super::{mlx, vulkan, xnnpack};
use crate::package::Backend;
use crate::source::{Pages, ReadAt};

/// Reads that all payloads of a program have together.
const BUDGET: u64 = 4_000_000;

/// A backend whose payloads are read.
struct Reader {
    backend: Backend,
    /// Where the FlatBuffer is; nothing if the payload does not begin like one of this backend's.
    find: fn(&Pages<'_>, ByteRange) -> Option<ByteRange>,
    /// Adds the rules of the graph in it; the graph's inputs and outputs.
    relate: fn(&Table<'_>, &mut Graph<'_>) -> Result<Ports, Error>,
    /// What a device refuses, where that is known.
    check: Option<Check>,
}

/// All of them.
static READERS: &[Reader] = &[
    Reader {
        backend: Backend::Xnnpack,
        find: xnnpack::find,
        relate: xnnpack::relate,
        check: Some(xnnpack::check),
    },
    Reader {
        backend: Backend::Vulkan,
        find: vulkan::find,
        relate: vulkan::relate,
        check: None,
    },
    Reader {
        backend: Backend::Mlx,
        find: mlx::find,
        relate: mlx::relate,
        check: None,
    },
];

fn find(id: &str) -> Option<&'static Reader> {
    READERS
        .iter()
        .find(|reader| reader.backend.delegate_id() == id)
}

/// How the payloads of a delegate are checked, if they are.
pub(super) fn check_of(id: &str) -> Option<Check> {
    find(id)?.check
}

/// Access to the payloads of a program.
pub(super) struct Payloads<'a> {
    pages: Pages<'a>,
    /// What more may be kept.
    pub(super) room: Room,
}

impl<'a> Payloads<'a> {
    /// The payloads in this file.
    pub(super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, BUDGET),
            room: Room::default(),
        }
    }

    /// Adds what the payload of a delegate tells; nothing if it cannot be read.
    pub(super) fn read(
        &self,
        id: &str,
        payload: ByteRange,
        relations: &mut Relations,
    ) -> Option<Ports> {
        let reader = find(id)?;
        let found = (reader.find)(&self.pages, payload)?;
        let end = found.offset.checked_add(found.size)?;
        let buffer = Buffer::new(&self.pages, found.offset, end);
        let mut graph = Graph::new(relations, &self.room);
        (reader.relate)(&buffer.root("payload").ok()?, &mut graph).ok()
    }
}
