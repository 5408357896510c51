//! The time, memory and provider of each node of a model, in recorded runs.
//!
//! Invariant: a profile counts no time twice. The time of a node excludes that of nodes within it.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tensor::DType;

/// Maximum number of recorded times. Recording ends with the run that exceeds it.
const MAX_SPANS: usize = 200_000;

/// The recorded runs of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The nodes that ran, in the order of their first run.
    pub nodes: Vec<ProfiledNode>,
    /// The runs, in order.
    pub runs: Vec<ProfiledRun>,
}

/// A node as the engine ran it, after the engine merged nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledNode {
    /// Its name in the model, or the engine's name for it.
    pub name: String,
    /// Its operator.
    pub operator: String,
    /// The provider that ran it, as the engine names it.
    pub provider: String,
    /// dtype of its first output, if the engine reports it.
    pub dtype: Option<DType>,
    /// Bytes of the tensors that it read and wrote in one run, as far as the engine reports them.
    pub bytes: Option<u64>,
}

/// A recorded run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledRun {
    /// Time of the run, in nanoseconds.
    pub nanoseconds: u64,
    /// The nodes in the order in which they ran. A loop may run a node several times.
    pub spans: Vec<NodeSpan>,
}

/// One execution of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpan {
    /// Index of the node.
    pub node: u32,
    /// Start, in nanoseconds since the start of the run.
    pub start: u64,
    /// Duration without the nodes within it, in nanoseconds.
    pub nanoseconds: u64,
}

impl ProfiledRun {
    /// Returns the time of all nodes, in nanoseconds.
    pub fn nodes_nanoseconds(&self) -> u64 {
        self.spans.iter().map(|span| span.nanoseconds).sum()
    }
}

impl Profile {
    /// Returns `true` if no further run should be recorded.
    pub(crate) fn is_full(&self) -> bool {
        self.runs.iter().map(|run| run.spans.len()).sum::<usize>() >= MAX_SPANS
    }

    /// Gives each node the name and operator that `origin` returns for its name, and merges nodes of
    /// the same name: an engine may compute one node of a model by several of its own.
    pub(crate) fn with_origins(
        mut self,
        origin: impl Fn(&str) -> Option<(String, String)>,
    ) -> Self {
        let mut places: HashMap<String, u32> = HashMap::new();
        let mut merged: Vec<ProfiledNode> = Vec::new();
        let mut indices: Vec<u32> = Vec::new();
        for mut node in self.nodes {
            if let Some((name, operator)) = origin(&node.name) {
                node.name = name;
                node.operator = operator;
            }
            let next = u32::try_from(merged.len()).unwrap_or(u32::MAX);
            let place = *places.entry(node.name.clone()).or_insert(next);
            indices.push(place);
            if place == next {
                merged.push(node);
                continue;
            }
            let known = &mut merged[place as usize];
            // The last one computes the output.
            known.dtype = node.dtype;
            let bytes = known.bytes.zip(node.bytes);
            known.bytes = bytes.map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        for span in self.runs.iter_mut().flat_map(|run| &mut run.spans) {
            let index = indices.get(span.node as usize);
            span.node = index.copied().unwrap_or(u32::MAX);
        }
        self.nodes = merged;
        self
    }

    /// Returns the mean time of a run, in nanoseconds. 0 without runs.
    pub fn mean_nanoseconds(&self) -> f64 {
        mean(self.runs.iter().map(|run| run.nanoseconds))
    }

    /// Returns the mean time of all nodes in a run, in nanoseconds.
    pub fn mean_nodes_nanoseconds(&self) -> f64 {
        mean(self.runs.iter().map(ProfiledRun::nodes_nanoseconds))
    }

    /// Returns the mean time of each node in a run, in nanoseconds.
    pub fn node_means(&self) -> Vec<f64> {
        let mut sums = vec![0u64; self.nodes.len()];
        for span in self.runs.iter().flat_map(|run| &run.spans) {
            if let Some(sum) = usize::try_from(span.node)
                .ok()
                .and_then(|node| sums.get_mut(node))
            {
                *sum = sum.saturating_add(span.nanoseconds);
            }
        }
        let runs = self.runs.len().max(1);
        let mean = |sum| float(sum) / float(runs as u64);
        sums.into_iter().map(mean).collect()
    }

    /// Returns the run whose time is the median.
    pub fn median_run(&self) -> Option<&ProfiledRun> {
        let mut runs: Vec<&ProfiledRun> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.nanoseconds);
        runs.get(runs.len().checked_sub(1)? / 2).copied()
    }
}

/// Returns a time in nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn mean(values: impl Iterator<Item = u64>) -> f64 {
    let (sum, count) = values.fold((0u64, 0u64), |(sum, count), value| {
        (sum.saturating_add(value), count + 1)
    });
    if count == 0 {
        return 0.0;
    }
    float(sum) / float(count)
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 nanoseconds")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_runs() {
        let span = |node, nanoseconds| NodeSpan {
            node,
            start: 0,
            nanoseconds,
        };
        let run = |nanoseconds, spans| ProfiledRun { nanoseconds, spans };
        let node = |name: &str| ProfiledNode {
            name: name.to_owned(),
            operator: "Add".to_owned(),
            provider: "cpu".to_owned(),
            dtype: None,
            bytes: None,
        };
        let profile = Profile {
            nodes: vec![node("a"), node("b")],
            // Node `b` runs twice in the second run. Node 7 does not exist.
            runs: vec![
                run(100, vec![span(0, 60), span(1, 20)]),
                run(300, vec![span(1, 100), span(1, 100), span(7, 1)]),
                run(200, Vec::new()),
            ],
        };
        let means = profile.node_means();
        assert!((means[0] - 20.0).abs() < 1e-9 && (means[1] - 220.0 / 3.0).abs() < 1e-9);
        assert!((profile.mean_nanoseconds() - 200.0).abs() < 1e-9);
        assert!((profile.mean_nodes_nanoseconds() - 281.0 / 3.0).abs() < 1e-9);
        assert_eq!(profile.median_run(), Some(&profile.runs[2]));
        assert_eq!(Profile::default().median_run(), None);
        assert!(!profile.is_full());
        // The two nodes belong to one node of the model.
        let merged = profile.with_origins(|_| Some(("m".to_owned(), "Gelu".to_owned())));
        assert_eq!(merged.nodes.len(), 1);
        assert_eq!(merged.nodes[0].operator, "Gelu");
        assert!((merged.node_means()[0] - 280.0 / 3.0).abs() < 1e-9);
    }
}
