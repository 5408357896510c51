//! Translates a delegate's graph into rules between dimensions: one method per kind of operator.
//!
//! Invariant: operators with inconsistent ranks, sizes or indices add no rule. Every rule therefore
//! holds for any consistent program. Sizes are upper bounds, as at export. The encoding of graphs
//! is left to the modules of the backends.
//! backend writes its graph.

use std::cell::Cell;

use super::evidence::DimFact;
use super::relations::{DimId, DimensionRule, Relations};

/// Approximate number of dimensions and rules that the payloads of one program may add.
const MAX_RULES: usize = 1 << 19;

/// Maximum number of inputs, and of outputs, of a delegate.
pub(super) const MAX_PORTS: u64 = 4096;

/// Marks an upper bound that the payload does not record.
pub(super) const UNKNOWN_SIZE: u64 = u64::MAX;

/// A tensor: its dimensions and their upper bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PayloadShape {
    first: DimId,
    /// Upper bounds of the sizes.
    pub(super) bounds: Vec<u64>,
}

/// The inputs of a delegate, then its outputs; `None` for a tensor of unknown shape.
pub(super) struct Ports {
    /// Shapes in the order of a call's arguments.
    pub(super) shapes: Vec<Option<PayloadShape>>,
    /// True if dimensions are in memory order instead of tensor order.
    pub(super) in_memory_order: bool,
}

/// The arguments that a delegate takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedArguments {
    /// Minimum number of arguments.
    pub(super) count: u64,
    /// True if all of them are tensors.
    pub(super) are_tensors: bool,
}

/// The remaining number of dimensions and rules that the payloads of a program may add.
#[derive(Debug)]
pub(super) struct RuleBudget(Cell<usize>);

/// Adds dimensions and rules up to the limit.
pub(super) struct PayloadGraph<'a> {
    relations: &'a mut Relations,
    room: &'a RuleBudget,
}

impl PayloadShape {
    /// Returns the number of dimensions.
    pub(super) fn rank(&self) -> usize {
        self.bounds.len()
    }

    /// Returns the dimension at `index`, which must be below the rank.
    pub(super) fn dim(&self, index: usize) -> DimId {
        debug_assert!(index < self.rank());
        self.first + index
    }

    fn dims(&self) -> impl Iterator<Item = (DimId, u64)> {
        (self.first..).zip(self.bounds.iter().copied())
    }
}

impl Default for RuleBudget {
    fn default() -> Self {
        Self(Cell::new(MAX_RULES))
    }
}

impl RuleBudget {
    /// Reserves room for `count` dimensions or rules; returns whether there was enough.
    pub(super) fn take(&self, count: usize) -> bool {
        let left = self.0.get().checked_sub(count);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Creates a tensor with these bounds, if there is room for it.
    pub(super) fn shape(
        &self,
        relations: &mut Relations,
        bounds: Vec<u64>,
    ) -> Option<PayloadShape> {
        self.take(bounds.len() + 1).then(|| PayloadShape {
            first: relations.dims(bounds.len()),
            bounds,
        })
    }
}

impl<'a> PayloadGraph<'a> {
    pub(super) fn new(relations: &'a mut Relations, room: &'a RuleBudget) -> Self {
        Self { relations, room }
    }

    /// Creates a tensor with these bounds.
    pub(super) fn shape(&mut self, bounds: Vec<u64>) -> Option<PayloadShape> {
        self.room.shape(self.relations, bounds)
    }

    /// Records that a dimension is dynamic or fixed.
    pub(super) fn fact(&mut self, dim: DimId, certain: DimFact) {
        if self.room.take(1) {
            self.relations.add_fact(dim, certain);
        }
    }

    /// Records a minimum size of a dimension.
    pub(super) fn at_least(&mut self, dim: DimId, size: u64) {
        if self.room.take(1) {
            self.relations.add_min_size(dim, size);
        }
    }

    /// Records that all dimensions of a tensor are fixed.
    pub(super) fn fixed(&mut self, shape: &PayloadShape) {
        for (dim, _) in shape.dims() {
            self.fact(dim, DimFact::Fixed);
        }
    }

    /// Records that two dimensions have the same size. An unknown upper bound agrees with any
    /// other.
    pub(super) fn equal(&mut self, to: (&PayloadShape, usize), from: (&PayloadShape, usize)) {
        let size = |(shape, dim): (&PayloadShape, usize)| shape.bounds.get(dim).copied();
        let (Some(a), Some(b)) = (size(to), size(from)) else {
            return;
        };
        let agree = a == b || a == UNKNOWN_SIZE || b == UNKNOWN_SIZE;
        if agree && self.room.take(2) {
            self.relations.equal(to.0.dim(to.1), from.0.dim(from.1));
        }
    }

    /// Records that a dimension's size grows with the size of the other.
    fn monotone(
        &mut self,
        (to, dim): (&PayloadShape, usize),
        (from, other): (&PayloadShape, usize),
    ) {
        if self.room.take(2) {
            self.relations.same(to.dim(dim), from.dim(other));
        }
    }

    /// Records that a dimension is computed from the given ones.
    fn function(&mut self, to: DimId, mut from: Vec<DimId>, injective: bool) {
        from.sort_unstable();
        from.dedup();
        if self.room.take(from.len() + 1) {
            self.relations.rule(DimensionRule::Function {
                to,
                from,
                injective,
            });
        }
    }

    /// Records that two tensors have the same shape.
    pub(super) fn elementwise(&mut self, to: &PayloadShape, from: &PayloadShape) {
        if to.bounds == from.bounds {
            for dim in 0..to.rank() {
                self.equal((to, dim), (from, dim));
            }
        }
    }

    /// Records that `to` is the broadcast of two shapes.
    pub(super) fn broadcast(&mut self, to: &PayloadShape, a: &PayloadShape, b: &PayloadShape) {
        self.broadcast_leading(to, a, b, 0);
    }

    /// Records a broadcast of all but the last `kept` dimensions. A size of at most 1 adapts to the
    /// other.
    fn broadcast_leading(
        &mut self,
        to: &PayloadShape,
        a: &PayloadShape,
        b: &PayloadShape,
        kept: usize,
    ) {
        let leading = |shape: &PayloadShape| shape.rank().checked_sub(kept);
        let (Some(rank), Some(of_a), Some(of_b)) = (leading(to), leading(a), leading(b)) else {
            return;
        };
        if rank != of_a.max(of_b) {
            return;
        }
        for dim in 0..rank {
            let find = |shape: &PayloadShape, own: usize| {
                let dim = (dim + own).checked_sub(rank)?;
                Some((dim, shape.bounds[dim])).filter(|(_, bound)| *bound != 1)
            };
            let size = to.bounds[dim];
            match (find(a, of_a), find(b, of_b)) {
                (Some((from, _)), None) => self.equal((to, dim), (a, from)),
                (None, Some((from, _))) => self.equal((to, dim), (b, from)),
                // A dimension with an unknown bound may always be 1.
                (Some((one, first)), Some((two, second)))
                    if first == size
                        && second == size
                        && (2..UNKNOWN_SIZE).contains(&size)
                        && self.room.take(3) =>
                {
                    self.relations.rule(DimensionRule::Broadcast {
                        to: to.dim(dim),
                        from: [a.dim(one), b.dim(two)],
                    });
                }
                _ => {}
            }
        }
    }

    /// Records a linear layer: the leading dimensions are kept, the last one is multiplied by a
    /// matrix `[out, in]`, or `[in, out]` if `transposed`.
    pub(super) fn linear(
        &mut self,
        to: &PayloadShape,
        from: &PayloadShape,
        matrix: &PayloadShape,
        transposed: bool,
    ) {
        let rank = to.rank();
        if rank == 0 || from.rank() != rank || matrix.rank() != 2 {
            return;
        }
        let (out, inner) = if transposed { (1, 0) } else { (0, 1) };
        for dim in 0..rank - 1 {
            self.equal((to, dim), (from, dim));
        }
        self.equal((from, rank - 1), (matrix, inner));
        self.equal((to, rank - 1), (matrix, out));
    }

    /// Records a batched product of `[m, k]` and `[k, n]`.
    pub(super) fn matmul(&mut self, to: &PayloadShape, a: &PayloadShape, b: &PayloadShape) {
        let (rank, of_a, of_b) = (to.rank(), a.rank(), b.rank());
        if rank < 2 || of_a < 2 || of_b < 2 {
            return;
        }
        self.broadcast_leading(to, a, b, 2);
        self.equal((to, rank - 2), (a, of_a - 2));
        self.equal((to, rank - 1), (b, of_b - 1));
        self.equal((a, of_a - 1), (b, of_b - 2));
    }

    /// Records a permutation: dimension `i` of the result is dimension `order[i]` of the argument.
    pub(super) fn transpose(&mut self, to: &PayloadShape, from: &PayloadShape, order: &[u64]) {
        let rank = to.rank();
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if from.rank() != rank || !sorted.iter().copied().eq(0..rank as u64) {
            return;
        }
        for (dim, &other) in order.iter().enumerate() {
            let other = usize::try_from(other).expect("below the rank");
            self.equal((to, dim), (from, other));
        }
    }

    /// Records a concatenation of tensors along an axis.
    pub(super) fn concatenate(&mut self, to: &PayloadShape, from: &[PayloadShape], axis: usize) {
        let rank = to.rank();
        if axis >= rank || from.iter().any(|shape| shape.rank() != rank) {
            return;
        }
        for shape in from {
            for dim in (0..rank).filter(|&dim| dim != axis) {
                self.equal((to, dim), (shape, dim));
            }
        }
        let joined = from.iter().map(|shape| shape.dim(axis)).collect();
        self.function(to.dim(axis), joined, true);
    }

    /// Records a reshape to literal sizes; 0 marks the size inferred from the number of elements.
    pub(super) fn reshape(&mut self, to: &PayloadShape, from: &PayloadShape, sizes: &[u64]) {
        if sizes.len() != to.rank() || [to, from].iter().any(|shape| shape.bounds.contains(&0)) {
            return;
        }
        let dims = || to.dims().zip(sizes.iter().copied());
        if dims().any(|((_, bound), size)| size != 0 && size != bound) {
            return;
        }
        let mut inferred = Vec::new();
        for ((dim, _), size) in dims() {
            if size == 0 {
                inferred.push(dim);
            } else {
                self.fact(dim, DimFact::Fixed);
            }
        }
        if let [dim] = inferred[..] {
            let all = from.dims().map(|(dim, _)| dim).collect();
            self.function(dim, all, true);
        }
    }

    /// Records that each dimension is an unknown function of the same dimension of the argument.
    pub(super) fn each_dim_from_same(&mut self, to: &PayloadShape, from: &PayloadShape) {
        if to.rank() == from.rank() {
            for dim in 0..to.rank() {
                self.function(to.dim(dim), vec![from.dim(dim)], false);
            }
        }
    }

    /// Records that each dimension grows by a constant.
    pub(super) fn pad(&mut self, to: &PayloadShape, from: &PayloadShape) {
        if to.rank() == from.rank() {
            for dim in 0..to.rank() {
                self.monotone((to, dim), (from, dim));
            }
        }
    }

    /// Records a sliding window over `[n, h, w, c]` with these steps; only the batch dimension is
    /// kept.
    pub(super) fn window(&mut self, to: &PayloadShape, from: &PayloadShape, steps: [u64; 2]) {
        if to.rank() != 4 || from.rank() != 4 {
            return;
        }
        self.equal((to, 0), (from, 0));
        for (dim, step) in [1, 2].into_iter().zip(steps) {
            // Steps above 1 may map two sizes to the same result.
            self.function(to.dim(dim), vec![from.dim(dim)], step == 1);
        }
    }

    /// Records that a dimension always has this size.
    pub(super) fn literal(&mut self, shape: &PayloadShape, dim: usize, size: u64) {
        if shape.bounds.get(dim) == Some(&size) {
            self.fact(shape.dim(dim), DimFact::Fixed);
        }
    }
}
