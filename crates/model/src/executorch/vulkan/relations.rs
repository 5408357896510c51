//! Extracts evidence of dynamic dimensions from the graph of a Vulkan delegate.
//!
//! Its tensors do not record dynamism, but its operators are those of the exporter. `add_sym_size`
//! occurs only for a dynamic dimension. A view takes a literal for a fixed size and a symbol for a
//! dynamic one. Other common operators (matrix products, elementwise operators, permutations) show
//! how dimensions depend on each other.

use std::collections::BTreeMap;

use super::super::evidence::DimFact;
use super::super::flatbuffer::{Table, Vector};
use super::super::payload_graph::{MAX_PORTS, PayloadGraph, PayloadShape, Ports};
use super::schema::{
    ARGS, CHAIN, CONSTANT, DIMS, INPUTS, INT, IS_INT, IS_INT_LIST, IS_SYMBOL, IS_TENSOR,
    IS_VALUE_LIST, ITEMS, NAME, OUTPUTS, TYPE, VALUE, VALUES,
};
use crate::FormatError;

/// Maximum number of dimensions of a tensor, and of arguments of a call.
const MAX_ITEMS: u64 = 16;

/// The tensors that a graph's calls use.
struct VulkanRules<'g, 'r, 'b> {
    graph: &'g mut PayloadGraph<'r>,
    values: Vector<'b>,
    shapes: BTreeMap<u64, PayloadShape>,
}

/// Adds the rules of a graph; returns its inputs and outputs.
pub(in super::super) fn relate(
    root: &Table<'_>,
    graph: &mut PayloadGraph<'_>,
) -> Result<Ports, FormatError> {
    let mut calls = VulkanRules {
        graph,
        values: root.tables(VALUES)?,
        shapes: BTreeMap::new(),
    };
    calls.add_tensors()?;
    for call in root.tables(CHAIN)?.iter_tables() {
        let call = call?;
        let args = call.vector(ARGS, 4)?;
        if args.len() <= MAX_ITEMS {
            let name = call.name(NAME)?.unwrap_or_default();
            calls.add_call(&name, &read_indices(&args)?)?;
        }
    }
    let mut shapes = Vec::new();
    for field in [INPUTS, OUTPUTS] {
        let ids = root.vector(field, 4)?;
        for index in 0..ids.len().min(MAX_PORTS) {
            shapes.push(calls.shapes.get(&ids.u32(index)?.into()).cloned());
        }
    }
    Ok(Ports {
        shapes,
        in_memory_order: false,
    })
}

/// Returns the number of inputs and outputs of a graph.
pub(in super::super) fn count_ports(root: &Table<'_>) -> Result<u64, FormatError> {
    Ok(root.vector(INPUTS, 4)?.len() + root.vector(OUTPUTS, 4)?.len())
}

impl<'b> VulkanRules<'_, '_, 'b> {
    fn add_tensors(&mut self) -> Result<(), FormatError> {
        for index in 0..self.values.len() {
            let Some(tensor) = self.member(index, IS_TENSOR)? else {
                continue;
            };
            let dims = tensor.vector(DIMS, 4)?;
            if dims.len() > MAX_ITEMS {
                continue;
            }
            let dims = (0..dims.len()).map(|dim| dims.u32(dim).map(u64::from));
            let Some(shape) = self.graph.shape(dims.collect::<Result<_, _>>()?) else {
                return Ok(());
            };
            // The default 0 marks a constant.
            if tensor.i32(CONSTANT)? >= 0 {
                self.graph.fixed(&shape);
            }
            self.shapes.insert(index, shape);
        }
        Ok(())
    }

    /// Returns the value at `index`, if it has this type.
    fn member(&self, index: u64, tag: u8) -> Result<Option<Table<'b>>, FormatError> {
        if index >= self.values.len() {
            return Ok(None);
        }
        let value = self.values.table(index)?;
        if value.u8(TYPE)? == tag {
            value.table(VALUE)
        } else {
            Ok(None)
        }
    }

    fn int_value(&self, index: u64) -> Result<Option<i64>, FormatError> {
        match self.member(index, IS_INT)? {
            Some(table) => table.i64(INT).map(Some),
            None => Ok(None),
        }
    }

    /// Adds the rules of an operator call. The last argument is the result.
    fn add_call(&mut self, name: &str, args: &[u64]) -> Result<(), FormatError> {
        let shape = |index: usize| {
            args.get(index)
                .and_then(|arg| self.shapes.get(arg))
                .cloned()
        };
        let (Some(first), second) = (shape(0), shape(1)) else {
            return Ok(());
        };
        let last = args.len().checked_sub(1).and_then(shape);
        match (name, second, last) {
            ("sym_size.int", None, None) => self.add_sym_size(&first, args),
            ("aten.view_copy.default", None, Some(to)) => self.add_view(&to, args),
            ("aten.linear.default", Some(matrix), Some(to)) => {
                self.graph.linear(&to, &first, &matrix, false);
                Ok(())
            }
            ("aten.bmm.default", Some(second), Some(to)) => {
                self.graph.matmul(&to, &first, &second);
                Ok(())
            }
            (
                "aten.add.Tensor" | "aten.sub.Tensor" | "aten.mul.Tensor" | "aten.div.Tensor",
                Some(second),
                Some(to),
            ) => {
                self.graph.broadcast(&to, &first, &second);
                Ok(())
            }
            (
                "aten._softmax.default"
                | "aten.relu.default"
                | "aten.sigmoid.default"
                | "aten.tanh.default"
                | "aten.gelu.default"
                | "aten.clone.default",
                _,
                Some(to),
            ) => {
                self.graph.elementwise(&to, &first);
                Ok(())
            }
            ("aten.permute_copy.default", None, Some(to)) => {
                self.add_permutation(&to, &first, args)
            }
            _ => Ok(()),
        }
    }

    fn add_sym_size(&mut self, tensor: &PayloadShape, args: &[u64]) -> Result<(), FormatError> {
        let &[_, dim, _] = args else { return Ok(()) };
        let Some(dim) = self.int_value(dim)? else {
            return Ok(());
        };
        let rank = i64::try_from(tensor.rank()).expect("a rank is small");
        let dim = if dim < 0 {
            dim.saturating_add(rank)
        } else {
            dim
        };
        let dim = usize::try_from(dim).ok();
        if let Some(dim) = dim.filter(|&dim| tensor.bounds.get(dim).is_some_and(|&n| n > 1)) {
            self.graph.fact(tensor.dim(dim), DimFact::Dynamic);
        }
        Ok(())
    }

    fn add_view(&mut self, to: &PayloadShape, args: &[u64]) -> Result<(), FormatError> {
        let &[_, sizes, _] = args else { return Ok(()) };
        let Some(list) = self.member(sizes, IS_VALUE_LIST)? else {
            return Ok(());
        };
        let items = list.vector(ITEMS, 4)?;
        if items.len() != to.rank() as u64 {
            return Ok(());
        }
        let items = read_indices(&items)?;
        for (dim, item) in items.into_iter().enumerate() {
            if let Some(size) = self.int_value(item)? {
                if let Ok(size) = u64::try_from(size) {
                    self.graph.literal(to, dim, size);
                }
            } else if self.member(item, IS_SYMBOL)?.is_some() && to.bounds[dim] > 1 {
                self.graph.fact(to.dim(dim), DimFact::Dynamic);
            }
        }
        Ok(())
    }

    fn add_permutation(
        &mut self,
        to: &PayloadShape,
        from: &PayloadShape,
        args: &[u64],
    ) -> Result<(), FormatError> {
        let &[_, order, _] = args else { return Ok(()) };
        let Some(list) = self.member(order, IS_INT_LIST)? else {
            return Ok(());
        };
        let items = list.vector(ITEMS, 8)?;
        if items.len() != to.rank() as u64 {
            return Ok(());
        }
        let order = (0..items.len()).map(|index| items.u64(index));
        let order: Vec<u64> = order.collect::<Result<_, _>>()?;
        self.graph.transpose(to, from, &order);
        Ok(())
    }
}

/// Reads indices of values; a negative one becomes an invalid index.
fn read_indices(vector: &Vector<'_>) -> Result<Vec<u64>, FormatError> {
    (0..vector.len())
        .map(|index| Ok(u64::try_from(vector.i32(index)?).unwrap_or(u64::MAX)))
        .collect()
}
