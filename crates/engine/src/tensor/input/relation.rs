//! Linear relations between dimensions (sums that are 0), and the sizes that follow from them.
//!
//! Invariant: a size is derived only if all other sizes of a sum are known, and only if it is valid
//! and within its bound. Dimensions are represented by indices.

use std::collections::BTreeSet;

use super::expression;

/// Multiples of dimensions plus a constant, whose sum is 0. The last dimension is the one that the
/// others define.
#[derive(Debug, Clone)]
struct DimRelation {
    terms: Vec<(usize, i64)>,
    constant: i64,
}

/// All relations between dimensions.
#[derive(Debug, Clone, Default)]
pub(super) struct DimRelations(Vec<DimRelation>);

impl DimRelations {
    /// Derives relations from the symbols of dimensions; dimensions are indices into the list.
    pub(super) fn of(labels: &[&str]) -> Self {
        let symbols: BTreeSet<&str> = labels.iter().copied().collect();
        let place = |label: &str| {
            let place = labels.iter().position(|known| *known == label);
            place.expect("definitions name symbols only")
        };
        let sum = |(symbol, sum): (String, expression::LinearExpression)| {
            let terms = sum
                .terms
                .iter()
                .map(|(part, factor)| (place(part), *factor));
            (terms.chain([(place(&symbol), -1)]).collect(), sum.constant)
        };
        let definitions = expression::definitions(&symbols).into_iter();
        Self::new(definitions.map(sum).collect())
    }

    /// Creates relations from sums that are 0: multiples of dimensions, the defined one last, and a
    /// constant.
    pub(super) fn new(sums: Vec<(Vec<(usize, i64)>, i64)>) -> Self {
        let sums = sums.into_iter();
        let relations = sums.map(|(terms, constant)| DimRelation { terms, constant });
        Self(relations.collect())
    }

    /// Returns whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether other dimensions define this one.
    pub(super) fn defines(&self, dim: usize) -> bool {
        let mut wholes = self.0.iter().filter_map(|relation| relation.terms.last());
        wholes.any(|(whole, _)| *whole == dim)
    }

    /// Returns whether a dimension occurs in a relation.
    pub(super) fn involves(&self, dim: usize) -> bool {
        let mut terms = self.0.iter().flat_map(|relation| &relation.terms);
        terms.any(|(term, _)| *term == dim)
    }

    /// Returns these sizes with those that follow from them; `bound` returns the largest size of a
    /// dimension.
    pub(super) fn follow(
        &self,
        mut sizes: Vec<Option<u64>>,
        bound: impl Fn(usize) -> Option<u64>,
    ) -> Vec<Option<u64>> {
        loop {
            let next = self.0.iter().find_map(|relation| {
                let (dim, size) = relation.solve(&sizes)?;
                let fits = bound(dim).is_none_or(|bound| size <= bound);
                fits.then_some((dim, size))
            });
            match next {
                Some((dim, size)) => sizes[dim] = Some(size),
                None => return sizes,
            }
        }
    }
}

impl DimRelation {
    /// Returns the only dimension without a size and its derived size, if that is valid.
    fn solve(&self, sizes: &[Option<u64>]) -> Option<(usize, u64)> {
        let mut open = self.terms.iter().filter(|(dim, _)| sizes[*dim].is_none());
        let (Some((dim, factor)), None) = (open.next(), open.next()) else {
            return None;
        };
        let mut sum = i128::from(self.constant);
        for (dim, factor) in &self.terms {
            let size = i128::from(sizes[*dim].unwrap_or(0));
            sum = sum.checked_add(size.checked_mul(i128::from(*factor))?)?;
        }
        let factor = i128::from(*factor);
        let size = (sum % factor == 0).then(|| -sum / factor)?;
        Some((*dim, u64::try_from(size).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dims::DimSizes;
    use crate::tensor::{DType, Signature, TensorSpec};
    use pkgtool_model::Dim;

    fn sizes(dims: &DimSizes, input: usize) -> Vec<u64> {
        let axes = dims.axes(input).expect("the rank is known");
        axes.iter().map(|axis| dims.or_default(*axis)).collect()
    }

    fn decoder() -> Signature {
        let symbol = |name: &str| Dim::Dynamic {
            allowed: None,
            bound: None,
            name: Some(name.to_owned()),
        };
        let input = |name: &str, dims: Vec<Dim>| TensorSpec {
            name: name.to_owned(),
            dtype: DType::Float32,
            dims: Some(dims),
            fixed: None,
            pixels: None,
        };
        Signature {
            method: "forward".to_owned(),
            inputs: vec![
                input("ids", vec![symbol("sequence_length")]),
                input(
                    "mask",
                    vec![symbol("past_sequence_length + sequence_length")],
                ),
                input("past", vec![symbol("past_sequence_length"), Dim::Fixed(4)]),
            ],
            outputs: Vec::new(),
        }
    }

    #[test]
    fn sums_bind_dimensions() {
        let signature = decoder();
        let all = |dims: &DimSizes| [0, 1, 2].map(|input| sizes(dims, input)[0]);
        assert_eq!(all(&DimSizes::of(&signature)), [1, 2, 1]);
        let open: Vec<String> = DimSizes::of(&signature)
            .open()
            .into_iter()
            .map(|dim| dim.label)
            .collect();
        assert_eq!(open, ["sequence_length", "past_sequence_length"]);
        for (given, expected) in [
            (&[(0, 5)][..], [5, 6, 1]),
            (&[(1, 5)], [1, 5, 4]),
            (&[(1, 5), (0, 2)], [2, 5, 3]),
            (&[(2, 7), (0, 2)], [2, 9, 7]),
            // No size fits, so each keeps the given one.
            (&[(1, 2), (0, 3)], [3, 2, 1]),
        ] {
            let mut dims = DimSizes::of(&signature);
            for (input, size) in given {
                let shape = if *input == 2 {
                    vec![*size, 4]
                } else {
                    vec![*size]
                };
                dims.fit(*input, DType::Float32, &shape, "x.npy")
                    .expect("it fits");
            }
            assert_eq!(all(&dims), expected, "{given:?}");
        }
        let mut dims = DimSizes::of(&signature);
        dims.set("sequence_length=3").expect("it is open");
        dims.empty(2, 0).expect("it is open");
        assert_eq!(all(&dims), [3, 3, 0]);
        // A given size overrides a derived one.
        dims.fit(1, DType::Float32, &[4], "mask.npy")
            .expect("it was only derived");
        assert_eq!(all(&dims), [3, 4, 0]);
    }
}
