//! What is read of the payloads of delegates.
//!
//! [`READERS`] is the list of those that can be read, by the id of their backend. Each keeps a graph: `coreml` and
//! `mlx` say of each dimension whether it varies, `vulkan` and `xnnpack` how dimensions hang together. Payloads of
//! Qualcomm's tell nothing here. Reading is bounded: no weights, a budget of accesses of its own for all
//! payloads of a program, a limit to what is kept. Invariant: a payload that is unknown or broken tells nothing
//! and is no error here: the program can be described without it. What a device refuses is found by `checked`.

mod checked;

pub(super) use checked::{Check, Checked};

use super::error::Error;
use super::flatbuffer::{Buffer, Table};
use super::payload_graph::{Graph, Ports, Room, Taken};
use super::relations::Relations;
use super::storage::ByteRange;
use super::{coreml, mlx, vulkan, xnnpack};
use crate::package::Backend;
use crate::source::{Pages, ReadAt};

/// Reads that all payloads of a program have together.
const BUDGET: u64 = 4_000_000;

/// Finds what a program stores under a name.
pub(super) type Named<'a> = &'a dyn Fn(&str) -> Option<ByteRange>;

/// Adds the rules of the graph in a payload; the graph's inputs and outputs, if it is one of this backend's.
type Relate = fn(&Pages<'_>, ByteRange, Named<'_>, &mut Graph<'_>) -> Result<Option<Ports>, Error>;

/// A backend whose payloads are read.
struct Reader {
    backend: Backend,
    relate: Relate,
    /// What a device refuses.
    check: Check,
}

/// All of them.
static READERS: &[Reader] = &[
    Reader {
        backend: Backend::Xnnpack,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, xnnpack::find(pages, payload), |root| {
                xnnpack::relate(root, graph)
            })
        },
        check: xnnpack::check,
    },
    Reader {
        backend: Backend::Vulkan,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, vulkan::find(pages, payload), |root| {
                vulkan::relate(root, graph)
            })
        },
        check: |pages, payload, _, _| {
            let found = in_flatbuffer(pages, vulkan::find(pages, payload), vulkan::count_ports);
            Ok(at_least(found))
        },
    },
    Reader {
        backend: Backend::Mlx,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, mlx::find(pages, payload), |root| {
                mlx::relate(root, graph)
            })
        },
        check: |pages, payload, _, _| {
            let found = in_flatbuffer(pages, mlx::find(pages, payload), mlx::count_ports);
            Ok(at_least(found))
        },
    },
    Reader {
        backend: Backend::CoreMl,
        relate: coreml::relate,
        check: |pages, payload, storage, _| {
            let named = |name: &str| storage.find_named(name).map(Into::into);
            Ok(at_least(coreml::count_ports(pages, payload, &named)))
        },
    },
];

/// What a call passes to a payload with so many inputs and outputs. A broken payload is the device's matter.
fn at_least(ports: Result<Option<u64>, Error>) -> Option<Taken> {
    let count = ports.ok().flatten()?;
    let are_tensors = false;
    Some(Taken { count, are_tensors })
}

/// What the FlatBuffer here tells, if there is one.
fn in_flatbuffer<T>(
    pages: &Pages<'_>,
    found: Option<ByteRange>,
    relate: impl FnOnce(&Table<'_>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let Some((found, end)) = found.and_then(|at| Some((at, at.offset.checked_add(at.size)?)))
    else {
        return Ok(None);
    };
    let buffer = Buffer::new(pages, found.offset, end);
    relate(&buffer.root("payload")?).map(Some)
}

fn find(id: &str) -> Option<&'static Reader> {
    READERS
        .iter()
        .find(|reader| reader.backend.delegate_id() == id)
}

/// How the payloads of a delegate are checked, if they are.
pub(super) fn check_of(id: &str) -> Option<Check> {
    Some(find(id)?.check)
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
        named: Named<'_>,
        relations: &mut Relations,
    ) -> Option<Ports> {
        let mut graph = Graph::new(relations, &self.room);
        (find(id)?.relate)(&self.pages, payload, named, &mut graph).ok()?
    }
}
