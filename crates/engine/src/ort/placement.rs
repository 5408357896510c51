//! Computes which provider runs which nodes, from ONNX Runtime's profile of one run.
//!
//! Owns the profile's files, in a temporary directory that is deleted with the profile.
//!
//! Invariant: profiling ends with the first run, so later runs are not slowed down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::TempDir;

use crate::Placement;

/// A profile in progress.
#[derive(Debug)]
pub(super) struct Profile {
    directory: TempDir,
}

impl Profile {
    /// Creates a directory for the profile.
    pub(super) fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("pkgtool-").tempdir()?;
        Ok(Self { directory })
    }

    /// Returns the path prefix from which ONNX Runtime makes file names.
    pub(super) fn prefix(&self) -> PathBuf {
        self.directory.path().join("profile")
    }

    /// Ends the profile and reads it. An unreadable profile gives an empty placement.
    pub(super) fn finish(self, session: &mut ort::session::Session) -> Placement {
        let file = session.end_profiling();
        let placement = file.ok().and_then(|file| read(Path::new(&file)).ok());
        // The directory must exist until here.
        drop(self.directory);
        placement.unwrap_or_default()
    }
}

/// The fields of a profile entry that are read.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    /// Duration, in microseconds.
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: PlacementArguments,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PlacementArguments {
    provider: Option<String>,
    node_index: Option<String>,
}

#[derive(Debug, Default)]
struct NodeWork {
    nodes: BTreeSet<(String, Option<String>)>,
    time: f64,
}

fn read(path: &Path) -> io::Result<Placement> {
    let events: Vec<Event> = serde_json::from_reader(BufReader::new(File::open(path)?))?;
    Ok(placement(events))
}

/// Counts a node once, however often a loop ran it.
fn placement(events: Vec<Event>) -> Placement {
    let mut work: BTreeMap<String, NodeWork> = BTreeMap::new();
    for event in events {
        let (Some(node), Some(provider)) = (
            event.name.strip_suffix("_kernel_time"),
            event.args.provider.filter(|_| event.cat == "Node"),
        ) else {
            continue;
        };
        let work = work.entry(provider).or_default();
        work.nodes.insert((node.to_owned(), event.args.node_index));
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
