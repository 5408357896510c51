//! `TensorScatter`: writes rows into a cache of keys or values, for each batch from a position of
//! its own.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{integer, text};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, axis_of, integers_of, operator,
};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

const NAME: &str = "TensorScatter";

/// Builds a `TensorScatter`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let wraps = match text(node, "mode") {
        b"" | b"linear" => false,
        b"circular" => true,
        other => bail!("the mode `{}` is not supported", other.escape_ascii()),
    };
    let axis = integer(node, "axis", -2);
    operator(NAME, None, CacheUpdate { axis, wraps })
}

#[derive(Debug, Clone, Copy)]
struct CacheUpdate {
    axis: i64,
    /// Rows beyond the end of the cache are written at its start.
    wraps: bool,
}

impl NodeOperator for CacheUpdate {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        ensure!(
            (2..=3).contains(&inputs.len()),
            "expected 2 or 3 inputs, got {}",
            inputs.len()
        );
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[0].datum_type, &inputs[1].datum_type)?;
        s.equals(&inputs[0].rank, &inputs[1].rank)?;
        s.equals(&inputs[0].shape, &outputs[0].shape)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let update = *self;
        let kernel = Kernel::new(NAME, tvec!(fact), move |inputs| {
            let starts = match inputs.get(2) {
                Some(starts) => integers_of(starts)?,
                None => vec![0; inputs[0].shape().first().copied().unwrap_or(0)],
            };
            Ok(tvec!(update.write(&inputs[0], &inputs[1], &starts)?))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

impl CacheUpdate {
    fn write(self, cache: &Tensor, rows: &Tensor, starts: &[i64]) -> TractResult<Tensor> {
        let (to, from) = (cache.shape(), rows.shape());
        let axis = axis_of(self.axis, to.len())?;
        ensure!(axis > 0, "the first axis has the batches");
        let fits = to.len() == from.len()
            && (0..to.len()).all(|at| at == axis && from[at] <= to[at] || from[at] == to[at]);
        ensure!(
            fits,
            "rows of shape {from:?} do not fit a cache of shape {to:?}"
        );
        ensure!(
            starts.len() == to[0],
            "{} positions do not fit {} batches",
            starts.len(),
            to[0]
        );
        let (size, count) = (to[axis], from[axis]);
        let slice = to[axis + 1..].iter().product::<usize>() * cache.datum_type().size_of();
        let prefixes: usize = to[..axis].iter().product();
        let of_batch = prefixes.checked_div(to[0]).unwrap_or(0);
        let mut written = cache.clone();
        let mut view = written.try_as_plain_ram_mut()?;
        let (bytes, source) = (view.as_bytes_mut(), rows.try_as_plain_ram()?);
        let source = source.as_bytes();
        for prefix in 0..prefixes {
            let start = starts[prefix / of_batch];
            let start = self.start(start, size, count)?;
            for row in 0..count {
                let place = (start + row) % size;
                let (to, from) = (prefix * size + place, prefix * count + row);
                bytes[to * slice..(to + 1) * slice]
                    .copy_from_slice(&source[from * slice..(from + 1) * slice]);
            }
        }
        Ok(written)
    }

    /// Checks the position of the first row.
    fn start(self, start: i64, size: usize, count: usize) -> TractResult<usize> {
        let found = usize::try_from(start).ok();
        let found = if self.wraps {
            found.and_then(|start| start.checked_rem(size))
        } else {
            found.filter(|start| start.checked_add(count).is_some_and(|end| end <= size))
        };
        found.ok_or_else(|| {
            let reason =
                format!("{count} rows at position {start} are outside of a cache of {size}");
            InvalidInput {
                operator: NAME.to_owned(),
                reason,
            }
            .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_outside_of_the_cache_are_refused() {
        let cache = Tensor::zero::<i8>(&[2, 3, 1]).expect("a tensor");
        let rows = Tensor::from_shape(&[2, 2, 1], &[1_i8, 2, 3, 4]).expect("a tensor");
        let write = |wraps, axis, starts: &[i64]| {
            let written = CacheUpdate { axis, wraps }.write(&cache, &rows, starts);
            written.map(|tensor| tensor.as_bytes().to_vec()).ok()
        };
        assert_eq!(write(false, -2, &[0, 1]), Some(vec![1, 2, 0, 0, 3, 4]));
        assert_eq!(write(true, 1, &[2, 7]), Some(vec![2, 0, 1, 0, 3, 4]));
        for wrong in [&[2, 0][..], &[-1, 0], &[0], &[i64::MAX, 0], &[]] {
            assert_eq!(write(false, -2, wrong), None, "{wrong:?}");
        }
        assert_eq!(write(true, -2, &[-1, 0]), None);
        for axis in [0, 2, 3, -4, i64::MIN] {
            assert_eq!(write(false, axis, &[0, 0]), None, "{axis}");
        }
    }
}
