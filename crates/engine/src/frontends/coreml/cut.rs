//! Core ML slices with bounds computed at run time, and slices with negative strides.

use tract_onnx::tract_core::internal::*;

use super::shape::INDEX;
use super::{CoremlLowering, Operation, Results, one};
use crate::graph::builder::Wire;
use crate::graph::datum_type;
use crate::graph::kernel::Kernel;
use crate::graph::operators::{gather_elements, strides};

/// How an operation specifies the ends of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// By end positions (`end`), with masks and strides.
    Places,
    /// By sizes (`size`).
    Sizes,
}

/// The parts of a slice that are known before a run.
#[derive(Debug, Clone)]
struct SliceParts {
    ends: SliceEnd,
    stride: Vec<i64>,
    /// `begin_mask`, `end_mask` and `squeeze_mask`: start at the first position, end at the last
    /// one, take a single position.
    masks: [Vec<bool>; 3],
}

impl SliceParts {
    /// Returns the positions of a slice along one dimension, counted as in Python.
    fn places(&self, at: usize, size: usize, begin: i64, end: i64) -> TractResult<Vec<usize>> {
        let is = |mask: usize| self.masks[mask].get(at) == Some(&true);
        let count = i64::try_from(size)?;
        let step = self.stride.get(at).copied().unwrap_or(1);
        ensure!(step != 0, "the stride is 0");
        let from_end = |place: i64| {
            if place < 0 {
                place.saturating_add(count)
            } else {
                place
            }
        };
        if is(2) {
            let place = from_end(if is(0) { 0 } else { begin });
            ensure!(
                (0..count).contains(&place),
                "position {begin} is out of range for a dimension of size {size}"
            );
            return Ok(vec![usize::try_from(place)?]);
        }
        // Bounds out of range are clamped to the dimension.
        let (least, most) = if step > 0 {
            (0, count)
        } else {
            (-1, count - 1)
        };
        let held = |place: i64| from_end(place).clamp(least, most);
        let forward = step > 0;
        let begin = match (is(0), forward) {
            (true, true) => least,
            (true, false) => most,
            (false, _) => held(begin),
        };
        let end = match (self.ends, is(1), forward) {
            (_, true, true) => most,
            (_, true, false) => least,
            (SliceEnd::Places, false, _) => held(end),
            (SliceEnd::Sizes, false, _) if end < 1 => most,
            (SliceEnd::Sizes, false, _) => {
                let end = begin.saturating_add(end);
                ensure!(
                    end <= count,
                    "slice ends at {end}, beyond the dimension of size {size}"
                );
                end
            }
        };
        let mut places = Vec::new();
        let mut place = begin;
        while (forward && place < end) || (!forward && place > end) {
            places.push(usize::try_from(place)?);
            place = place.saturating_add(step);
        }
        Ok(places)
    }
}

/// Lowers a slice whose positions are computed at run time. Its sizes are those declared in the
/// program.
pub(super) fn runtime_slice(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    x: Wire,
    ends: SliceEnd,
) -> Results {
    let rank = lowering.shape(x)?.len();
    let last = match ends {
        SliceEnd::Places => "end",
        SliceEnd::Sizes => "size",
    };
    let mut inputs = vec![x.outlet];
    for name in ["begin", last] {
        let wire = lowering.tensor(operation, name)?;
        let wire = lowering.frame.builder.cast(wire, INDEX)?;
        let shape = lowering.shape(wire)?;
        ensure!(
            shape == [rank.to_dim()],
            "invalid shape of `{name}`: got {shape:?} for {rank} dimensions"
        );
        inputs.push(wire.outlet);
    }
    let [begin, end, single] =
        ["begin_mask", "end_mask", "squeeze_mask"].map(|name| lowering.bools(operation, name));
    let rules = SliceParts {
        ends,
        stride: lowering.ints(operation, "stride")?.unwrap_or_default(),
        masks: [begin?, end?, single?],
    };
    let single: Vec<usize> = (0..rank)
        .filter(|at| rules.masks[2].get(*at) == Some(&true))
        .collect();
    let (mut dims, is_open) = lowering.declared_sizes(operation, 0)?;
    ensure!(
        dims.len() + single.len() == rank,
        "invalid rank of a slice: {}",
        dims.len()
    );
    for at in &single {
        dims.insert(*at, 1.to_dim());
    }
    let fact = datum_type(x.dtype).fact(&dims);
    let wanted: Vec<Option<usize>> = dims.iter().map(|dim| dim.to_usize().ok()).collect();
    let kernel = Kernel::new("Part", tvec!(fact), move |inputs| {
        let [begin, end] = [1, 2].map(|at: usize| -> TractResult<Vec<i64>> {
            Ok(inputs[at].try_as_plain_ram()?.as_slice::<i64>()?.to_vec())
        });
        let (begin, end) = (begin?, end?);
        let shape = inputs[0].shape();
        let own = strides(shape);
        let (mut from, mut to) = (vec![0], Vec::new());
        for (at, size) in shape.iter().enumerate() {
            let places = rules.places(at, *size, begin[at], end[at])?;
            ensure!(
                wanted[at].is_none_or(|wanted| wanted == places.len()),
                "wrong size of dimension {at} of a slice: {} positions, but the program declares {:?}",
                places.len(),
                wanted[at]
            );
            let mut next = Vec::with_capacity(from.len() * places.len());
            for start in from {
                next.extend(places.iter().map(|place| start + place * own[at]));
            }
            from = next;
            to.push(places.len());
        }
        Ok(tvec!(gather_elements(&inputs[0], &to, &from)?))
    });
    let builder = &mut lowering.frame.builder;
    let kernel = if is_open { kernel.binding() } else { kernel };
    let outlet = builder.wire(kernel, &inputs)?;
    let outlet = builder.remove(outlet, &single)?;
    Ok(one(Wire { outlet, ..x }))
}
