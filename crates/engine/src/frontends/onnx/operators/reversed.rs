//! `ReverseSequence`: the first elements of each sequence, in reverse order.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::integer;
use super::indices::copied;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, integers_of, operator,
};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

const NAME: &str = "ReverseSequence";

/// Builds a `ReverseSequence`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let axes = ["batch_axis", "time_axis"].map(|name| integer(node, name, -1));
    let time_is_first = match axes {
        [-1 | 1, -1 | 0] => true,
        [0, 1] => false,
        [batch, time] => bail!("the axes {batch} of batches and {time} of times are not 0 and 1"),
    };
    operator(NAME, 2, Reversal { time_is_first })
}

#[derive(Debug, Clone)]
struct Reversal {
    time_is_first: bool,
}

impl NodeOperator for Reversal {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[0].shape, &outputs[0].shape)?;
        s.equals(&inputs[1].datum_type, i64::datum_type())?;
        s.equals(&inputs[1].rank, 1)
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let time_is_first = self.time_is_first;
        let kernel = Kernel::new(NAME, tvec!(fact), move |inputs| {
            Ok(tvec!(reversed(time_is_first, &inputs[0], &inputs[1])?))
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

fn reversed(time_is_first: bool, data: &Tensor, lengths: &Tensor) -> TractResult<Tensor> {
    let [first, second, ref rest @ ..] = *data.shape() else {
        bail!("sequences need two dimensions, got {:?}", data.shape());
    };
    let (times, batches) = if time_is_first {
        (first, second)
    } else {
        (second, first)
    };
    let lengths = integers_of(lengths)?;
    ensure!(
        lengths.len() == batches,
        "{} lengths do not fit {batches} sequences",
        lengths.len()
    );
    let lengths: Vec<usize> = lengths
        .iter()
        .map(|length| {
            let fits = usize::try_from(*length)
                .ok()
                .filter(|length| *length <= times);
            fits.ok_or_else(|| {
                let reason = format!("the length {length} is outside of 0 to {times}");
                InvalidInput {
                    operator: NAME.to_owned(),
                    reason,
                }
                .into()
            })
        })
        .collect::<TractResult<_>>()?;
    let slice: usize = rest.iter().product();
    let from = |at: usize| {
        let (time, batch) = if time_is_first {
            (at / batches, at % batches)
        } else {
            (at % times, at / times)
        };
        let length = lengths[batch];
        let time = if time < length {
            length - 1 - time
        } else {
            time
        };
        let at = if time_is_first {
            time * batches + batch
        } else {
            batch * times + time
        };
        at * slice
    };
    copied(data, data.shape(), (0..first * second).map(from), slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let data = Tensor::from_shape(&[3, 2], &[1_i8, 2, 3, 4, 5, 6]).expect("a tensor");
        let run = |time_is_first, lengths: &[i64]| {
            let reversed = reversed(time_is_first, &data, &tensor1(lengths));
            reversed.map(|tensor| tensor.as_bytes().to_vec()).ok()
        };
        assert_eq!(run(true, &[3, 2]), Some(vec![5, 4, 3, 2, 1, 6]));
        assert_eq!(run(false, &[0, 1, 2]), Some(vec![1, 2, 3, 4, 6, 5]));
        for wrong in [&[4, 0][..], &[-1, 0], &[1], &[i64::MAX, 1], &[]] {
            assert_eq!(run(true, wrong), None, "{wrong:?}");
        }
        let flat = tensor1(&[1_i8]);
        assert!(reversed(true, &flat, &tensor1(&[1_i64])).is_err());
    }
}
