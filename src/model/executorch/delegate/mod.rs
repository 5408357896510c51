//! What the payload of a delegate tells of dynamic dimensions.
//!
//! Three backends keep a graph that can be read: `mlx` says it of each dimension, `vulkan` and
//! `xnnpack` say how dimensions hang together. Core ML's and Qualcomm's payloads are not opened.
//! Reading is bounded: no weights, a budget of accesses of its own for all payloads of a program,
//! a limit to what is kept. Invariant: a payload that is unknown or broken is no error, it only
//! tells nothing more: the program can be described without it.

mod graph;
mod mlx;
mod vulkan;

pub(super) use graph::{ANY_SIZE, Graph, MAX_PORTS, Ports, Room, Shape};

use super::error::Error;
use super::flatbuffer::Buffer;
use super::relations::Relations;
use super::storage::Stored;
use super::xnnpack::relations;
use crate::source::pages::PageError;
use crate::source::{Pages, ReadAt};

/// Reads that all payloads of a program have together.
const BUDGET: u64 = 4_000_000;

/// Access to the payloads of a program.
pub(super) struct Payloads<'a> {
    pages: Pages<'a>,
    /// What more may be kept.
    pub(super) room: Room,
}

/// A backend's graph in a payload: its reader, its FlatBuffer.
struct Found {
    start: u64,
    end: u64,
    read: fn(&super::flatbuffer::Table<'_>, &mut Graph<'_>) -> Result<Ports, Error>,
}

impl<'a> Payloads<'a> {
    /// The payloads in this file.
    pub(super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, BUDGET),
            room: Room::default(),
        }
    }

    /// Adds what a payload tells; nothing if it cannot be read.
    pub(super) fn read(&self, payload: Stored, relations: &mut Relations) -> Option<Ports> {
        let found = self.find(payload).ok().flatten()?;
        let buffer = Buffer::new(&self.pages, found.start, found.end);
        let mut graph = Graph::new(relations, &self.room);
        (found.read)(&buffer.root("payload").ok()?, &mut graph).ok()
    }

    fn find(&self, payload: Stored) -> Result<Option<Found>, PageError> {
        let start = payload.offset;
        let end = start.saturating_add(payload.available);
        if payload.available < 40 {
            return Ok(None);
        }
        let header: [u8; 32] = self.pages.array(start)?;
        let within = |offset: u64, size: u64| {
            let from = start.checked_add(offset)?;
            let to = from.checked_add(size)?;
            (size >= 8 && to <= end).then_some((from, to))
        };
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("four bytes");
            u64::from(u32::from_le_bytes(bytes))
        };
        let (range, identifiers, read): (_, &[[u8; 4]], _) = match &header[4..8] {
            b"XH00" => (
                within(number(10), number(14)),
                &[*b"XN00", *b"XN01"],
                relations::read as _,
            ),
            b"XN00" | b"XN01" => (
                within(0, payload.available),
                &[*b"XN00", *b"XN01"],
                relations::read as _,
            ),
            b"VH00" => (
                within(number(10), number(14)),
                &[*b"VK00"],
                vulkan::read as _,
            ),
            b"MLX0" => (within(24, payload.available - 24), &[], mlx::read as _),
            _ => return Ok(None),
        };
        let Some((start, end)) = range else {
            return Ok(None);
        };
        let known = identifiers.is_empty() || identifiers.contains(&self.pages.array(start + 4)?);
        Ok(known.then_some(Found { start, end, read }))
    }
}
