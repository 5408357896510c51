//! A delegate's graph as rules between dimensions: one method for each kind of operator.
//!
//! Invariant: what does not fit together (ranks, sizes, indices) adds no rule; so every rule holds
//! for any consistent program. Sizes are the largest ones, as at export. Knows nothing of how a
//! backend writes its graph.

use std::cell::Cell;

use super::evidence::Certain;
use super::relations::{DimId, Relations, Rule};

/// Dimensions and rules, about, that the payloads of one program may add.
const ROOM: usize = 1 << 19;

/// Most inputs, and most outputs, of a delegate that is looked at.
pub(super) const MAX_PORTS: u64 = 4096;

/// Stands for a largest size that the payload does not say.
pub(super) const ANY_SIZE: u64 = u64::MAX;

/// A tensor: its dimensions and their largest sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    first: DimId,
    /// Largest sizes.
    pub(super) bounds: Vec<u64>,
}

/// A delegate's inputs, then its outputs: the tensors whose shapes it tells.
pub(super) struct Ports {
    /// In the order of a call's arguments.
    pub(super) shapes: Vec<Option<Shape>>,
    /// Dimensions are in the order of memory, not of the tensor.
    pub(super) in_memory_order: bool,
}

/// The arguments that a delegate takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// How many at least.
    pub(super) count: u64,
    /// Whether all of them are tensors.
    pub(super) are_tensors: bool,
}

/// How much more the payloads of a program may add.
#[derive(Debug)]
pub(super) struct Room(Cell<usize>);

/// Adds dimensions and rules while there is room.
pub(super) struct Graph<'a> {
    relations: &'a mut Relations,
    room: &'a Room,
}

impl Shape {
    /// Number of dimensions.
    pub(super) fn rank(&self) -> usize {
        self.bounds.len()
    }

    /// The dimension at `index`, which is below the rank.
    pub(super) fn dim(&self, index: usize) -> DimId {
        debug_assert!(index < self.rank());
        self.first + index
    }

    fn dims(&self) -> impl Iterator<Item = (DimId, u64)> {
        (self.first..).zip(self.bounds.iter().copied())
    }
}

impl Default for Room {
    fn default() -> Self {
        Self(Cell::new(ROOM))
    }
}

impl Room {
    /// Whether there is room for so many dimensions or rules, which are then taken.
    pub(super) fn take(&self, count: usize) -> bool {
        let left = self.0.get().checked_sub(count);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }

    /// A tensor of these sizes, if there is room for it.
    pub(super) fn shape(&self, relations: &mut Relations, bounds: Vec<u64>) -> Option<Shape> {
        self.take(bounds.len() + 1).then(|| Shape {
            first: relations.dims(bounds.len()),
            bounds,
        })
    }
}

impl<'a> Graph<'a> {
    pub(super) fn new(relations: &'a mut Relations, room: &'a Room) -> Self {
        Self { relations, room }
    }

    /// A tensor of these sizes.
    pub(super) fn shape(&mut self, bounds: Vec<u64>) -> Option<Shape> {
        self.room.shape(self.relations, bounds)
    }

    /// A dimension is dynamic or not.
    pub(super) fn fact(&mut self, dim: DimId, certain: Certain) {
        if self.room.take(1) {
            self.relations.fact(dim, certain);
        }
    }

    /// A smallest size of a dimension.
    pub(super) fn at_least(&mut self, dim: DimId, size: u64) {
        if self.room.take(1) {
            self.relations.at_least(dim, size);
        }
    }

    /// All of a tensor is fixed.
    pub(super) fn fixed(&mut self, shape: &Shape) {
        for (dim, _) in shape.dims() {
            self.fact(dim, Certain::Fixed);
        }
    }

    /// Two dimensions are of the same size. A largest size that is not said agrees with any other.
    pub(super) fn equal(&mut self, to: (&Shape, usize), from: (&Shape, usize)) {
        let size = |(shape, dim): (&Shape, usize)| shape.bounds.get(dim).copied();
        let (Some(a), Some(b)) = (size(to), size(from)) else {
            return;
        };
        let agree = a == b || a == ANY_SIZE || b == ANY_SIZE;
        if agree && self.room.take(2) {
            self.relations.equal(to.0.dim(to.1), from.0.dim(from.1));
        }
    }

    /// A dimension's size grows with the other's.
    fn monotone(&mut self, (to, dim): (&Shape, usize), (from, other): (&Shape, usize)) {
        if self.room.take(2) {
            self.relations.same(to.dim(dim), from.dim(other));
        }
    }

    /// A dimension is computed from these.
    fn function(&mut self, to: DimId, mut from: Vec<DimId>, injective: bool) {
        from.sort_unstable();
        from.dedup();
        if self.room.take(from.len() + 1) {
            self.relations.rule(Rule::Function {
                to,
                from,
                injective,
            });
        }
    }

    /// The same shape.
    pub(super) fn elementwise(&mut self, to: &Shape, from: &Shape) {
        if to.bounds == from.bounds {
            for dim in 0..to.rank() {
                self.equal((to, dim), (from, dim));
            }
        }
    }

    /// Two shapes broadcast.
    pub(super) fn broadcast(&mut self, to: &Shape, a: &Shape, b: &Shape) {
        self.broadcast_leading(to, a, b, 0);
    }

    /// A size that is 1 at most gives way to the other. Two shapes broadcast, but for the last `kept` dimensions.
    fn broadcast_leading(&mut self, to: &Shape, a: &Shape, b: &Shape, kept: usize) {
        let leading = |shape: &Shape| shape.rank().checked_sub(kept);
        let (Some(rank), Some(of_a), Some(of_b)) = (leading(to), leading(a), leading(b)) else {
            return;
        };
        if rank != of_a.max(of_b) {
            return;
        }
        for dim in 0..rank {
            let find = |shape: &Shape, own: usize| {
                let dim = (dim + own).checked_sub(rank)?;
                Some((dim, shape.bounds[dim])).filter(|(_, bound)| *bound != 1)
            };
            let size = to.bounds[dim];
            match (find(a, of_a), find(b, of_b)) {
                (Some((from, _)), None) => self.equal((to, dim), (a, from)),
                (None, Some((from, _))) => self.equal((to, dim), (b, from)),
                // One whose largest size is not said may always be 1.
                (Some((one, first)), Some((two, second)))
                    if first == size
                        && second == size
                        && (2..ANY_SIZE).contains(&size)
                        && self.room.take(3) =>
                {
                    self.relations.rule(Rule::Broadcast {
                        to: to.dim(dim),
                        from: [a.dim(one), b.dim(two)],
                    });
                }
                _ => {}
            }
        }
    }

    /// Leading dimensions are kept, the last one is multiplied by a matrix `[out, in]`, or
    /// `[in, out]` if `transposed`.
    pub(super) fn linear(&mut self, to: &Shape, from: &Shape, matrix: &Shape, transposed: bool) {
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

    /// A batch of `[m, k]` times `[k, n]`.
    pub(super) fn matmul(&mut self, to: &Shape, a: &Shape, b: &Shape) {
        let (rank, of_a, of_b) = (to.rank(), a.rank(), b.rank());
        if rank < 2 || of_a < 2 || of_b < 2 {
            return;
        }
        self.broadcast_leading(to, a, b, 2);
        self.equal((to, rank - 2), (a, of_a - 2));
        self.equal((to, rank - 1), (b, of_b - 1));
        self.equal((a, of_a - 1), (b, of_b - 2));
    }

    /// Dimension `i` of the result is dimension `order[i]`.
    pub(super) fn transpose(&mut self, to: &Shape, from: &Shape, order: &[u64]) {
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

    /// Joins tensors along an axis.
    pub(super) fn concatenate(&mut self, to: &Shape, from: &[Shape], axis: usize) {
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

    /// Literal sizes; 0 for the one that is inferred from the number of elements.
    pub(super) fn reshape(&mut self, to: &Shape, from: &Shape, sizes: &[u64]) {
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
                self.fact(dim, Certain::Fixed);
            }
        }
        if let [dim] = inferred[..] {
            let all = from.dims().map(|(dim, _)| dim).collect();
            self.function(dim, all, true);
        }
    }

    /// Each dimension is computed from the same one of the argument, nobody knows how.
    pub(super) fn each_from_its_own(&mut self, to: &Shape, from: &Shape) {
        if to.rank() == from.rank() {
            for dim in 0..to.rank() {
                self.function(to.dim(dim), vec![from.dim(dim)], false);
            }
        }
    }

    /// Each dimension grows by a constant.
    pub(super) fn pad(&mut self, to: &Shape, from: &Shape) {
        if to.rank() == from.rank() {
            for dim in 0..to.rank() {
                self.monotone((to, dim), (from, dim));
            }
        }
    }

    /// A window moves over `[n, h, w, c]` in these steps: only the batch is kept as it is.
    pub(super) fn window(&mut self, to: &Shape, from: &Shape, steps: [u64; 2]) {
        if to.rank() != 4 || from.rank() != 4 {
            return;
        }
        self.equal((to, 0), (from, 0));
        for (dim, step) in [1, 2].into_iter().zip(steps) {
            // Larger steps may map two sizes to one.
            self.function(to.dim(dim), vec![from.dim(dim)], step == 1);
        }
    }

    /// A dimension is always this large.
    pub(super) fn literal(&mut self, shape: &Shape, dim: usize, size: u64) {
        if shape.bounds.get(dim) == Some(&size) {
            self.fact(shape.dim(dim), Certain::Fixed);
        }
    }
}
