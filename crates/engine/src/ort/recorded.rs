//! Converts ONNX Runtime's profile to the time of each node, run by run.

use std::collections::HashMap;
use std::time::Duration;

use super::events::Event;
use crate::tensor::DType;
use crate::{NodeSpan, Profile, ProfiledNode, ProfiledRun};

/// Name and number of a node.
type NodeKey = (String, Option<String>);

/// Converts the events of the last runs. `times` are the times of these runs; they include passing
/// inputs and outputs.
pub(super) fn profile(events: Vec<Event>, times: &[Duration]) -> Profile {
    let (runs, mut nodes): (Vec<Event>, Vec<Event>) = {
        let kept = events.into_iter();
        let kept = kept.filter(|event| event.is_run() || event.node().is_some());
        kept.partition(Event::is_run)
    };
    let mut starts: Vec<f64> = runs.iter().map(|run| run.ts).collect();
    starts.sort_by(f64::total_cmp);
    let first = starts.len().saturating_sub(times.len());
    let starts = &starts[first..];
    // A loop's event begins before those of the nodes within it and ends after them.
    nodes.sort_by(|a, b| (a.ts.total_cmp(&b.ts)).then(b.dur.total_cmp(&a.dur)));
    let mut profile = Profile {
        nodes: Vec::new(),
        runs: times.iter().take(starts.len()).map(empty_run).collect(),
    };
    let mut known: HashMap<NodeKey, u32> = HashMap::new();
    // The nodes around the current one: end, run and place in the run.
    let mut around: Vec<(f64, usize, usize)> = Vec::new();
    for event in nodes {
        let Some(run) = starts
            .partition_point(|start| *start <= event.ts)
            .checked_sub(1)
        else {
            continue;
        };
        let Some(record) = profile.runs.get_mut(run) else {
            continue;
        };
        let end = event.ts + event.dur;
        around.retain(|(until, of, _)| *of == run && end <= *until);
        if let Some((.., outer)) = around.last() {
            let outer = &mut record.spans[*outer];
            outer.nanoseconds = outer.nanoseconds.saturating_sub(from_micros(event.dur));
        }
        around.push((end, run, record.spans.len()));
        let name = event.node().unwrap_or_default().to_owned();
        let key = (name, event.args.node_index.clone());
        let node = *known.entry(key).or_insert_with_key(|(name, _)| {
            profile.nodes.push(described(name, &event));
            u32::try_from(profile.nodes.len() - 1).unwrap_or(u32::MAX)
        });
        record.spans.push(NodeSpan {
            node,
            start: from_micros(event.ts - starts[run]),
            nanoseconds: from_micros(event.dur),
        });
    }
    profile
}

fn empty_run(time: &Duration) -> ProfiledRun {
    ProfiledRun {
        nanoseconds: crate::profile::nanoseconds(*time),
        spans: Vec::new(),
    }
}

fn described(name: &str, event: &Event) -> ProfiledNode {
    let args = &event.args;
    let sizes = [
        &args.activation_size,
        &args.parameter_size,
        &args.output_size,
    ];
    let sizes = sizes.map(|size| size.parse::<u64>().ok());
    let output = args.output_type_shape.first();
    let dtype = output.and_then(|output| output.keys().next());
    ProfiledNode {
        name: name.to_owned(),
        operator: args.op_name.clone(),
        provider: args.provider.clone(),
        dtype: dtype.and_then(|name| known_dtype(name)),
        bytes: sizes
            .into_iter()
            .try_fold(0u64, |sum, size| sum.checked_add(size?)),
    }
}

/// Returns the dtype that ONNX Runtime calls by this name.
fn known_dtype(name: &str) -> Option<DType> {
    match name {
        "float" => Some(DType::Float32),
        "double" => Some(DType::Float64),
        other => DType::from_name(other),
    }
}

/// Converts microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a negative time becomes 0"
)]
fn from_micros(microseconds: f64) -> u64 {
    (microseconds * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_within_a_loop_count_once() {
        let text = r#"[
            {"cat": "Session", "name": "model_run", "ts": 0, "dur": 90},
            {"cat": "Node", "name": "a_kernel_time", "ts": 10, "dur": 80,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Conv"}},
            {"cat": "Node", "name": "a_kernel_time", "ts": 1010, "dur": 30,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Conv", "activation_size": "8",
                      "parameter_size": "0", "output_size": "4",
                      "output_type_shape": [{"float": [1]}]}},
            {"cat": "Node", "name": "in_kernel_time", "ts": 1045, "dur": 10,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Add"}},
            {"cat": "Node", "name": "in_kernel_time", "ts": 1060, "dur": 10,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Add"}},
            {"cat": "Node", "name": "loop_kernel_time", "ts": 1041, "dur": 40,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Loop"}},
            {"cat": "Node", "name": "z_kernel_time", "ts": 1081, "dur": 5,
             "args": {"provider": "CPUExecutionProvider", "op_name": "Relu"}},
            {"cat": "Session", "name": "model_run", "ts": 1000, "dur": 90}
        ]"#;
        let events = serde_json::from_str(text).expect("it is JSON");
        let profile = profile(events, &[Duration::from_micros(100)]);
        let spans: Vec<_> = profile.runs[0].spans.iter().collect();
        let named = spans.iter().map(|span| {
            let node = &profile.nodes[span.node as usize];
            (node.operator.as_str(), span.start, span.nanoseconds)
        });
        let expected = [
            ("Conv", 10_000, 30_000),
            ("Loop", 41_000, 20_000),
            ("Add", 45_000, 10_000),
            ("Add", 60_000, 10_000),
            ("Relu", 81_000, 5_000),
        ];
        assert_eq!(named.collect::<Vec<_>>(), expected);
        assert_eq!(profile.runs[0].nodes_nanoseconds(), 75_000);
        let conv = &profile.nodes[0];
        assert_eq!((conv.bytes, conv.dtype), (Some(12), Some(DType::Float32)));
        assert_eq!(profile.nodes[1].bytes, None);
    }
}
