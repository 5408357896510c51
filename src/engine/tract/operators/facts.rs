//! What is known of the tensors that go into a graph within a node and come out of it.

use tract_onnx::tract_hir::internal::*;

use super::body::plain_type;

/// What the graph around knows of these.
pub(super) fn facts_of(
    target: &TypedModel,
    outlets: &[OutletId],
) -> TractResult<Vec<InferenceFact>> {
    let facts = outlets
        .iter()
        .map(|outlet| Ok(target.outlet_fact(*outlet)?.into()));
    facts.collect()
}

/// What is true of both.
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

/// The same, whatever its sizes are.
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

/// What is known of a graph's output before it ran, to those around it: sizes that are not known are
/// symbols that the run gives a value.
pub(super) fn outer_fact(target: &TypedModel, fact: &InferenceFact) -> TractResult<TypedFact> {
    let dtype = fact.datum_type.concretize();
    let dtype = dtype.context(
        "graphs within a node that give tensors of types not known before they run are not supported",
    )?;
    ensure!(
        fact.shape.rank().concretize().is_some(),
        "graphs within a node that give tensors with a number of dimensions not known before they run \
         are not supported"
    );
    let dims = fact.shape.dims().map(|dim| {
        let known = dim.concretize();
        known.unwrap_or_else(|| target.symbols.new_with_prefix("inner").to_dim())
    });
    Ok(plain_type(dtype).fact(dims.collect::<TVec<TDim>>()))
}
