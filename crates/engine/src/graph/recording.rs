//! Records the time of each node of a graph, run by run.

use std::time::Instant;

use tract_onnx::prelude::{DatumType, TValue};
use tract_onnx::tract_core::model::TypedNode;

use super::NAME;
use super::elements::datum_type;
use crate::profile::nanoseconds;
use crate::tensor::DType;
use crate::{NodeSpan, Profile, ProfiledNode, ProfiledRun};

/// A recording of the runs of one graph.
#[derive(Default)]
pub(super) struct Recording {
    profile: Profile,
    /// Index in the profile of each node of the graph, by the node's number.
    indices: Vec<Option<u32>>,
    /// Start of the current run.
    start: Option<Instant>,
    current: ProfiledRun,
}

/// The start of a node.
pub(super) struct NodeStart {
    /// Bytes of its inputs.
    bytes: u64,
    time: Instant,
}

impl Recording {
    /// Starts a run, unless the recording is full.
    pub(super) fn begin_run(&mut self) {
        self.current = ProfiledRun::default();
        self.start = (!self.profile.is_full()).then(Instant::now);
    }

    /// Ends a run. A failed run is dropped.
    pub(super) fn end_run(&mut self, succeeded: bool) {
        let Some(start) = self.start.take() else {
            return;
        };
        if succeeded {
            self.current.nanoseconds = nanoseconds(start.elapsed());
            self.profile.runs.push(std::mem::take(&mut self.current));
        }
    }

    /// Returns the start of a node with these inputs, if the run is recorded.
    pub(super) fn node_start(&self, inputs: &[TValue]) -> Option<NodeStart> {
        self.start?;
        let bytes = bytes(inputs);
        Some(NodeStart {
            bytes,
            time: Instant::now(),
        })
    }

    /// Records that a node ended now, with these outputs.
    pub(super) fn node_end(&mut self, node: &TypedNode, started: &NodeStart, outputs: &[TValue]) {
        let end = Instant::now();
        let Some(start) = self.start else { return };
        if self.indices.len() <= node.id {
            self.indices.resize(node.id + 1, None);
        }
        let index = self.indices[node.id].unwrap_or_else(|| {
            let index = u32::try_from(self.profile.nodes.len()).unwrap_or(u32::MAX);
            let bytes = started.bytes + bytes(outputs);
            self.profile.nodes.push(described(node, bytes));
            self.indices[node.id] = Some(index);
            index
        });
        self.current.spans.push(NodeSpan {
            node: index,
            start: nanoseconds(started.time.saturating_duration_since(start)),
            nanoseconds: nanoseconds(end.saturating_duration_since(started.time)),
        });
    }

    /// Returns the recorded runs.
    pub(super) fn finish(self) -> Profile {
        self.profile
    }
}

fn described(node: &TypedNode, bytes: u64) -> ProfiledNode {
    let dtype = node.outputs.first().map(|outlet| outlet.fact.datum_type);
    ProfiledNode {
        name: node.name.clone(),
        operator: node.op.name().into_owned(),
        provider: NAME.to_owned(),
        dtype: dtype.and_then(known_dtype),
        bytes: Some(bytes),
    }
}

fn bytes(tensors: &[TValue]) -> u64 {
    let size = |value: &TValue| {
        value
            .as_plain_ram()
            .map_or(0, |it| it.as_bytes().len() as u64)
    };
    tensors.iter().map(size).sum()
}

/// Returns the dtype of a type of the library. Quantised types are their integers.
fn known_dtype(datum: DatumType) -> Option<DType> {
    let mut all = DType::ALL.into_iter();
    all.find(|dtype| *dtype != DType::Bfloat16 && datum_type(*dtype) == datum.unquantized())
}
