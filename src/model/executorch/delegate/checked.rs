//! What delegates want of their payloads when a device loads a program.
//!
//! Invariant: reads of all payloads of a program are counted against one budget, and a payload that is
//! delegated several times is read once.

use std::collections::BTreeMap;

use super::super::error::Error;
use super::super::payload_graph::Taken;
use super::super::storage::{ByteRange, Externals, Storage};
use crate::source::pages::PageError;
use crate::source::{Pages, ReadAt};

/// Reads that all payloads of a program have together.
const BUDGET: u64 = 8_000_000;

/// Checks a payload as its backend does; names of constants that the program does not hold are added to
/// those of other files. Returns what a call of the delegate must pass, where the payload tells.
pub(in super::super) type Check =
    fn(&Pages<'_>, ByteRange, &Storage<'_>, &mut Externals) -> Result<Option<Taken>, Error>;

/// The payloads of a program that were checked.
pub(in super::super) struct Checked<'a> {
    pages: Pages<'a>,
    /// What was found of payloads, by their offsets.
    seen: BTreeMap<u64, Option<Taken>>,
}

impl<'a> Checked<'a> {
    /// None yet of this file.
    pub(in super::super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, BUDGET),
            seen: BTreeMap::new(),
        }
    }

    /// Checks a payload; returns what a call must pass, where it tells.
    pub(in super::super) fn check(
        &mut self,
        check: Check,
        payload: ByteRange,
        storage: &Storage<'_>,
        externals: &mut Externals,
    ) -> Result<Option<Taken>, Error> {
        if let Some(known) = self.seen.get(&payload.offset) {
            return Ok(*known);
        }
        self.seen.insert(payload.offset, None);
        let arguments = match check(&self.pages, payload, storage, externals) {
            // So large a graph is the device's matter.
            Err(Error::Read {
                error: PageError::BudgetSpent { .. },
                ..
            }) => None,
            outcome => outcome?,
        };
        self.seen.insert(payload.offset, arguments);
        Ok(arguments)
    }
}
