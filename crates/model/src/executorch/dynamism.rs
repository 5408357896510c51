//! Determines the dynamic dimensions of bounded tensors.
//!
//! For a bounded tensor, a program records only that its sizes are upper bounds. The evidence is
//! combined in this order:
//!
//! 1. declarations in constant methods (`declared.rs`)
//! 2. instructions (`evidence.rs`)
//! 3. graphs of delegates (`wiring.rs`)
//! 4. arithmetic: a dimension is dynamic if no other dimension can vary
//!
//! The rest becomes [`Dim::Maybe`], whose `likely_dynamic` is explicitly a guess. Invariant: a
//! bounded tensor of rank 1 or more has a dynamic or likely dynamic dimension.

use std::collections::BTreeSet;

use super::declared::{Declarations, DeclaredSide, TensorPosition};
use super::evidence::{DimFact, Evidence};
use super::plan::MethodPlan;
use super::wiring::Wiring;
use crate::{Allowed, Dim, Dynamism, ModelValue, TensorInfo, ValueKind};

/// A bounded tensor while it is being resolved.
struct UnresolvedTensor<'a> {
    value: u64,
    info: &'a mut TensorInfo,
    bounds: Vec<u64>,
    known: Vec<Option<DimFact>>,
    /// Declared sizes.
    allowed: Vec<Option<Allowed>>,
}

/// Resolves the bounded tensors of a method.
pub(super) fn resolve(plan: &mut MethodPlan, declared: &Declarations) {
    let method = &mut plan.method;
    let mut open = Vec::new();
    let sides = [
        (DeclaredSide::Inputs, &mut method.inputs, &plan.inputs),
        (DeclaredSide::Outputs, &mut method.outputs, &plan.outputs),
    ];
    for (side, values, indices) in sides {
        let ranks: Vec<usize> = values
            .iter()
            .filter_map(ModelValue::tensor)
            .map(|info| info.dims.as_ref().map_or(0, Vec::len))
            .collect();
        let mut tensor = 0;
        for (value, &index) in values.iter_mut().zip(indices) {
            let ValueKind::Tensor { info, .. } = &mut value.kind else {
                continue;
            };
            let position = TensorPosition {
                method: &method.name,
                side,
                tensor,
                ranks: &ranks,
            };
            tensor += 1;
            if info.dynamism == Dynamism::Bounded {
                let mut tensor = UnresolvedTensor::new(index, info, |bounds| {
                    combine_evidence(declared.of(position, bounds), index, &plan.evidence)
                });
                tensor.allowed = declared.allowed(position, &tensor.bounds);
                open.push(tensor);
            }
        }
    }
    apply_delegates(&mut open, &plan.evidence, &mut plan.wiring);
    apply_min_sizes(&mut open, &plan.wiring);
    let mut likely = plan.evidence.bounds.clone();
    likely.extend(plan.wiring.dynamic_bounds());
    for tensor in &open {
        likely.extend(tensor.dynamic_bounds());
    }
    for tensor in open {
        tensor.close(&likely);
    }
}

/// Adds the conclusions from the graphs of delegates.
fn apply_delegates(open: &mut [UnresolvedTensor<'_>], evidence: &Evidence, wiring: &mut Wiring) {
    for tensor in &*open {
        wiring.learn(tensor.value, &tensor.known);
    }
    let judged: BTreeSet<u64> = open.iter().map(|tensor| tensor.value).collect();
    wiring.learn_all(|value, dim| evidence.of(value, dim).filter(|_| !judged.contains(&value)));
    wiring.solve();
    for tensor in open {
        let dims = tensor.known.iter().enumerate();
        let known = dims.map(|(dim, known)| known.or_else(|| wiring.of(tensor.value, dim)));
        tensor.known = add_certain(&tensor.bounds, known.collect());
    }
}

/// Applies the minimum sizes that delegates state, for tensors without declarations.
fn apply_min_sizes(open: &mut [UnresolvedTensor<'_>], wiring: &Wiring) {
    let least = wiring.least();
    for tensor in open {
        let dims = tensor.allowed.iter_mut().zip(&tensor.bounds).enumerate();
        for (dim, (allowed, &bound)) in dims.filter(|(_, (allowed, _))| allowed.is_none()) {
            let least = least.of(wiring, tensor.value, dim);
            let range = |least| Allowed::range(least, i64::try_from(bound).ok()?, 1, bound);
            *allowed = least
                .and_then(|least| i64::try_from(least).ok())
                .and_then(range);
        }
    }
}

/// Combines declarations with evidence from instructions; declarations take precedence.
fn combine_evidence(
    declared: Vec<Option<DimFact>>,
    value: u64,
    evidence: &Evidence,
) -> Vec<Option<DimFact>> {
    let dims = declared.into_iter().enumerate();
    dims.map(|(dim, known)| known.or_else(|| evidence.of(value, dim)))
        .collect()
}

impl<'a> UnresolvedTensor<'a> {
    fn new(
        value: u64,
        info: &'a mut TensorInfo,
        known: impl FnOnce(&[u64]) -> Vec<Option<DimFact>>,
    ) -> Self {
        let dims = info.dims.as_deref().unwrap_or_default();
        let bounds: Vec<u64> = dims
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(bound) | Dim::Maybe { bound, .. } => *bound,
                Dim::Dynamic { bound, .. } => bound.unwrap_or(0),
            })
            .collect();
        let known = add_certain(&bounds, known(&bounds));
        Self {
            value,
            info,
            allowed: vec![None; bounds.len()],
            bounds,
            known,
        }
    }

    fn dynamic_bounds(&self) -> BTreeSet<u64> {
        let dims = self.known.iter().zip(&self.bounds);
        dims.filter(|(known, _)| **known == Some(DimFact::Dynamic))
            .map(|(_, &bound)| bound)
            .collect()
    }

    /// Writes the dimensions. A bound in `likely` also occurs as the bound of a dynamic dimension
    /// of the method.
    fn close(self, likely: &BTreeSet<u64>) {
        let own = self.dynamic_bounds();
        let undecided = |dim: &usize| self.known[*dim].is_none();
        let dims: Vec<usize> = (0..self.bounds.len()).filter(undecided).collect();
        let mut guesses: BTreeSet<usize> = dims
            .iter()
            .copied()
            .filter(|&dim| {
                let bound = self.bounds[dim];
                bound > 1 && likely.contains(&bound) && !own.contains(&bound)
            })
            .collect();
        if own.is_empty() && guesses.is_empty() {
            let large = dims.iter().find(|&&dim| self.bounds[dim] > 1);
            guesses.extend(large.or(dims.first()));
        }
        let settled = self.bounds.iter().zip(&self.known).enumerate();
        let settled = settled.map(|(dim, (&bound, known))| match known {
            Some(DimFact::Fixed) => Dim::Fixed(bound),
            Some(DimFact::Dynamic) => Dim::Dynamic {
                bound: Some(bound),
                name: None,
                allowed: self.allowed[dim].clone(),
            },
            None => Dim::Maybe {
                bound,
                likely_dynamic: guesses.contains(&dim),
            },
        });
        self.info.dims = Some(settled.collect());
    }
}

/// Adds the conclusions that are certain.
fn add_certain(bounds: &[u64], mut known: Vec<Option<DimFact>>) -> Vec<Option<DimFact>> {
    if known.iter().all(|known| *known == Some(DimFact::Fixed)) {
        // All fixed contradicts a bounded tensor, in which some dimension varies; discard the
        // evidence.
        known.fill(None);
    }
    if known.contains(&Some(DimFact::Dynamic)) {
        return known;
    }
    let mut candidates = (0..bounds.len()).filter(|&dim| known[dim].is_none() && bounds[dim] > 1);
    if let (Some(only), None) = (candidates.next(), candidates.next()) {
        known[only] = Some(DimFact::Dynamic);
    }
    known
}
