//! Reads delegate payloads for evidence of dynamic dimensions, and dispatches to the backends'
//! readers.
//!
//! A delegate payload is the part of an ExecuTorch program that a backend such as XNNPACK runs.
//! [`READERS`] lists the readable payloads by backend. `coreml` and `mlx` payloads record which
//! dimensions are dynamic; `vulkan` and `xnnpack` payloads show how dimensions depend on each
//! other; QNN payloads give no evidence. Weights are never read. A common read budget and a limit
//! on retained data apply to all payloads of a program.
//!
//! Invariant: an unknown or invalid payload yields no evidence and no error, because the program
//! can be described without it. `checked` reports payloads that a device rejects.

mod checked;

pub(super) use checked::{CheckedPayloads, PayloadCheck};

use super::flatbuffer::{Buffer, Table};
use super::payload_graph::{AcceptedArguments, PayloadGraph, Ports, RuleBudget};
use super::relations::Relations;
use super::storage::ByteRange;
use super::{coreml, mlx, vulkan, xnnpack};
use crate::FormatError;
use pkgtool_base::package::Backend;
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads for all payloads of a program.
const MAX_EVIDENCE_READS: u64 = 4_000_000;

/// Finds the bytes that a program stores under a name.
pub(super) type FindNamed<'a> = &'a dyn Fn(&str) -> Option<ByteRange>;

/// Adds the rules of the graph in a payload. Returns the graph's inputs and outputs, if the payload
/// belongs to this backend.
type AddRules = fn(
    &Pages<'_>,
    ByteRange,
    FindNamed<'_>,
    &mut PayloadGraph<'_>,
) -> Result<Option<Ports>, FormatError>;

/// The reader for the payloads of a backend.
struct BackendReader {
    backend: Backend,
    relate: AddRules,
    /// The checks that a device makes.
    check: PayloadCheck,
}

/// All readers.
static READERS: &[BackendReader] = &[
    BackendReader {
        backend: Backend::Xnnpack,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, xnnpack::find(pages, payload), |root| {
                xnnpack::relate(root, graph)
            })
        },
        check: xnnpack::check,
    },
    BackendReader {
        backend: Backend::Vulkan,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, vulkan::find(pages, payload), |root| {
                vulkan::relate(root, graph)
            })
        },
        check: |pages, payload, _, _| {
            let found = in_flatbuffer(pages, vulkan::find(pages, payload), vulkan::count_ports);
            Ok(min_arguments(found))
        },
    },
    BackendReader {
        backend: Backend::Mlx,
        relate: |pages, payload, _, graph| {
            in_flatbuffer(pages, mlx::find(pages, payload), |root| {
                mlx::relate(root, graph)
            })
        },
        check: |pages, payload, _, _| {
            let found = in_flatbuffer(pages, mlx::find(pages, payload), mlx::count_ports);
            Ok(min_arguments(found))
        },
    },
    BackendReader {
        backend: Backend::CoreMl,
        relate: coreml::relate,
        check: |pages, payload, storage, _| {
            let named = |name: &str| storage.find_named(name).map(Into::into);
            Ok(min_arguments(coreml::count_ports(pages, payload, &named)))
        },
    },
];

/// Returns the arguments of a call for a payload with this many inputs and outputs. Invalid
/// payloads are left to the device.
fn min_arguments(ports: Result<Option<u64>, FormatError>) -> Option<AcceptedArguments> {
    let count = ports.ok().flatten()?;
    let are_tensors = false;
    Some(AcceptedArguments { count, are_tensors })
}

/// Applies a function to the FlatBuffer at this position, if there is a valid one.
fn in_flatbuffer<T>(
    pages: &Pages<'_>,
    found: Option<ByteRange>,
    relate: impl FnOnce(&Table<'_>) -> Result<T, FormatError>,
) -> Result<Option<T>, FormatError> {
    let Some((found, end)) = found.and_then(|at| Some((at, at.offset.checked_add(at.size)?)))
    else {
        return Ok(None);
    };
    let buffer = Buffer::new(pages, found.offset, end);
    relate(&buffer.root("payload")?).map(Some)
}

fn find(id: &str) -> Option<&'static BackendReader> {
    READERS
        .iter()
        .find(|reader| reader.backend.delegate_id() == id)
}

/// Returns the check for the payloads of a delegate, if the backend has one.
pub(super) fn check_of(id: &str) -> Option<PayloadCheck> {
    Some(find(id)?.check)
}

/// Access to the payloads of a program.
pub(super) struct PayloadReader<'a> {
    pages: Pages<'a>,
    /// Remaining room for dimensions and rules.
    pub(super) room: RuleBudget,
}

impl<'a> PayloadReader<'a> {
    /// Gives access to the payloads in this file.
    pub(super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, MAX_EVIDENCE_READS),
            room: RuleBudget::default(),
        }
    }

    /// Adds the evidence in a delegate's payload; does nothing if the payload cannot be read.
    pub(super) fn read(
        &self,
        id: &str,
        payload: ByteRange,
        named: FindNamed<'_>,
        relations: &mut Relations,
    ) -> Option<Ports> {
        let mut graph = PayloadGraph::new(relations, &self.room);
        (find(id)?.relate)(&self.pages, payload, named, &mut graph).ok()?
    }
}
