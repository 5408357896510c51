//! Infers the dynamism of dimensions from rules between them.
//!
//! A delegate's graph rarely states that a dimension is dynamic, but it shows how dimensions depend
//! on each other: "if all of these are fixed, that one is fixed". [`Relations::solve`] draws every
//! conclusion from the known facts. Invariant: a rule never overrides a known fact, and omitting
//! rules only leaves more dimensions unknown. The module is independent of tensors and files.

use std::collections::BTreeMap;

use super::evidence::DimFact;

/// The number of a dimension of some tensor of a method.
pub(super) type DimId = usize;

/// A dependency between dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DimensionRule {
    /// `to` is computed from `from` and otherwise only from fixed values.
    Function {
        /// The result.
        to: DimId,
        /// Its arguments, without duplicates.
        from: Vec<DimId>,
        /// True if different values of one argument, with the others fixed, give different results.
        injective: bool,
    },
    /// `to` is the broadcast of two dimensions that are both larger than 1.
    Broadcast {
        /// The result.
        to: DimId,
        /// The two dimensions.
        from: [DimId; 2],
    },
    /// At least one of these is dynamic.
    SomeVaries(Vec<DimId>),
}

/// Dimensions, the facts about them, and rules.
#[derive(Debug, Default)]
pub(super) struct Relations {
    known: Vec<Option<DimFact>>,
    facts: Vec<(DimId, DimFact)>,
    rules: Vec<DimensionRule>,
    /// Pairs of equal dimensions.
    equal: Vec<(DimId, DimId)>,
    /// Stated minimum sizes.
    least: Vec<(DimId, u64)>,
}

impl Relations {
    /// Adds `count` dimensions; returns the number of the first.
    pub(super) fn dims(&mut self, count: usize) -> DimId {
        let first = self.known.len();
        self.known.resize(first + count, None);
        first
    }

    /// Returns the fact about a dimension, if it is known.
    pub(super) fn known(&self, dim: DimId) -> Option<DimFact> {
        self.known[dim]
    }

    /// Sets the fact about a dimension, unless it is known already.
    pub(super) fn set_fact(&mut self, dim: DimId, certain: DimFact) {
        self.known[dim].get_or_insert(certain);
    }

    /// Adds a less trustworthy fact, which is applied after all others.
    pub(super) fn add_fact(&mut self, dim: DimId, certain: DimFact) {
        self.facts.push((dim, certain));
    }

    /// Adds a minimum size of a dimension.
    pub(super) fn add_min_size(&mut self, dim: DimId, size: u64) {
        self.least.push((dim, size));
    }

    /// Returns the minimum size of each dimension for which it, or an equal dimension, states one:
    /// the largest of them.
    pub(super) fn least(&self) -> BTreeMap<DimId, u64> {
        let mut least = BTreeMap::new();
        if self.least.is_empty() {
            return least;
        }
        let equal = self.equal_dims();
        for &(dim, size) in &self.least {
            let known = least.entry(equal[dim]).or_insert(size);
            *known = size.max(*known);
        }
        let known = equal.iter().enumerate();
        let known = known.filter_map(|(dim, root)| Some((dim, *least.get(root)?)));
        known.collect()
    }

    /// Adds a rule.
    pub(super) fn rule(&mut self, rule: DimensionRule) {
        self.rules.push(rule);
    }

    /// Records that one dimension is dynamic exactly if the other is.
    pub(super) fn same(&mut self, to: DimId, from: DimId) {
        if to != from {
            self.rule(DimensionRule::Function {
                to,
                from: vec![from],
                injective: true,
            });
        }
    }

    /// Records that two dimensions have the same size, so they are both dynamic or both fixed.
    pub(super) fn equal(&mut self, to: DimId, from: DimId) {
        self.same(to, from);
        self.equal.push((to, from));
    }

    /// Returns for each dimension the first one of the same size. Dynamic dimensions that broadcast
    /// count as equal, too: an exporter that kept one of them at 1 would have made it fixed.
    pub(super) fn equal_dims(&self) -> Vec<DimId> {
        let mut first: Vec<DimId> = (0..self.known.len()).collect();
        let varies = |dim: DimId| self.known[dim] == Some(DimFact::Dynamic);
        let broadcast = self.rules.iter().filter_map(|rule| match rule {
            DimensionRule::Broadcast { to, from: [a, b] } if varies(*a) && varies(*b) => {
                Some([(*a, *b), (*to, *a)])
            }
            _ => None,
        });
        for (a, b) in self.equal.iter().copied().chain(broadcast.flatten()) {
            let (a, b) = (root(&mut first, a), root(&mut first, b));
            first[a.max(b)] = a.min(b);
        }
        (0..first.len()).map(|dim| root(&mut first, dim)).collect()
    }

    /// Draws all conclusions. Each dimension is resolved once, so the work is bounded by the number
    /// of rules and of the dimensions they name.
    pub(super) fn solve(&mut self) {
        for (dim, certain) in std::mem::take(&mut self.facts) {
            self.set_fact(dim, certain);
        }
        let mut uses: Vec<Vec<usize>> = vec![Vec::new(); self.known.len()];
        for (index, rule) in self.rules.iter().enumerate() {
            rule.dims(|dim| uses[dim].push(index));
        }
        let mut queue: Vec<usize> = (0..self.rules.len()).rev().collect();
        while let Some(index) = queue.pop() {
            for (dim, certain) in self.conclude(&self.rules[index]) {
                if self.known[dim].is_none() {
                    self.known[dim] = Some(certain);
                    queue.extend(&uses[dim]);
                }
            }
        }
    }

    fn conclude(&self, rule: &DimensionRule) -> Vec<(DimId, DimFact)> {
        match rule {
            DimensionRule::Function {
                to,
                from,
                injective,
            } => self.function(*to, from, *injective),
            DimensionRule::Broadcast { to, from } => self.broadcast(*to, *from),
            DimensionRule::SomeVaries(dims) => {
                let mut open = dims.iter().filter(|&&dim| self.known[dim].is_none());
                let settled = dims
                    .iter()
                    .any(|&dim| self.known[dim] == Some(DimFact::Dynamic));
                match (settled, open.next(), open.next()) {
                    (false, Some(&only), None) => vec![(only, DimFact::Dynamic)],
                    _ => Vec::new(),
                }
            }
        }
    }

    fn function(&self, to: DimId, from: &[DimId], injective: bool) -> Vec<(DimId, DimFact)> {
        let mut open = from
            .iter()
            .copied()
            .filter(|&dim| self.known[dim] != Some(DimFact::Fixed));
        let (Some(only), None) = (open.next(), open.next()) else {
            let fixed = from
                .iter()
                .all(|&dim| self.known[dim] == Some(DimFact::Fixed));
            return Vec::from_iter(fixed.then_some((to, DimFact::Fixed)));
        };
        match (self.known[to], self.known[only]) {
            (Some(DimFact::Dynamic), None) => vec![(only, DimFact::Dynamic)],
            (Some(DimFact::Fixed), None) if injective => vec![(only, DimFact::Fixed)],
            (None, Some(DimFact::Dynamic)) if injective => vec![(to, DimFact::Dynamic)],
            _ => Vec::new(),
        }
    }

    /// A fixed size above 1 is the size of the result. Of two dynamic sizes, at most one may always
    /// be 1.
    fn broadcast(&self, to: DimId, [a, b]: [DimId; 2]) -> Vec<(DimId, DimFact)> {
        use DimFact::{Dynamic, Fixed};
        match (self.known[to], self.known[a], self.known[b]) {
            (None, Some(Fixed), _) | (None, _, Some(Fixed)) => vec![(to, Fixed)],
            (None, Some(Dynamic), Some(Dynamic)) => vec![(to, Dynamic)],
            (Some(Dynamic), _, _) => vec![(a, Dynamic), (b, Dynamic)],
            (Some(Fixed), Some(Dynamic), None) => vec![(b, Fixed)],
            (Some(Fixed), None, Some(Dynamic)) => vec![(a, Fixed)],
            _ => Vec::new(),
        }
    }
}

/// Returns the root of a dimension's class, and shortens the path to it.
fn root(first: &mut [DimId], dim: DimId) -> DimId {
    let mut at = dim;
    while first[at] != at {
        first[at] = first[first[at]];
        at = first[at];
    }
    at
}

impl DimensionRule {
    fn dims(&self, mut visit: impl FnMut(DimId)) {
        match self {
            Self::Function { to, from, .. } => {
                visit(*to);
                from.iter().copied().for_each(visit);
            }
            Self::Broadcast { to, from } => {
                visit(*to);
                from.iter().copied().for_each(visit);
            }
            Self::SomeVaries(dims) => dims.iter().copied().for_each(visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: Option<DimFact> = Some(DimFact::Fixed);
    const DYNAMIC: Option<DimFact> = Some(DimFact::Dynamic);

    /// Returns the facts about three dimensions: the result and two arguments.
    fn solved(rule: DimensionRule, known: [Option<DimFact>; 3]) -> [Option<DimFact>; 3] {
        let mut relations = Relations::default();
        relations.dims(3);
        relations.rule(rule);
        for (dim, known) in known.into_iter().enumerate() {
            if let Some(certain) = known {
                relations.add_fact(dim, certain);
            }
        }
        relations.solve();
        [0, 1, 2].map(|dim| relations.known(dim))
    }

    #[test]
    fn a_function_of_fixed_sizes_is_fixed_and_of_others_only_if_injective() {
        let function = |injective| DimensionRule::Function {
            to: 0,
            from: vec![1, 2],
            injective,
        };
        for injective in [false, true] {
            let rule = || function(injective);
            assert_eq!(solved(rule(), [None, FIXED, FIXED]), [FIXED; 3]);
            let all = [DYNAMIC, FIXED, DYNAMIC];
            assert_eq!(solved(rule(), [DYNAMIC, FIXED, None]), all);
            assert_eq!(solved(rule(), [None, DYNAMIC, None])[0], None);
            let two = [None, DYNAMIC, DYNAMIC];
            assert_eq!(solved(rule(), two), two);
            let one = solved(rule(), [None, FIXED, DYNAMIC]);
            assert_eq!(one[0], injective.then_some(DimFact::Dynamic));
            let back = solved(rule(), [FIXED, None, FIXED]);
            assert_eq!(back[1], injective.then_some(DimFact::Fixed));
        }
    }

    #[test]
    fn broadcasting_claims_no_more_than_sizes_above_one_allow() {
        let rule = || DimensionRule::Broadcast {
            to: 0,
            from: [1, 2],
        };
        assert_eq!(solved(rule(), [None, FIXED, None]), [FIXED, FIXED, None]);
        assert_eq!(solved(rule(), [None, DYNAMIC, DYNAMIC]), [DYNAMIC; 3]);
        let open = [None, DYNAMIC, None];
        assert_eq!(solved(rule(), open), open);
        assert_eq!(solved(rule(), [DYNAMIC, None, None]), [DYNAMIC; 3]);
        let mixed = [FIXED, DYNAMIC, FIXED];
        assert_eq!(solved(rule(), [FIXED, DYNAMIC, None]), mixed);
        let silent = [FIXED, None, None];
        assert_eq!(solved(rule(), silent), silent);
    }

    #[test]
    fn what_is_of_one_size_has_one_first() {
        let mut relations = Relations::default();
        relations.dims(6);
        relations.equal(4, 2);
        relations.same(5, 0);
        relations.rule(DimensionRule::Broadcast {
            to: 3,
            from: [1, 2],
        });
        assert_eq!(relations.equal_dims(), [0, 1, 2, 3, 2, 5]);
        relations.add_fact(1, DimFact::Dynamic);
        relations.add_fact(2, DimFact::Dynamic);
        relations.solve();
        assert_eq!(relations.equal_dims(), [0, 1, 1, 1, 1, 5]);
    }

    #[test]
    fn what_is_known_stays_and_the_last_candidate_varies() {
        let rule = || DimensionRule::SomeVaries(vec![0, 1, 2]);
        assert_eq!(
            solved(rule(), [FIXED, None, FIXED]),
            [FIXED, DYNAMIC, FIXED]
        );
        let silent = [FIXED, None, None];
        assert_eq!(solved(rule(), silent), silent);
        assert_eq!(solved(rule(), [FIXED; 3]), [FIXED; 3]);
        let contradiction = [DYNAMIC, FIXED, FIXED];
        let rule = DimensionRule::Function {
            to: 0,
            from: vec![1, 2],
            injective: true,
        };
        assert_eq!(solved(rule, contradiction), contradiction);
    }
}
