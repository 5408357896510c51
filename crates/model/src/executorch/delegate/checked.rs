//! Applies the checks that backends make on delegate payloads when a device loads a program.
//!
//! Invariant: one read budget covers all payloads of a program. A payload that several delegates
//! share is read once.

use std::collections::BTreeMap;

use super::super::payload_graph::AcceptedArguments;
use super::super::storage::{ByteRange, Externals, Storage};
use crate::FormatError;
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum number of reads for all payloads of a program.
const MAX_CHECK_READS: u64 = 8_000_000;

/// Checks a payload as its backend does. Adds the names of constants outside the program to the
/// external tensors. Returns the arguments that a call must pass, if the payload records them.
pub(in super::super) type PayloadCheck = fn(
    &Pages<'_>,
    ByteRange,
    &Storage<'_>,
    &mut Externals,
) -> Result<Option<AcceptedArguments>, FormatError>;

/// The checked payloads of a program.
pub(in super::super) struct CheckedPayloads<'a> {
    pages: Pages<'a>,
    /// Results by payload offset.
    results: BTreeMap<u64, Option<AcceptedArguments>>,
}

impl<'a> CheckedPayloads<'a> {
    /// Starts with no checked payloads of this file.
    pub(in super::super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            pages: Pages::with_budget(source, MAX_CHECK_READS),
            results: BTreeMap::new(),
        }
    }

    /// Checks a payload; returns the arguments that a call must pass, if the payload records them.
    pub(in super::super) fn check(
        &mut self,
        check: PayloadCheck,
        payload: ByteRange,
        storage: &Storage<'_>,
        externals: &mut Externals,
    ) -> Result<Option<AcceptedArguments>, FormatError> {
        if let Some(known) = self.results.get(&payload.offset) {
            return Ok(*known);
        }
        self.results.insert(payload.offset, None);
        let arguments = match check(&self.pages, payload, storage, externals) {
            // Such a large graph is left to the device.
            Err(error) if error.is_budget_spent() => None,
            outcome => outcome?,
        };
        self.results.insert(payload.offset, arguments);
        Ok(arguments)
    }
}
