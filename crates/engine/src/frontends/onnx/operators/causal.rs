//! `CausalConvWithState`: a depthwise convolution over a sequence and what was before it.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::text;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, operator, wanted_outputs,
};
use crate::graph::kernel::Kernel;

const NAME: &str = "CausalConvWithState";

/// Builds a `CausalConvWithState`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let is_swish = match text(node, "activation") {
        b"" | b"none" => false,
        b"silu" | b"swish" => true,
        other => bail!("the activation `{}` is not supported", other.escape_ascii()),
    };
    let given: Vec<Option<usize>> = optional_inputs(node).take(4).collect();
    let [is_wanted, keeps] = wanted_outputs(node);
    ensure!(is_wanted, "the output is missing");
    let convolution = CausalConvolution {
        is_swish,
        bias: given[2],
        past: given[3],
        keeps,
    };
    operator(NAME, None, convolution)
}

#[derive(Debug, Clone)]
struct CausalConvolution {
    is_swish: bool,
    /// Places of the inputs.
    bias: Option<usize>,
    past: Option<usize>,
    /// Whether the state is an output.
    keeps: bool,
}

/// Returns the shape of the state.
fn state(input: &[TDim], weights: &[TDim]) -> TractResult<TVec<TDim>> {
    let ([batch, channels, _], [_, _, taps]) = (input, weights) else {
        bail!("expected an input and weights of rank 3, got {input:?} and {weights:?}");
    };
    Ok(tvec!(batch.clone(), channels.clone(), taps.clone() - 1))
}

impl NodeOperator for CausalConvolution {
    fn outputs(&self) -> usize {
        1 + usize::from(self.keeps)
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        ensure!(inputs.len() >= 2, "expected an input and weights");
        s.equals(&inputs[0].shape, &outputs[0].shape)?;
        for output in outputs {
            s.equals(&inputs[0].datum_type, &output.datum_type)?;
        }
        if let Some(kept) = outputs.get(1) {
            s.given_2(
                &inputs[0].shape,
                &inputs[1].shape,
                move |s, input, weights| s.equals(&kept.shape, state(&input, &weights)?),
            )?;
        }
        Ok(())
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let weights = model.outlet_fact(inputs[1])?.shape.to_tvec();
        let (dtype, kept) = (fact.datum_type, state(&fact.shape, &weights)?);
        let mut facts = tvec!(fact);
        if self.keeps {
            facts.push(dtype.fact(kept));
        }
        let of = self.clone();
        let kernel = Kernel::new(NAME, facts, move |inputs: &[TValue]| {
            let real = inputs.iter().map(|input| input.cast_to::<f32>());
            let real: Vec<_> = real.collect::<TractResult<_>>()?;
            let outputs = of.run(&real.iter().map(|it| &**it).collect::<Vec<_>>())?;
            let cast = |it: Tensor| Ok(it.cast_to_dt(dtype)?.into_owned());
            outputs
                .into_iter()
                .map(cast)
                .collect::<TractResult<TVec<Tensor>>>()
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

impl CausalConvolution {
    fn run(&self, inputs: &[&Tensor]) -> TractResult<TVec<Tensor>> {
        let (&[batches, channels, length], &[of_weights, 1, taps]) =
            (inputs[0].shape(), inputs[1].shape())
        else {
            bail!("expected an input of rank 3 and weights [channels, 1, taps]");
        };
        let before = taps.checked_sub(1).context("expected at least one tap")?;
        let slice = |at: usize| inputs[at].try_as_plain_ram()?.as_slice::<f32>();
        let (input, weights) = (slice(0)?, slice(1)?);
        let bias = self.bias.map(slice).transpose()?;
        let past = self.past.map(slice).transpose()?;
        let fits = of_weights == channels
            && bias.is_none_or(|bias| bias.len() == channels)
            && past.is_none_or(|past| past.len() == batches * channels * before);
        ensure!(
            fits,
            "weights, bias or state do not fit {channels} channels and {taps} taps"
        );
        let mut output = Tensor::zero_dt(f32::datum_type(), &[batches, channels, length])?;
        let mut kept = Tensor::zero_dt(f32::datum_type(), &[batches, channels, before])?;
        {
            let (mut output, mut kept) =
                (output.try_as_plain_ram_mut()?, kept.try_as_plain_ram_mut()?);
            let (to, kept) = (output.as_slice_mut::<f32>()?, kept.as_slice_mut::<f32>()?);
            let mut padded = vec![0.0; before + length];
            for row in 0..batches * channels {
                let channel = row % channels;
                match past {
                    Some(past) => padded[..before].copy_from_slice(&past[row * before..][..before]),
                    None => padded[..before].fill(0.0),
                }
                padded[before..].copy_from_slice(&input[row * length..][..length]);
                let weights = &weights[channel * taps..][..taps];
                let first = bias.map_or(0.0, |bias| bias[channel]);
                for (to, window) in to[row * length..][..length]
                    .iter_mut()
                    .zip(padded.windows(taps))
                {
                    let products = window.iter().zip(weights).map(|(a, b)| a * b);
                    *to = first + products.sum::<f32>();
                    if self.is_swish {
                        *to /= 1.0 + (-*to).exp();
                    }
                }
                kept[row * before..][..before].copy_from_slice(&padded[length..]);
            }
        }
        let mut outputs = tvec!(output);
        if self.keeps {
            outputs.push(kept);
        }
        Ok(outputs)
    }
}
