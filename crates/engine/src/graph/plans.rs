//! A cache of the plans of one model, by the inputs they were made for, and the general plan for
//! all shapes.
//!
//! Invariant: together the plans keep at most a bounded number of bytes. Only the plan in use
//! always stays. The least recently used plan is evicted first, before the next one is made,
//! because two plans of a large model may not fit in memory.

use super::holdings::MemoryUse;

/// Number of copies of a model's weights that may be kept, for batch sizes that alternate.
const MAX_WEIGHT_COPIES: u64 = 4;
/// Minimum of the memory limit, in bytes, for small models.
const MIN_LIMIT_BYTES: u64 = 64 << 20;
/// Maximum of the memory limit, in bytes, whatever the size of the weights.
const MAX_LIMIT_BYTES: u64 = 1 << 30;

/// Maximum size of the weights of a model whose first run makes a plan for all shapes, in bytes.
const MAX_EAGER_BYTES: u64 = 256 << 20;

/// Something that this cache can keep.
pub(crate) trait CachedPlan {
    /// Returns the memory that it keeps.
    fn memory_use(&self) -> &MemoryUse;
}

/// The plans of one model.
pub(crate) struct Plans<K, P> {
    /// In order of use; the most recently used plan is last.
    known: Vec<(K, P)>,
    bound: u64,
    /// Number of plans made so far.
    made: usize,
    /// Whether the model is so small that its first run makes a plan for all shapes, too.
    is_small: bool,
    general: GeneralPlan<P>,
}

/// The plan for all shapes.
enum GeneralPlan<P> {
    Untried,
    Works(Box<P>),
    Refused,
}

impl<K, P: CachedPlan> Plans<K, P> {
    /// Creates an empty cache for a model with about this many bytes of weights.
    pub(crate) fn new(weights: u64) -> Self {
        let bound = weights.saturating_mul(MAX_WEIGHT_COPIES);
        Self {
            known: Vec::new(),
            bound: bound.clamp(MIN_LIMIT_BYTES, MAX_LIMIT_BYTES),
            made: 0,
            is_small: weights <= MAX_EAGER_BYTES,
            general: GeneralPlan::Untried,
        }
    }

    /// Returns the number of plans made for single shapes.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// Returns `true` if the plan in use has a matching key.
    pub(crate) fn is_last(&self, fits: impl FnOnce(&K) -> bool) -> bool {
        self.known.last().is_some_and(|(key, _)| fits(key))
    }

    /// Puts the plan with a matching key into use. Returns `false` if it does not exist.
    pub(crate) fn find(&mut self, mut fits: impl FnMut(&K) -> bool) -> bool {
        // The plan in use matches most often, so the search starts there.
        let Some(at) = self.known.iter().rposition(|(key, _)| fits(key)) else {
            return false;
        };
        self.known[at..].rotate_left(1);
        true
    }

    /// Returns the plan in use.
    pub(crate) fn last_mut(&mut self) -> Option<&mut P> {
        self.known.last_mut().map(|(_, plan)| plan)
    }

    /// Evicts plans until another one fits that is as large as the largest so far.
    pub(crate) fn make_room(&mut self) {
        let alone = self.known.iter().map(|(_, plan)| [plan.memory_use()]);
        let expected = alone.map(MemoryUse::total_bytes).max().unwrap_or(0);
        while !self.known.is_empty() && self.bytes().saturating_add(expected) > self.bound {
            self.evict_oldest();
        }
    }

    /// Adds a plan and puts it into use.
    pub(crate) fn keep(&mut self, key: K, plan: P) {
        self.made += 1;
        self.known.push((key, plan));
        while self.known.len() > 1 && self.bytes() > self.bound {
            self.evict_oldest();
        }
    }

    /// Drops the plan in use.
    pub(crate) fn drop_last(&mut self) {
        self.known.pop();
    }

    /// Returns `true` if a plan for all shapes should be tried: after the first plan, or after the
    /// second one of a large model.
    pub(crate) fn should_try_general(&self) -> bool {
        let plans = if self.is_small { 1 } else { 2 };
        self.made >= plans && matches!(self.general, GeneralPlan::Untried)
    }

    /// Returns the plan for all shapes.
    pub(crate) fn general_mut(&mut self) -> Option<&mut P> {
        match &mut self.general {
            GeneralPlan::Works(plan) => Some(plan),
            _ => None,
        }
    }

    /// Returns all plans.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut P> {
        let general = match &mut self.general {
            GeneralPlan::Works(plan) => Some(&mut **plan),
            _ => None,
        };
        self.known.iter_mut().map(|(_, plan)| plan).chain(general)
    }

    /// Puts a plan for all shapes into use and drops the others.
    pub(crate) fn generalise(&mut self, plan: P) {
        self.known.clear();
        self.general = GeneralPlan::Works(Box::new(plan));
    }

    /// Records that no plan for all shapes is possible, so that none is tried again.
    pub(crate) fn refuse_general(&mut self) {
        self.general = GeneralPlan::Refused;
    }

    /// Returns the number of bytes that all plans keep together.
    pub(crate) fn bytes(&self) -> u64 {
        MemoryUse::total_bytes(self.known.iter().map(|(_, plan)| plan.memory_use()))
    }

    fn evict_oldest(&mut self) {
        self.known.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tract_onnx::prelude::{Tensor, TypedModel};

    use super::*;

    const MIB: usize = 1 << 20;

    struct TestPlan {
        holdings: MemoryUse,
        /// Keeps the tensors alive, because addresses of freed tensors are reused.
        _tensors: Vec<Arc<Tensor>>,
    }

    impl CachedPlan for TestPlan {
        fn memory_use(&self) -> &MemoryUse {
            &self.holdings
        }
    }

    /// Returns zeros of this size, in MiB.
    fn zeros(size: usize) -> Arc<Tensor> {
        Arc::new(Tensor::zero::<u8>(&[size * MIB]).expect("there is memory"))
    }

    fn plan(tensors: &[Arc<Tensor>]) -> TestPlan {
        let mut held = MemoryUse::of(&TypedModel::default());
        for tensor in tensors {
            held.tensor(tensor);
        }
        TestPlan {
            holdings: held,
            _tensors: tensors.to_vec(),
        }
    }

    fn keys(plans: &Plans<u32, TestPlan>) -> Vec<u32> {
        plans.known.iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn the_bound_is_a_few_copies_of_the_weights() {
        let bound = |weights: u64| Plans::<u32, TestPlan>::new(weights).bound;
        assert_eq!(bound(0), MIN_LIMIT_BYTES);
        assert_eq!(bound(67 << 20), 268 << 20);
        assert_eq!(bound(u64::MAX), MAX_LIMIT_BYTES);
    }

    #[test]
    fn the_least_recently_used_goes_and_the_rest_stays_within_the_bound() {
        let mut plans = Plans::new(20 << 20);
        assert_eq!(plans.bound, 80 << 20);
        for key in 0..3 {
            assert!(!plans.find(|known| *known == key));
            plans.make_room();
            plans.keep(key, plan(&[zeros(20)]));
        }
        assert_eq!(keys(&plans), [0, 1, 2]);
        assert!(plans.find(|known| *known == 0));
        plans.make_room();
        assert_eq!(keys(&plans), [2, 0]);
        plans.keep(3, plan(&[zeros(20)]));
        assert!(plans.bytes() <= plans.bound);
        assert!(!plans.find(|known| *known == 1), "it had to go");
        // A plan larger than the limit stays alone while it is in use.
        plans.keep(4, plan(&[zeros(100)]));
        assert_eq!(keys(&plans), [4]);
        plans.make_room();
        assert!(keys(&plans).is_empty());
    }

    #[test]
    fn many_plans_that_share_their_weights_stay() {
        let weights = zeros(50);
        let mut plans = Plans::new(50 << 20);
        for key in 0..20 {
            plans.make_room();
            plans.keep(key, plan(&[Arc::clone(&weights)]));
        }
        assert_eq!(keys(&plans).len(), 20);
    }

    /// The number of plans without weights is limited, too.
    #[test]
    fn plans_without_weights_are_bounded() {
        let mut plans = Plans::new(0);
        for key in 0..1000 {
            plans.make_room();
            plans.keep(key, plan(&[]));
        }
        assert!((16..=128).contains(&keys(&plans).len()));
    }

    #[test]
    fn a_plan_for_all_shapes_replaces_the_others() {
        let mut plans = Plans::new(u64::MAX);
        for key in 0..2 {
            assert!(!plans.should_try_general());
            plans.keep(key, plan(&[]));
        }
        assert!(plans.should_try_general());
        let mut small = Plans::new(0);
        assert!(!small.should_try_general());
        small.keep(0, plan(&[]));
        assert!(small.should_try_general());
        plans.generalise(plan(&[]));
        assert!(keys(&plans).is_empty() && plans.general_mut().is_some());
        plans.refuse_general();
        assert!(plans.general_mut().is_none() && !plans.should_try_general());
    }
}
