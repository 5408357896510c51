//! Connects the graphs of delegates with the values of a method.
//!
//! A call of a delegate passes the inputs of its graph, then its outputs. This module joins their
//! dimensions to those of the method's own tensors. Contradictory sizes are not joined. Static
//! tensors count as fixed only as inputs: some exporters write a static result for a dynamic
//! argument.

use std::collections::{BTreeMap, BTreeSet};

use super::delegate::PayloadReader;
use super::evidence::DimFact;
use super::flatbuffer::Vector;
use super::payload_graph::{PayloadShape, UNKNOWN_SIZE};
use super::relations::{DimId, DimensionRule, Relations};
use super::storage::{Storage, StoredRange};
use super::value::{Evalue, ProgramTensor, TENSOR};
use crate::{Dynamism, FormatError};

/// The dimensions of a method's tensors and the facts about them.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    relations: Relations,
    tensors: BTreeMap<u64, PayloadShape>,
}

/// The representative of each dimension among those of equal size.
pub(super) struct EqualDims(Vec<DimId>);

impl EqualDims {
    /// Returns the representative of a dimension of a value.
    pub(super) fn of(&self, wiring: &Wiring, value: u64, dim: usize) -> Option<DimId> {
        self.0.get(wiring.dim(value, dim)?).copied()
    }
}

/// The stated minimum sizes of dimensions.
pub(super) struct MinSizes(BTreeMap<DimId, u64>);

impl MinSizes {
    /// Returns the minimum size of a dimension of a value.
    pub(super) fn of(&self, wiring: &Wiring, value: u64, dim: usize) -> Option<u64> {
        self.0.get(&wiring.dim(value, dim)?).copied()
    }
}

/// The parts of a method that the wiring reads.
pub(super) struct MethodParts<'a> {
    /// Its values.
    pub(super) values: &'a Vector<'a>,
    /// Values that a caller sets.
    pub(super) inputs: &'a BTreeSet<u64>,
    /// The stored bytes of its tensors.
    pub(super) storage: &'a Storage<'a>,
    /// The payloads of its delegates.
    pub(super) payloads: &'a PayloadReader<'a>,
}

impl Wiring {
    /// Joins the graph in a payload to the values that a call passes.
    pub(super) fn call(
        &mut self,
        method: &MethodParts<'_>,
        (id, payload): (&str, StoredRange),
        args: &[u64],
    ) -> Result<(), FormatError> {
        let named = |name: &str| method.storage.find_named(name).map(Into::into);
        let ports = method
            .payloads
            .read(id, payload.into(), &named, &mut self.relations);
        let Some(ports) = ports else {
            return Ok(());
        };
        if ports.shapes.len() != args.len() {
            return Ok(());
        }
        for (&value, port) in args.iter().zip(ports.shapes) {
            let Some(port) = port else { continue };
            let found = Evalue::read(method.values.table(value)?)?;
            if found.tag != TENSOR {
                continue;
            }
            self.tensor(method, value)?;
            let order = if ports.in_memory_order {
                ProgramTensor::dim_order(found.table()?)?
            } else {
                (0..port.rank()).collect()
            };
            if method.payloads.room.take(port.rank()) {
                self.join(value, &port, &order);
            }
        }
        Ok(())
    }

    /// Adds the dimensions of a value, if it is a tensor.
    pub(super) fn tensor(
        &mut self,
        method: &MethodParts<'_>,
        value: u64,
    ) -> Result<(), FormatError> {
        let found = Evalue::read(method.values.table(value)?)?;
        if found.tag != TENSOR || self.tensors.contains_key(&value) {
            return Ok(());
        }
        let tensor = ProgramTensor::read(found.table()?, method.storage)?;
        let given = method.inputs.contains(&value) || tensor.is_constant();
        let room = &method.payloads.room;
        let Some(shape) = room.shape(&mut self.relations, tensor.sizes) else {
            return Ok(());
        };
        match tensor.dynamism {
            Dynamism::Static if given => {
                for dim in 0..shape.rank() {
                    self.relations.add_fact(shape.dim(dim), DimFact::Fixed);
                }
            }
            Dynamism::Bounded => {
                let large = (0..shape.rank()).filter(|&dim| shape.bounds[dim] > 1);
                let large = large.map(|dim| shape.dim(dim)).collect();
                self.relations.rule(DimensionRule::SomeVaries(large));
            }
            _ => {}
        }
        self.tensors.insert(value, shape);
        Ok(())
    }

    fn join(&mut self, value: u64, port: &PayloadShape, order: &[usize]) {
        let Some(shape) = self.tensors.get(&value) else {
            return;
        };
        if shape.rank() != port.rank() || order.len() != port.rank() {
            return;
        }
        let pairs: Vec<(usize, usize)> = order.iter().copied().enumerate().collect();
        let agrees = pairs.iter().all(|&(there, here)| {
            let bound = port.bounds[there];
            bound == UNKNOWN_SIZE || bound == shape.bounds[here]
        });
        if agrees {
            for (there, here) in pairs {
                self.relations.equal(shape.dim(here), port.dim(there));
            }
        }
    }

    /// Sets facts about a value's dimensions from another source.
    pub(super) fn learn(&mut self, value: u64, known: &[Option<DimFact>]) {
        let Some(shape) = self.tensors.get(&value) else {
            return;
        };
        for (dim, certain) in known.iter().enumerate().take(shape.rank()) {
            if let Some(certain) = certain {
                self.relations.set_fact(shape.dim(dim), *certain);
            }
        }
    }

    /// Sets facts for all values, one dimension at a time.
    pub(super) fn learn_all(&mut self, known: impl Fn(u64, usize) -> Option<DimFact>) {
        for (&value, shape) in &self.tensors {
            for dim in 0..shape.rank() {
                if let Some(certain) = known(value, dim) {
                    self.relations.set_fact(shape.dim(dim), certain);
                }
            }
        }
    }

    /// Draws all conclusions.
    pub(super) fn solve(&mut self) {
        self.relations.solve();
    }

    /// Returns the fact about a dimension of a value, if it is known.
    pub(super) fn of(&self, value: u64, dim: usize) -> Option<DimFact> {
        self.dim(value, dim)
            .and_then(|dim| self.relations.known(dim))
    }

    /// Returns the upper bounds of the dimensions that are certainly dynamic.
    pub(super) fn dynamic_bounds(&self) -> impl Iterator<Item = u64> {
        self.tensors.values().flat_map(|shape| {
            let dims = shape.bounds.iter().enumerate();
            dims.filter(|(dim, _)| self.relations.known(shape.dim(*dim)) == Some(DimFact::Dynamic))
                .map(|(_, &bound)| bound)
        })
    }

    /// Returns the stated minimum sizes of dimensions.
    pub(super) fn least(&self) -> MinSizes {
        MinSizes(self.relations.least())
    }

    /// Returns the representatives of dimensions of equal size.
    pub(super) fn equal(&self) -> EqualDims {
        EqualDims(self.relations.equal_dims())
    }

    fn dim(&self, value: u64, dim: usize) -> Option<DimId> {
        let shape = self.tensors.get(&value)?;
        (dim < shape.rank()).then(|| shape.dim(dim))
    }
}
