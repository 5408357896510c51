//! The values of one graph: what defines them, and which nodes use them.
//!
//! Names are kept as hashes, so that memory is bounded by their number alone.

use super::operators::Types;
use crate::source::hashed::{Map, Set};

/// What a graph is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::onnx) enum Kind {
    /// The model's own graph, whose nodes may stand in any order.
    Main,
    /// A graph in an attribute, which sees the values of the graphs around it.
    Subgraph,
    /// The body of a function.
    Function,
}

/// What defines a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    Input,
    Initializer,
    /// The node at this position.
    Node(u32),
}

/// A value of a graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) maker: Maker,
    /// Its type; 0 if it is unknown.
    pub(super) types: Types,
}

/// A use of a value that nothing defined before it.
#[derive(Debug, Clone)]
pub(in crate::model::onnx) struct Use {
    pub(super) key: u64,
    pub(super) name: String,
    /// The node that uses it, by its position in the graph that looks for it.
    pub(super) node: u32,
    pub(super) place: String,
    pub(super) offset: u64,
}

/// An output that a graph declares.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) key: u64,
    pub(super) name: String,
    pub(super) types: Types,
    pub(super) offset: u64,
}

/// The values of one graph.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) kind: Kind,
    pub(super) values: Map<u64, Value>,
    pub(super) node_names: Set<u64>,
    pub(super) outputs: Vec<Output>,
    /// Uses that were not defined when they were met.
    pub(super) open: Vec<Use>,
    /// Names of these, where one use of each is enough.
    pub(super) open_keys: Set<u64>,
    /// How many nodes were seen.
    pub(super) nodes: u32,
    /// Nodes that make values, each with a node that uses one.
    edges: Vec<(u32, u32)>,
}

impl Scope {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            values: Map::default(),
            node_names: Set::default(),
            outputs: Vec::new(),
            open: Vec::new(),
            open_keys: Set::default(),
            nodes: 0,
            edges: Vec::new(),
        }
    }

    /// Notes that the node at `user` needs a value.
    pub(super) fn uses(&mut self, value: Value, user: u32) {
        if let Maker::Node(maker) = value.maker {
            self.edges.push((maker, user));
        }
    }

    /// Returns the first node that is in a cycle, or depends on one.
    pub(super) fn cycle(&self) -> Option<u32> {
        cycle(self.nodes, &self.edges)
    }
}

/// Returns the first of `nodes` nodes that is in a cycle of the edges, or depends on one.
pub(super) fn cycle(nodes: u32, edges: &[(u32, u32)]) -> Option<u32> {
    let count = usize::try_from(nodes).unwrap_or(usize::MAX);
    let index = |node: u32| usize::try_from(node).expect("nodes are indices of a Vec");
    let mut sorted = edges.to_vec();
    sorted.sort_unstable();
    let mut waits = vec![0_u32; count];
    for (_, user) in &sorted {
        waits[index(*user)] += 1;
    }
    let mut ready: Vec<u32> = (0..nodes).filter(|node| waits[index(*node)] == 0).collect();
    while let Some(node) = ready.pop() {
        let first = sorted.partition_point(|(maker, _)| *maker < node);
        for (_, user) in sorted[first..]
            .iter()
            .take_while(|(maker, _)| *maker == node)
        {
            waits[index(*user)] -= 1;
            if waits[index(*user)] == 0 {
                ready.push(*user);
            }
        }
    }
    (0..nodes).find(|node| waits[index(*node)] > 0)
}

#[cfg(test)]
mod tests {
    use super::cycle;

    #[test]
    fn cycles_are_found() {
        assert_eq!(cycle(3, &[(0, 1), (1, 2), (0, 2)]), None);
        assert_eq!(cycle(3, &[(2, 1), (1, 0)]), None);
        assert_eq!(cycle(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]), Some(1));
        assert_eq!(cycle(1, &[(0, 0)]), Some(0));
        assert_eq!(cycle(0, &[]), None);
    }
}
