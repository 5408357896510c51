//! The values of one graph: what defines them, and which nodes use them.
//!
//! Names are kept as hashes, so that memory is bounded by their number alone.

use super::operators::{Operators, Types};
use crate::model::onnx::Error;
use crate::model::onnx::fault::Fault;
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

/// What a graph states of a value beside its inputs and outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stated {
    /// Its type; 0 where it is missing or no operator has it.
    pub(super) types: Types,
    /// What stands in the place of an element type and is none.
    pub(super) invalid: Option<i64>,
}

/// An input without a type.
#[derive(Debug)]
pub(super) struct Untyped {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) offset: u64,
}

/// A graph, as the node that runs it sees it.
#[derive(Debug, Clone, Default)]
pub(in crate::model::onnx) struct Interface {
    /// Types of its inputs, 0 where one is unknown.
    pub(super) inputs: Vec<Types>,
    /// How many of these are initializers as well, and need not be passed.
    pub(super) initialized: usize,
    /// Types of its outputs, 0 where one is unknown.
    pub(super) outputs: Vec<Types>,
}

/// The values of one graph.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) kind: Kind,
    pub(super) values: Map<u64, Value>,
    pub(super) node_names: Set<u64>,
    /// Keys of its inputs.
    pub(super) inputs: Vec<u64>,
    /// How many of these are initializers as well.
    pub(super) initialized: usize,
    /// Inputs that state no type, by their keys.
    pub(super) untyped: Map<u64, Untyped>,
    pub(super) outputs: Vec<Output>,
    /// Outputs that state a type, by their keys.
    pub(super) typed_outputs: Set<u64>,
    /// What the graph states of values that its nodes make, by their keys.
    pub(super) stated: Map<u64, Stated>,
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

    /// Notes that the node at `user` needs a value.
    pub(super) fn uses(&mut self, value: Value, user: u32) {
        if let Maker::Node(maker) = value.maker {
            self.edges.push((maker, user));
        }
    }

    /// Checks that a value that a node makes is of the type that the graph states of it.
    pub(super) fn agrees(&self, key: u64, name: &[u8], types: Types) -> Result<(), Fault> {
        // What is stated of an output goes before.
        let stated = self.stated.get(&key);
        let Some(stated) = stated.filter(|_| !self.typed_outputs.contains(&key)) else {
            return Ok(());
        };
        if let Some(found) = stated.invalid {
            return Err(Fault::ElementType { found });
        }
        if types == 0 || stated.types == 0 || types == stated.types {
            return Ok(());
        }
        let table = Operators::get();
        Err(Fault::DeclaredType {
            name: super::shown(name),
            declared: table.type_name(stated.types),
            found: table.type_name(types),
        })
    }

    /// Checks that inputs of the model have types.
    pub(super) fn check_inputs(&mut self) -> Result<(), Error> {
        let first = self.untyped.drain().map(|(_, untyped)| untyped);
        let first = first.min_by_key(|untyped| untyped.offset);
        match first.filter(|_| self.kind == Kind::Main) {
            None => Ok(()),
            Some(Untyped {
                name,
                place,
                offset,
            }) => Err(Error::Unsound {
                place,
                offset,
                fault: Fault::InputUntyped { name },
            }),
        }
    }

    /// Returns the graph as a node sees that runs it.
    pub(super) fn interface(&self) -> Interface {
        let types = |key: &u64| self.values.get(key).map_or(0, |value| value.types);
        let made = |output: &Output| match types(&output.key) {
            0 => output.types,
            types => types,
        };
        Interface {
            inputs: self.inputs.iter().map(types).collect(),
            initialized: self.initialized,
            outputs: self.outputs.iter().map(made).collect(),
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
