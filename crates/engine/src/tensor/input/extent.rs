//! Computes input sizes that certainly fit a signature, for descriptions and examples of requests.
//!
//! Invariant: arrays of these sizes are never rejected for their shape.

use super::dims::{AxisSize, DimSizes};
use crate::tensor::Signature;
use pkgtool_model::{Allowed, Dim};

/// The valid sizes of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Exactly this size. If the model leaves the axis open, it is one of several valid sizes.
    Exactly(u64),
    /// Any size in this range: no other axis depends on it.
    Between {
        /// The smallest, at least 1.
        least: u64,
        /// The largest, if there is a bound.
        most: Option<u64>,
    },
}

/// Returns the sizes of each input, outermost first; `None` if the file does not state the rank.
pub fn extents(signature: &Signature) -> Vec<Option<Vec<Extent>>> {
    let dims = DimSizes::of(signature);
    let settled = dims.settled();
    let inputs = signature.inputs.iter().enumerate();
    let extents = inputs.map(|(input, spec)| {
        let axes = dims.axes(input)?;
        let mut extents = Vec::with_capacity(axes.len());
        for (axis, dim) in axes.iter().zip(spec.dims.as_ref()?) {
            // All rows of a tensor have one length, so only a single row may have any length.
            let is_one_row = extents.iter().all(|before| *before == Extent::Exactly(1));
            extents.push(match axis {
                AxisSize::Fixed(size) => Extent::Exactly(*size),
                AxisSize::Slot(slot) => {
                    let any = (is_one_row && has_one_open_axis(&dims, signature))
                        .then(|| open_range(dim));
                    let settled = settled[*slot].unwrap_or(1);
                    any.flatten().unwrap_or(Extent::Exactly(settled))
                }
            });
        }
        Some(extents)
    });
    extents.collect()
}

/// Returns whether exactly one axis of all inputs is open.
fn has_one_open_axis(dims: &DimSizes<'_>, signature: &Signature) -> bool {
    let axes = (0..signature.inputs.len()).filter_map(|input| dims.axes(input));
    let open = axes
        .flatten()
        .filter(|axis| matches!(axis, AxisSize::Slot(_)));
    open.count() == 1
}

/// Returns the range of an open dimension, if its sizes have no gaps.
fn open_range(dim: &Dim) -> Option<Extent> {
    let Dim::Dynamic { bound, allowed, .. } = dim else {
        return None;
    };
    let (least, most) = match allowed {
        None => (1, *bound),
        Some(Allowed::Range {
            least,
            most,
            step: 1,
        }) => (
            (*least).max(1),
            Some(bound.map_or(*most, |it| it.min(*most))),
        ),
        Some(_) => return None,
    };
    let is_some = most.is_none_or(|most| least <= most);
    is_some.then_some(Extent::Between { least, most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, TensorSpec};

    fn dynamic(name: Option<&str>, bound: Option<u64>) -> Dim {
        Dim::Dynamic {
            bound,
            name: name.map(str::to_owned),
            allowed: None,
        }
    }

    fn of(inputs: Vec<Option<Vec<Dim>>>) -> Vec<Option<Vec<Extent>>> {
        let inputs = inputs.into_iter().enumerate();
        let inputs = inputs.map(|(place, dims)| TensorSpec {
            name: format!("input_{place}"),
            dtype: DType::Float32,
            dims,
            fixed: None,
            pixels: None,
        });
        extents(&Signature {
            method: "forward".to_owned(),
            inputs: inputs.collect(),
            outputs: Vec::new(),
        })
    }

    #[test]
    fn an_open_dimension_alone_may_have_any_size() {
        use Extent::{Between, Exactly};
        let any = |least, most| Between { least, most };
        let declared = |least, most, step| Dim::Dynamic {
            bound: Some(16),
            name: None,
            allowed: Some(Allowed::Range { least, most, step }),
        };
        let ranged = of(vec![Some(vec![declared(2, 20, 1)])]);
        assert_eq!(ranged, [Some(vec![any(2, Some(16))])]);
        let stepped = of(vec![Some(vec![declared(2, 16, 4)])]);
        assert_eq!(stepped, [Some(vec![Exactly(14)])]);
        let sentence = of(vec![Some(vec![Dim::Fixed(1), dynamic(None, Some(16))])]);
        assert_eq!(sentence, [Some(vec![Exactly(1), any(1, Some(16))])]);
        let batch = of(vec![Some(vec![dynamic(Some("n"), None), Dim::Fixed(3)])]);
        assert_eq!(batch, [Some(vec![any(1, None), Exactly(3)])]);
        // The rows of a tensor have equal lengths.
        let rows = of(vec![Some(vec![Dim::Fixed(2), dynamic(None, None)])]);
        assert_eq!(rows, [Some(vec![Exactly(2), Exactly(1)])]);
    }

    #[test]
    fn what_hangs_together_has_one_size() {
        use Extent::Exactly;
        let two = of(vec![
            Some(vec![dynamic(Some("n"), Some(4))]),
            Some(vec![dynamic(Some("n"), None), Dim::Fixed(2)]),
            None,
        ]);
        assert_eq!(
            two,
            [
                Some(vec![Exactly(4)]),
                Some(vec![Exactly(4), Exactly(2)]),
                None
            ]
        );
    }
}
