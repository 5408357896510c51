//! Facts about the inputs and outputs of subgraphs inside a node.

use tract_onnx::tract_hir::internal::*;

use super::body::plain_type;

/// Returns the facts of these tensors in the outer graph.
pub(super) fn facts_of(
    target: &TypedModel,
    outlets: &[OutletId],
) -> TractResult<Vec<InferenceFact>> {
    let facts = outlets
        .iter()
        .map(|outlet| Ok(target.outlet_fact(*outlet)?.into()));
    facts.collect()
}

/// Returns the facts that hold for both.
pub(super) fn common(left: &InferenceFact, right: &InferenceFact) -> InferenceFact {
    let dtypes = [left, right].map(|fact| fact.datum_type.concretize().map(plain_type));
    let dtype = match dtypes {
        [Some(left), Some(right)] if left == right => GenericFactoid::Only(left),
        _ => GenericFactoid::Any,
    };
    let ranks = [left, right].map(|fact| fact.shape.rank().concretize());
    let is_same_rank = ranks[0].is_some() && ranks[0] == ranks[1];
    let shape = if is_same_rank {
        let dims = left.shape.dims().zip(right.shape.dims());
        let dims = dims.map(|(left, right)| {
            if left == right {
                left.clone()
            } else {
                GenericFactoid::Any
            }
        });
        ShapeFactoid::closed(dims.collect())
    } else {
        ShapeFactoid::default()
    };
    InferenceFact {
        datum_type: dtype,
        shape,
        value: GenericFactoid::Any,
    }
}

/// Returns the fact without its sizes.
pub(super) fn without_sizes(fact: &InferenceFact) -> InferenceFact {
    let mut fact = fact.clone().without_value();
    let dims = fact.shape.dims().map(|_| GenericFactoid::Any).collect();
    if fact.shape.rank().concretize().is_some() {
        fact.shape = ShapeFactoid::closed(dims);
    }
    fact.datum_type = fact
        .datum_type
        .concretize()
        .map_or(GenericFactoid::Any, |dtype| {
            GenericFactoid::Only(plain_type(dtype))
        });
    fact
}

/// Returns the fact of a subgraph's output for the outer graph, before it runs. Unknown sizes
/// become symbols that the run binds.
pub(super) fn outer_fact(target: &TypedModel, fact: &InferenceFact) -> TractResult<TypedFact> {
    let dtype = fact.datum_type.concretize();
    let dtype = dtype.context("subgraphs with outputs of computed types are not supported")?;
    ensure!(
        fact.shape.rank().concretize().is_some(),
        "subgraphs with outputs of a computed number of dimensions \
         are not supported"
    );
    let dims = fact.shape.dims().map(|dim| {
        let known = dim.concretize();
        known.unwrap_or_else(|| target.symbols.new_with_prefix("inner").to_dim())
    });
    Ok(plain_type(dtype).fact(dims.collect::<TVec<TDim>>()))
}
