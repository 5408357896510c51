//! Profiles in Chrome's trace format.

use pkgtool_base::package::DType;
use pkgtool_engine::Profile;
use serde_json::{Value as Json, json};

/// Returns a document with the median run of each model, each as a process with its label.
pub(super) fn document<'p>(profiles: impl Iterator<Item = (&'p str, &'p Profile)>) -> String {
    let mut events: Vec<Json> = Vec::new();
    for (place, (label, profile)) in profiles.enumerate() {
        let process = place + 1;
        events.push(json!({
            "ph": "M", "name": "process_name", "pid": process, "args": { "name": label },
        }));
        events.extend(run(process, profile));
    }
    let document = json!({ "displayTimeUnit": "ms", "traceEvents": events });
    format!("{document}\n")
}

fn run(process: usize, profile: &Profile) -> Vec<Json> {
    let Some(run) = profile.median_run() else {
        return Vec::new();
    };
    let whole = json!({
        "ph": "X", "name": "run", "cat": "run", "pid": process, "tid": 1,
        "ts": 0, "dur": microseconds(run.nanoseconds),
    });
    let spans = run.spans.iter().filter_map(|span| {
        let node = profile.nodes.get(usize::try_from(span.node).ok()?)?;
        Some(json!({
            "ph": "X", "name": node.operator, "cat": "node", "pid": process, "tid": 1,
            "ts": microseconds(span.start), "dur": microseconds(span.nanoseconds),
            "args": {
                "node": node.name,
                "provider": node.provider,
                "dtype": node.dtype.map(DType::name),
                "bytes": node.bytes,
            },
        }))
    });
    std::iter::once(whole).chain(spans).collect()
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 nanoseconds")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}
