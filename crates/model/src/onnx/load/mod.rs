//! Checks that ONNX Runtime would load a model, beyond the encoding rules that the reader itself
//! needs.
//!
//! Each check reproduces one that ONNX Runtime makes before it reads weights (`graph.cc`,
//! `model.cc` and the ONNX checker that it calls), and accepts everything that ONNX Runtime
//! accepts. `body` calls [`LoadChecks`] for every declaration and node. The checks use names and the
//! headers of attributes; they infer element types but no shapes. Invariant: [`MAX_NAMES`] bounds
//! the memory. Order and cycles of the nodes of a larger model are not checked.

mod conform;
mod declare;
mod graphs;
mod infer;
mod node;
mod operators;
mod scope;
mod typing;
mod version;

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::wire::WireField;
use crate::{FieldPosition, FormatError};
pub(super) use node::{AttributeHeader, NodeHeader};
use operators::{OperatorLookup, OperatorSchema, Operators, TypeSet};
use pkgtool_base::source::hashed::Map;
use scope::{Definition, GraphValue, Scope, SubgraphInterface};
pub(super) use scope::{GraphRole, Use};
use version::{ONNX_DOMAIN, ORT_DOMAIN, by_domain, canonical, is_ort_domain};
pub(super) use version::{check_import, check_ir_version};

/// Maximum number of names and uses kept per model; real models have some ten thousand.
const MAX_NAMES: usize = 1 << 20;

/// The signature of a model function, as its callers see it.
#[derive(Debug)]
pub(super) struct FunctionSignature {
    pub(super) domain: String,
    pub(super) name: String,
    pub(super) overload: String,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// Result of walking a graph.
#[derive(Default)]
pub(super) struct WalkedGraph {
    /// Values of the enclosing graphs that it uses.
    pub(super) open: Vec<Use>,
    /// Its interface to the enclosing node, if it was checked.
    pub(super) interface: Option<SubgraphInterface>,
}

/// State of the load checks of one model.
pub(super) struct LoadChecks {
    table: &'static Operators,
    ir_version: i64,
    /// Imported versions by domain, of the model or of the current function.
    imports: BTreeMap<String, i64>,
    functions: Vec<FunctionSignature>,
    /// Indices into `functions`, by hash of the name.
    places: Map<u64, usize>,
    /// Called functions, in the order of their first call.
    called: Vec<usize>,
    is_called: Vec<bool>,
    /// Calls between functions as pairs of callee and caller.
    calls: Vec<(u32, u32)>,
    /// The current function.
    inside: Option<u32>,
    scopes: Vec<Scope>,
    /// Cached operator lookups, by hash of the name.
    entries: Map<u64, Rc<OperatorLookup>>,
    hasher: RandomState,
    /// Number of names that may still be kept.
    names_left: usize,
    is_active: bool,
}

impl LoadChecks {
    /// Starts the checks of a model with these imports, in file order, and these functions. Fails
    /// with the position of a function that is defined twice.
    pub(super) fn new(
        ir_version: i64,
        imports: &[(String, i64)],
        functions: Vec<FunctionSignature>,
    ) -> Result<Self, (usize, String)> {
        let hasher = RandomState::default();
        let mut places = Map::default();
        for (index, function) in functions.iter().enumerate() {
            let domain = canonical(&function.domain);
            let key = hasher.hash_one((domain, &function.name, &function.overload));
            if places.insert(key, index).is_some() {
                return Err((index, occurs_twice("the function", &function.name)));
            }
        }
        Ok(Self {
            table: Operators::get(),
            ir_version,
            imports: by_domain(imports),
            called: Vec::new(),
            is_called: vec![false; functions.len()],
            functions,
            places,
            calls: Vec::new(),
            inside: None,
            scopes: Vec::new(),
            entries: Map::default(),
            hasher,
            names_left: MAX_NAMES,
            is_active: true,
        })
    }

    /// Returns the index of the called function number `count`, in the order of first calls.
    pub(super) fn called(&self, count: usize) -> Option<usize> {
        self.called.get(count).copied()
    }

    /// Enters the function at this index, with its own imports.
    pub(super) fn enter_function(&mut self, index: usize, imports: &[(String, i64)]) {
        self.inside = u32::try_from(index).ok();
        self.imports = by_domain(imports);
        self.entries.clear();
    }

    /// Stops the checks: the remaining functions are never loaded.
    pub(super) fn stop(&mut self) {
        self.is_active = false;
    }

    /// Returns a function that calls itself, directly or indirectly.
    pub(super) fn recursion(&self) -> Option<usize> {
        let count = u32::try_from(self.functions.len()).ok()?;
        let found = scope::cycle(count, &self.calls)?;
        usize::try_from(found).ok()
    }

    /// Enters a graph.
    pub(super) fn enter(&mut self, kind: GraphRole) {
        self.scopes.push(Scope::new(kind));
    }

    /// Checks a node; `inner` are the outer values that its subgraphs use.
    pub(super) fn node(
        &mut self,
        field: &WireField<'_>,
        node: &NodeHeader,
        inner: Vec<Use>,
    ) -> Result<(), FormatError> {
        if !self.is_active || self.scopes.is_empty() {
            return Ok(());
        }
        let inputs = self.resolve(field, node, inner)?;
        let outputs = self
            .conform(node, &inputs)
            .map_err(|fault| rejected(field, fault))?;
        self.define(node, &outputs)
            .map_err(|fault| rejected(field, fault))
    }

    /// Resolves the inputs of a node and returns their types.
    fn resolve(
        &mut self,
        field: &WireField<'_>,
        node: &NodeHeader,
        inner: Vec<Use>,
    ) -> Result<Vec<TypeSet>, FormatError> {
        let position = self.scope().nodes;
        for open in inner {
            self.uses(open.key, position, |position| {
                let node = position;
                Ok(Use { node, ..open })
            })?;
        }
        let mut types = Vec::new();
        for name in &node.inputs {
            let key = self.key(name);
            if name.is_empty() {
                types.push(0);
                continue;
            }
            types.push(self.uses(key, position, |node| {
                let place = field.place().to_string();
                field.keep((name.len() + place.len()) as u64)?;
                Ok(Use {
                    key,
                    name: shown(name),
                    node,
                    place,
                    offset: field.offset(),
                })
            })?);
        }
        Ok(types)
    }

    /// Records that the node at `user` uses a value, and returns the value's type. `open` describes
    /// the use if the graph has not defined the value yet.
    fn uses(
        &mut self,
        key: u64,
        user: u32,
        open: impl FnOnce(u32) -> Result<Use, FormatError>,
    ) -> Result<TypeSet, FormatError> {
        if !self.takes_room() {
            return Ok(0);
        }
        let around = self.outer_value(key);
        let scope = self.scope();
        if let Some(value) = scope.values.get(&key).copied() {
            scope.uses(value, user);
            return Ok(value.types);
        }
        // Only the main graph needs to know every node that waits for a value.
        if scope.kind == GraphRole::Main || scope.open_keys.insert(key) {
            scope.open.push(open(user)?);
        }
        Ok(around.map_or(0, |value| value.types))
    }

    /// Checks a node against its operator's schema and returns the types of its outputs.
    fn conform(&mut self, node: &NodeHeader, inputs: &[TypeSet]) -> Result<Vec<TypeSet>, String> {
        let unknown = vec![0; node.outputs.len()];
        let names = (canonical(&node.domain), &node.operator, &node.overload);
        if let Some(&index) = self.places.get(&self.hasher.hash_one(names)) {
            return self.call(node, index).map(|()| unknown);
        }
        let domain = canonical(&node.domain);
        let version = self.imports.get(domain).copied();
        if version.is_none() && (self.inside.is_some() || !is_ort_domain(domain)) {
            let domain = domain.to_owned();
            return Err(format!("missing opset_import for the domain `{domain}`"));
        }
        let Some(known) = self.table.domain(domain) else {
            return Ok(unknown);
        };
        let version = version.unwrap_or(known.latest);
        if version > known.latest {
            return Err(format!(
                "unknown opset {version} of {domain}: expected at most {}",
                known.latest
            ));
        }
        let entry = self.entry(domain, &node.operator, version);
        match &*entry {
            // ONNX Runtime's own operators differ between builds.
            OperatorLookup::Unknown if !domain.starts_with(ONNX_DOMAIN) && version > 0 => {
                Ok(unknown)
            }
            OperatorLookup::Unknown => Err(format!(
                "opset {version} of {domain} has no operator `{}`",
                node.operator
            )),
            OperatorLookup::Deprecated(since) => Err(format!(
                "`{}` is deprecated since opset {}: export the model without it",
                node.operator, *since
            )),
            OperatorLookup::Known(schema) => self.follow(node, schema, inputs),
        }
    }

    fn follow(
        &mut self,
        node: &NodeHeader,
        schema: &OperatorSchema,
        inputs: &[TypeSet],
    ) -> Result<Vec<TypeSet>, String> {
        // ONNX Runtime converts constants to initializers and checks little else of them.
        let bound = if is_constant(node) {
            let is_converted = self.scope().kind != GraphRole::Function && self.ir_version >= 2;
            conform::constant(node, is_converted)?;
            Vec::new()
        } else {
            let bound = conform::check(node, schema, inputs)?;
            let mut attributes = node.attributes.iter();
            let untyped = attributes.find(|attribute| attribute.stated_type.is_none());
            if let Some(untyped) = untyped.filter(|_| self.ir_version >= 2) {
                return Err(format!("the attribute `{}` has no type", untyped.name));
            }
            bound
        };
        match canonical(&node.domain) {
            ONNX_DOMAIN => {
                graphs::check(node, schema, inputs)?;
                Ok(infer::outputs(node, schema, inputs, &bound))
            }
            ORT_DOMAIN => Ok(infer::by_schema(node, schema, &bound)),
            _ => Ok(vec![0; node.outputs.len()]),
        }
    }

    fn call(&mut self, node: &NodeHeader, index: usize) -> Result<(), String> {
        if !std::mem::replace(&mut self.is_called[index], true) {
            self.called.push(index);
        }
        let callee = u32::try_from(index).ok();
        if let (Some(callee), Some(caller)) = (callee, self.inside)
            && self.takes_room()
        {
            self.calls.push((callee, caller));
        }
        let function = &self.functions[index];
        let sides = [
            ("inputs", node.inputs.len(), function.inputs),
            ("outputs", node.outputs.len(), function.outputs),
        ];
        match sides.into_iter().find(|(_, found, most)| found > most) {
            None => Ok(()),
            Some((what, found, most)) => Err(format!(
                "`{}` has {found} {what}: expected at most {most}",
                node.operator
            )),
        }
    }

    fn entry(&mut self, domain: &str, operator: &str, version: i64) -> Rc<OperatorLookup> {
        let key = self.hasher.hash_one((domain, operator));
        if let Some(known) = self.entries.get(&key) {
            return Rc::clone(known);
        }
        let domain = self.table.domain(domain).expect("it was just found");
        let entry = Rc::new(self.table.entry(domain, operator, version));
        // The table bounds the number of entries.
        if matches!(*entry, OperatorLookup::Known(_)) {
            self.entries.insert(key, Rc::clone(&entry));
        }
        entry
    }

    /// Records the values that a node defines.
    fn define(&mut self, node: &NodeHeader, types: &[TypeSet]) -> Result<(), String> {
        let kind = self.scope().kind;
        let position = self.scope().nodes;
        self.scope().nodes = position.saturating_add(1);
        if !node.name.is_empty()
            && kind != GraphRole::Function
            && !is_constant(node)
            && self.takes_room()
        {
            let key = self.key(&node.name);
            if !self.scope().node_names.insert(key) {
                return Err(occurs_twice("the name of a node", &shown(&node.name)));
            }
        }
        for (name, &types) in node.outputs.iter().zip(types) {
            if name.is_empty() || !self.takes_room() {
                continue;
            }
            let key = self.key(name);
            if !is_constant(node) {
                self.scope().check_stated_type(key, name, types)?;
            }
            let maker = if is_constant(node) {
                Definition::Initializer
            } else {
                Definition::Node(position)
            };
            let value = GraphValue { maker, types };
            if self.scope().values.insert(key, value).is_some() {
                return Err(occurs_twice("the value", &shown(name)));
            }
            let around = self.outer_value(key).map(|value| value.maker);
            if matches!(around, Some(Definition::Input | Definition::Initializer))
                && kind == GraphRole::Subgraph
            {
                let name = shown(name);
                return Err(format!(
                    "the node's output `{name}` is also an input or initializer of an enclosing graph"
                ));
            }
        }
        Ok(())
    }

    /// Leaves a graph; returns its interface to the enclosing graphs.
    pub(super) fn leave(&mut self, graph: &WireField<'_>) -> Result<WalkedGraph, FormatError> {
        let Some(mut scope) = self.scopes.pop() else {
            return Ok(WalkedGraph::default());
        };
        if !self.is_active || self.names_left == 0 {
            return Ok(WalkedGraph::default());
        }
        scope.check_inputs()?;
        check_outputs(graph, &scope)?;
        let open = std::mem::take(&mut scope.open);
        let is_ordered = open.is_empty();
        let mut outer = Vec::new();
        for using in open {
            let fault = match (scope.values.get(&using.key).copied(), scope.kind) {
                (Some(value), GraphRole::Main) => {
                    scope.uses(value, using.node);
                    continue;
                }
                (None, GraphRole::Subgraph) => {
                    outer.push(using);
                    continue;
                }
                (Some(_), GraphRole::Subgraph) if self.is_defined(using.key) => continue,
                (Some(_), _) => format!(
                    "the node precedes the node that defines its input `{}`",
                    using.name
                ),
                (None, _) => format!("nothing defines the node's input `{}`", using.name),
            };
            return Err(FieldPosition::new(using.place, using.offset).violates(fault));
        }
        match scope.cycle().filter(|_| !is_ordered) {
            None => Ok(WalkedGraph {
                open: outer,
                interface: (scope.kind == GraphRole::Subgraph).then(|| scope.interface()),
            }),
            Some(node) => Err(FieldPosition::new(
                format_args!("{}.node[{node}]", graph.place()),
                graph.offset(),
            )
            .violates("the graph has a cycle: this node depends on its own output".to_owned())),
        }
    }

    /// Returns whether a graph that is still being walked defines this name.
    fn is_defined(&self, key: u64) -> bool {
        self.scopes
            .iter()
            .any(|scope| scope.values.contains_key(&key))
    }

    /// Returns the value of this name in the enclosing graphs.
    fn outer_value(&self, key: u64) -> Option<GraphValue> {
        let mut outer = self.scopes.iter().rev().skip(1);
        outer.find_map(|scope| scope.values.get(&key)).copied()
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a graph is being walked")
    }

    /// Reserves room for a name; returns `false` if the limit is reached or the checks are off.
    fn takes_room(&mut self) -> bool {
        let is_left = self.is_active && !self.scopes.is_empty() && self.names_left > 0;
        self.names_left -= usize::from(is_left);
        is_left
    }

    fn key(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }
}

fn check_outputs(graph: &WireField<'_>, scope: &Scope) -> Result<(), FormatError> {
    for (index, output) in scope.outputs.iter().enumerate() {
        let value = scope.values.get(&output.key);
        let types = value.map_or(0, |value| value.types);
        let name = &output.name;
        let fault = if value.is_none() && scope.kind != GraphRole::Main {
            format!("nothing inside defines the output `{name}`")
        } else if types != 0 && output.types != 0 && types != output.types {
            declared_otherwise(name, output.types, types)
        } else {
            continue;
        };
        return Err(FieldPosition::new(
            format_args!("{}.output[{index}]", graph.place()),
            output.offset,
        )
        .violates(fault));
    }
    Ok(())
}

fn occurs_twice(what: &str, name: &str) -> String {
    format!("{what} `{name}` occurs twice in one graph")
}

fn declared_otherwise(name: &str, declared: TypeSet, found: TypeSet) -> String {
    let table = Operators::get();
    let (declared, found) = (table.type_name(declared), table.type_name(found));
    format!("`{name}` is declared as {declared}, but is {found}")
}

/// Converts a fault at a field to an error.
pub(super) fn rejected(field: &WireField<'_>, fault: String) -> FormatError {
    field.position().violates(fault)
}

fn is_standard(node: &NodeHeader) -> bool {
    canonical(&node.domain) == ONNX_DOMAIN
}

fn is_constant(node: &NodeHeader) -> bool {
    is_standard(node) && node.operator == "Constant"
}

/// Formats a name for a message.
fn shown(name: &[u8]) -> String {
    const MAX_SHOWN: usize = 80;
    String::from_utf8_lossy(name)
        .chars()
        .take(MAX_SHOWN)
        .collect()
}
