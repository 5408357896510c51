//! The providers to which ONNX Runtime assigned the nodes of a graph.
//!
//! Invariant: pointers of the library are read only while the session that owns them exists.
#![expect(
    unsafe_code,
    reason = "the library's interface of C has no safe wrapper for this"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::ptr;

use ort::AsPointer as _;
use ort::session::Session;
use ort::sys::{OrtApi, OrtEpAssignedSubgraph, OrtStatusPtr};

use crate::AssignedOperators;

/// The session's option that records the assignment.
pub(super) const OPTION: &str = "session.record_ep_graph_assignment_info";

/// Returns the operators of each provider. `None` if the library does not say.
pub(super) fn operators(session: &Session) -> Option<Vec<AssignedOperators>> {
    let api = ort::api();
    let parts = listed(api, |to, count| {
        // SAFETY: the session exists, and both results can be written.
        unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), to, count) }
    })?;
    let mut of_providers: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for part in parts.iter().copied() {
        let provider = text(api, |to| {
            // SAFETY: the session, which owns the part, exists, and the result can be written.
            unsafe { (api.EpAssignedSubgraph_GetEpName)(part, to) }
        })?;
        let operators = of_providers.entry(provider).or_default();
        for name in operators_of(api, part)? {
            *operators.entry(name).or_default() += 1;
        }
    }
    let assigned = of_providers.into_iter();
    let assigned = assigned.map(|(provider, operators)| AssignedOperators {
        provider,
        operators,
    });
    Some(assigned.collect())
}

/// Returns the operators of a part's nodes.
fn operators_of(api: &OrtApi, part: *const OrtEpAssignedSubgraph) -> Option<Vec<String>> {
    let nodes = listed(api, |to, count| {
        // SAFETY: the session, which owns the part, exists, and both results can be written.
        unsafe { (api.EpAssignedSubgraph_GetNodes)(part, to, count) }
    })?;
    let names = nodes.iter().map(|node| {
        text(api, |to| {
            // SAFETY: the session, which owns the node, exists, and the result can be written.
            unsafe { (api.EpAssignedNode_GetOperatorType)(*node, to) }
        })
    });
    names.collect()
}

/// Returns the pointers that a function of the library lists.
fn listed<T>(
    api: &OrtApi,
    list: impl FnOnce(*mut *const *const T, *mut usize) -> OrtStatusPtr,
) -> Option<Vec<*const T>> {
    let (mut first, mut count) = (ptr::null(), 0);
    let status = list(&raw mut first, &raw mut count);
    succeeded(api, status)?;
    if first.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the library owns this many pointers there for as long as the session exists.
    Some(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// Returns the text that a function of the library names.
fn text(api: &OrtApi, name: impl FnOnce(*mut *const c_char) -> OrtStatusPtr) -> Option<String> {
    let mut found = ptr::null();
    let status = name(&raw mut found);
    succeeded(api, status)?;
    if found.is_null() {
        return None;
    }
    // SAFETY: the library owns a text that ends with zero for as long as the session exists.
    let text = unsafe { CStr::from_ptr(found) };
    Some(text.to_string_lossy().into_owned())
}

fn succeeded(api: &OrtApi, status: OrtStatusPtr) -> Option<()> {
    if status.0.is_null() {
        return Some(());
    }
    // SAFETY: the status is not null, and nobody reads it later.
    unsafe { (api.ReleaseStatus)(status.0) };
    None
}
