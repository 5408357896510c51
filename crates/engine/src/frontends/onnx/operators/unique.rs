//! `Unique`: the different elements of a tensor, or the different slices along an axis.

use std::cmp::Ordering;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{attribute, integer};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, chosen, operator, wanted_outputs,
};
use crate::graph::kernel::Kernel;

const NAME: &str = "Unique";

/// Builds a `Unique`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let unique = Unique {
        axis: attribute(node, "axis").map(|axis| axis.i),
        is_sorted: integer(node, "sorted", 1) != 0,
        wanted: wanted_outputs(node),
    };
    operator(NAME, 1, unique)
}

#[derive(Debug, Clone, Copy)]
struct Unique {
    /// The axis of the slices; the elements if there is none.
    axis: Option<i64>,
    /// Otherwise they are in the order of their first places.
    is_sorted: bool,
    /// Outputs that are wanted: the different ones, their first places, the places of all among
    /// them, and their counts.
    wanted: [bool; 4],
}

impl NodeOperator for Unique {
    fn outputs(&self) -> usize {
        self.wanted.iter().filter(|wanted| **wanted).count()
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        let numbers = usize::from(self.wanted[0]);
        if self.wanted[0] {
            s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
            match self.axis {
                Some(_) => s.equals(&inputs[0].rank, &outputs[0].rank)?,
                None => s.equals(&outputs[0].rank, 1)?,
            }
        }
        for output in &outputs[numbers..] {
            s.equals(&output.datum_type, i64::datum_type())?;
            s.equals(&output.rank, 1)?;
        }
        Ok(())
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let count = model.symbols.new_with_prefix("unique").to_dim();
        let (all, shape) = match self.axis {
            Some(axis) => {
                let axis = axis_of(axis, fact.rank())?;
                let mut shape = fact.shape.to_tvec();
                let all = std::mem::replace(&mut shape[axis], count.clone());
                (all, shape)
            }
            None => (fact.shape.volume(), tvec!(count.clone())),
        };
        let facts = [
            fact.datum_type.fact(shape),
            i64::fact([count.clone()]),
            i64::fact([all]),
            i64::fact([count]),
        ];
        let unique = *self;
        let facts = chosen(self.wanted, facts);
        let kernel = Kernel::new(NAME, facts, move |inputs: &[TValue]| unique.run(&inputs[0]));
        model.wire_node(prefix, kernel.binding(), inputs)
    }
}

impl Unique {
    fn run(&self, input: &Tensor) -> TractResult<TVec<Tensor>> {
        ensure!(
            input.datum_type().is_number() || input.datum_type() == bool::datum_type(),
            "different elements of {:?} are not supported",
            input.datum_type()
        );
        let numbers = input.cast_to::<f64>()?;
        let numbers = numbers.try_as_plain_ram()?;
        let numbers = numbers.as_slice::<f64>()?;
        let integers = input.cast_to::<i64>().ok();
        let integers = integers
            .as_ref()
            .map(|it| it.try_as_plain_ram())
            .transpose()?;
        let integers = integers
            .as_ref()
            .map(PlainView::as_slice::<i64>)
            .transpose()?;
        let is_whole = input.datum_type().is_integer();
        // Slices: their number, and elements between neighbours of a slice and between slices.
        let (count, outer, inner) = match self.axis {
            Some(axis) => {
                let axis = axis_of(axis, input.rank())?;
                let shape = input.shape();
                let inner: usize = shape[axis + 1..].iter().product();
                let outer: usize = shape[..axis].iter().product();
                (shape[axis], outer, inner)
            }
            None => (numbers.len(), 1, 1),
        };
        let places = |slice: usize| {
            let starts = (0..outer).map(move |outer| (outer * count + slice) * inner);
            starts.flat_map(move |start| start..start + inner)
        };
        let order = |a: &usize, b: &usize| {
            let pairs = places(*a).zip(places(*b));
            let compared = pairs.map(|(a, b)| match integers.filter(|_| is_whole) {
                Some(integers) => integers[a].cmp(&integers[b]),
                None => numbers[a].total_cmp(&numbers[b]),
            });
            compared.fold(Ordering::Equal, Ordering::then)
        };
        let mut sorted: Vec<usize> = (0..count).collect();
        sorted.sort_by(order);
        // The first slice of each kind, and the kind of each slice.
        let mut firsts: Vec<usize> = Vec::new();
        let mut counts: Vec<i64> = Vec::new();
        let mut kinds = vec![0; count];
        for slice in sorted {
            let is_new = firsts
                .last()
                .is_none_or(|first| order(first, &slice).is_ne());
            if is_new {
                firsts.push(slice);
                counts.push(0);
            }
            kinds[slice] = firsts.len() - 1;
            *counts.last_mut().expect("one was just added") += 1;
        }
        if !self.is_sorted {
            let mut by_place: Vec<usize> = (0..firsts.len()).collect();
            by_place.sort_by_key(|kind| firsts[*kind]);
            let mut ranks = vec![0; firsts.len()];
            for (rank, kind) in by_place.iter().enumerate() {
                ranks[*kind] = rank;
            }
            firsts = by_place.iter().map(|kind| firsts[*kind]).collect();
            counts = by_place.iter().map(|kind| counts[*kind]).collect();
            for kind in &mut kinds {
                *kind = ranks[*kind];
            }
        }
        let integers = |of: &[usize]| {
            let of = of.iter().map(|it| i64::try_from(*it));
            TractResult::Ok(tensor1(&of.collect::<Result<Vec<i64>, _>>()?))
        };
        let outputs = [
            self.picked(input, [count, outer, inner], &firsts)?,
            integers(&firsts)?,
            integers(&kinds)?,
            tensor1(&counts),
        ];
        Ok(chosen(self.wanted, outputs))
    }

    /// Returns some slices of a tensor.
    fn picked(
        &self,
        input: &Tensor,
        [count, outer, inner]: [usize; 3],
        slices: &[usize],
    ) -> TractResult<Tensor> {
        let mut shape: TVec<usize> = tvec!(slices.len());
        if let Some(axis) = self.axis {
            shape = input.shape().into();
            let axis = axis_of(axis, shape.len())?;
            shape[axis] = slices.len();
        }
        let mut picked = Tensor::zero_dt(input.datum_type(), &shape)?;
        let size = input.datum_type().size_of() * inner;
        let from = input.try_as_plain_ram()?;
        let from = from.as_bytes();
        let mut view = picked.try_as_plain_ram_mut()?;
        let places = (0..outer).flat_map(|outer| slices.iter().map(move |it| outer * count + it));
        for (to, place) in view
            .as_bytes_mut()
            .chunks_exact_mut(size.max(1))
            .zip(places)
        {
            to.copy_from_slice(&from[place * size..][..size]);
        }
        Ok(picked)
    }
}
