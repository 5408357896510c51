//! The values of one graph: their definitions and the nodes that use them.
//!
//! Names are stored as hashes, so the number of names alone determines the memory.

use super::operators::TypeSet;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::hashed::{Map, Set};

/// The role of a graph in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::onnx) enum GraphRole {
    /// The main graph, whose nodes may be in any order.
    Main,
    /// A graph in an attribute, which can use values of the enclosing graphs.
    Subgraph,
    /// The body of a function.
    Function,
}

/// The definition of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Definition {
    Input,
    Initializer,
    /// The node at this position.
    Node(u32),
}

/// A value of a graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct GraphValue {
    pub(super) maker: Definition,
    /// Its type; 0 if unknown.
    pub(super) types: TypeSet,
}

/// A use of a value that is not defined yet.
#[derive(Debug, Clone)]
pub(in crate::onnx) struct Use {
    pub(super) key: u64,
    pub(super) name: String,
    /// Position of the using node in the graph that resolves the use.
    pub(super) node: u32,
    pub(super) place: String,
    pub(super) offset: u64,
}

/// A declared output of a graph.
#[derive(Debug)]
pub(super) struct GraphOutput {
    pub(super) key: u64,
    pub(super) name: String,
    pub(super) types: TypeSet,
    pub(super) offset: u64,
}

/// The declared type of a value that is neither input nor output.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatedType {
    /// Its type; 0 if it is missing or unused by operators.
    pub(super) types: TypeSet,
    /// The element type number, if it is invalid.
    pub(super) invalid: Option<i64>,
}

/// An input that lacks a type.
#[derive(Debug)]
pub(super) struct UntypedInput {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) offset: u64,
}

/// The interface of a graph to the node that executes it.
#[derive(Debug, Clone, Default)]
pub(in crate::onnx) struct SubgraphInterface {
    /// Types of its inputs, 0 for an unknown type.
    pub(super) inputs: Vec<TypeSet>,
    /// Number of inputs with an initializer, which are optional.
    pub(super) initialized: usize,
    /// Types of its outputs, 0 for an unknown type.
    pub(super) outputs: Vec<TypeSet>,
}

/// The values of one graph.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) kind: GraphRole,
    pub(super) values: Map<u64, GraphValue>,
    pub(super) node_names: Set<u64>,
    /// Keys of its inputs.
    pub(super) inputs: Vec<u64>,
    /// Number of inputs with an initializer.
    pub(super) initialized: usize,
    /// Inputs without a type, by key.
    pub(super) untyped: Map<u64, UntypedInput>,
    pub(super) outputs: Vec<GraphOutput>,
    /// Keys of the outputs that declare a type.
    pub(super) typed_outputs: Set<u64>,
    /// Declared types of values that nodes define, by key.
    pub(super) stated: Map<u64, StatedType>,
    /// Uses of values that were not defined yet.
    pub(super) open: Vec<Use>,
    /// Keys of these, for graphs that need only one use of each.
    pub(super) open_keys: Set<u64>,
    /// Number of nodes so far.
    pub(super) nodes: u32,
    /// Dependencies as pairs of defining node and using node.
    edges: Vec<(u32, u32)>,
}

impl Scope {
    pub(super) fn new(kind: GraphRole) -> Self {
        Self {
            kind,
            values: Map::default(),
            node_names: Set::default(),
            inputs: Vec::new(),
            initialized: 0,
            untyped: Map::default(),
            outputs: Vec::new(),
            typed_outputs: Set::default(),
            stated: Map::default(),
            open: Vec::new(),
            open_keys: Set::default(),
            nodes: 0,
            edges: Vec::new(),
        }
    }

    /// Records that the node at `user` uses a value.
    pub(super) fn uses(&mut self, value: GraphValue, user: u32) {
        if let Definition::Node(maker) = value.maker {
            self.edges.push((maker, user));
        }
    }

    /// Checks that a value has the type that the graph declares for it.
    pub(super) fn check_stated_type(
        &self,
        key: u64,
        name: &[u8],
        types: TypeSet,
    ) -> Result<(), String> {
        // The declaration as an output takes precedence.
        let stated = self.stated.get(&key);
        let Some(stated) = stated.filter(|_| !self.typed_outputs.contains(&key)) else {
            return Ok(());
        };
        if let Some(found) = stated.invalid {
            return Err(format!("invalid element type {found}"));
        }
        if types == 0 || stated.types == 0 || types == stated.types {
            return Ok(());
        }
        let name = super::shown(name);
        Err(super::declared_otherwise(&name, stated.types, types))
    }

    /// Checks that all inputs of the model have types.
    pub(super) fn check_inputs(&mut self) -> Result<(), FormatError> {
        let first = self.untyped.drain().map(|(_, untyped)| untyped);
        let first = first.min_by_key(|untyped| untyped.offset);
        match first.filter(|_| self.kind == GraphRole::Main) {
            None => Ok(()),
            Some(UntypedInput {
                name,
                place,
                offset,
            }) => Err(FieldPosition::new(place, offset).violates(format!(
                "the input `{name}` has no type, and no initializer gives it one"
            ))),
        }
    }

    /// Returns the graph's interface to the node that executes it.
    pub(super) fn interface(&self) -> SubgraphInterface {
        let types = |key: &u64| self.values.get(key).map_or(0, |value| value.types);
        let made = |output: &GraphOutput| match types(&output.key) {
            0 => output.types,
            types => types,
        };
        SubgraphInterface {
            inputs: self.inputs.iter().map(types).collect(),
            initialized: self.initialized,
            outputs: self.outputs.iter().map(made).collect(),
        }
    }

    /// Returns the first node that is part of a cycle or depends on one.
    pub(super) fn cycle(&self) -> Option<u32> {
        cycle(self.nodes, &self.edges)
    }
}

/// Returns the first of `nodes` nodes that is part of a cycle of the edges or depends on one.
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
