//! Computes which provider runs which nodes, from ONNX Runtime's profile of one run.

use std::collections::{BTreeMap, BTreeSet};

use super::events::Event;
use crate::Placement;

#[derive(Debug, Default)]
struct NodeWork {
    nodes: BTreeSet<(String, Option<String>)>,
    time: f64,
}

/// Counts a node once, however often a loop ran it.
pub(super) fn placement(events: Vec<Event>) -> Placement {
    let mut work: BTreeMap<String, NodeWork> = BTreeMap::new();
    for event in events {
        let Some(node) = event.node().map(str::to_owned) else {
            continue;
        };
        let work = work.entry(event.args.provider).or_default();
        work.nodes.insert((node, event.args.node_index));
        work.time += event.dur;
    }
    let work = work.into_iter();
    Placement::of_work(work.map(|(provider, work)| (provider, work.nodes.len() as u64, work.time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_time_are_shared_out() {
        let text = r#"[
            {"cat": "Session", "name": "session_initialization", "dur": 999, "args": {}},
            {"cat": "Node", "name": "a_kernel_time", "dur": 30,
             "args": {"provider": "QNNExecutionProvider", "node_index": "1", "op_name": "Conv"}},
            {"cat": "Node", "name": "b_kernel_time", "dur": 5,
             "args": {"provider": "CPUExecutionProvider", "node_index": "2"}},
            {"cat": "Node", "name": "b_kernel_time", "dur": 5,
             "args": {"provider": "CPUExecutionProvider", "node_index": "2"}},
            {"cat": "Node", "name": "c_kernel_time", "dur": 0,
             "args": {"provider": "CPUExecutionProvider", "node_index": "3"}},
            {"cat": "Node", "name": "b_fence_before", "dur": 7, "args": {}}
        ]"#;
        let placement = placement(serde_json::from_str(text).expect("it is JSON"));
        let shares: Vec<_> = placement
            .shares
            .iter()
            .map(|share| (share.provider.as_str(), share.nodes, share.time_share))
            .collect();
        assert_eq!(
            shares,
            [
                ("CPUExecutionProvider", 2, 0.25),
                ("QNNExecutionProvider", 1, 0.75)
            ]
        );
    }
}
