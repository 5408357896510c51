//! `LinearAttention`: a state of each head takes up keys and values, and queries read it.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{attribute, text};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, operator, positive, wanted_outputs, zeros,
};
use crate::graph::head_state::HeadState;
use crate::graph::kernel::Kernel;

const NAME: &str = "LinearAttention";

/// Builds a `LinearAttention`.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let [forgets, corrects] = match text(node, "update_rule") {
        b"linear" => [false, false],
        b"gated" => [true, false],
        b"delta" => [false, true],
        b"" | b"gated_delta" => [true, true],
        other => bail!("the rule `{}` is not supported", other.escape_ascii()),
    };
    let heads = [
        positive(node, "q_num_heads")?,
        positive(node, "kv_num_heads")?,
    ];
    ensure!(
        heads[0].is_multiple_of(heads[1]),
        "{heads:?} heads do not divide into groups"
    );
    let given: Vec<Option<usize>> = optional_inputs(node).take(6).collect();
    let fits = given[..3].iter().all(Option::is_some)
        && given[4].is_some() == forgets
        && given[5].is_some() == corrects;
    ensure!(fits, "the inputs are not those of the update rule");
    let [is_wanted, keeps] = wanted_outputs(node);
    ensure!(is_wanted, "the output is missing");
    let scale = attribute(node, "scale")
        .map(|found| found.f)
        .filter(|scale| *scale != 0.0);
    let attention = LinearAttention {
        heads,
        scale,
        past: given[3],
        decay: given[4],
        rate: given[5],
        keeps,
    };
    operator(NAME, None, attention)
}

#[derive(Debug, Clone)]
struct LinearAttention {
    /// Numbers of heads of queries and of states.
    heads: [usize; 2],
    scale: Option<f32>,
    /// Places of the inputs.
    past: Option<usize>,
    decay: Option<usize>,
    rate: Option<usize>,
    /// Whether the state is an output.
    keeps: bool,
}

impl LinearAttention {
    /// Returns the shapes of the output and of the state.
    fn shapes(&self, queries: &[TDim], values: &[TDim]) -> TractResult<[TVec<TDim>; 2]> {
        let ([batch, length, all], [_, _, of_values]) = (queries, values) else {
            bail!("expected queries and values of rank 3, got {queries:?} and {values:?}");
        };
        let [heads, states] = self.heads;
        let [size, width] = [all.clone() / heads, of_values.clone() / states];
        Ok([
            tvec!(batch.clone(), length.clone(), width.clone() * heads),
            tvec!(batch.clone(), states.to_dim(), size, width),
        ])
    }
}

impl NodeOperator for LinearAttention {
    fn outputs(&self) -> usize {
        1 + usize::from(self.keeps)
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        if let Some(kept) = outputs.get(1) {
            let like = self.past.unwrap_or(0);
            s.equals(&inputs[like].datum_type, &kept.datum_type)?;
        }
        s.given_2(
            &inputs[0].shape,
            &inputs[2].shape,
            move |s, queries, values| {
                let shapes = self.shapes(&queries, &values)?;
                for (output, shape) in outputs.iter().zip(shapes) {
                    s.equals(&output.shape, shape)?;
                }
                Ok(())
            },
        )
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let fact = |at: usize| model.outlet_fact(inputs[at]);
        let shapes = self.shapes(&fact(0)?.shape, &fact(2)?.shape)?;
        let dtypes = [
            fact(0)?.datum_type,
            fact(self.past.unwrap_or(0))?.datum_type,
        ];
        let facts = dtypes
            .iter()
            .zip(shapes)
            .map(|(dtype, shape)| dtype.fact(shape));
        let facts = facts.take(NodeOperator::outputs(self)).collect();
        let of = self.clone();
        let kernel = Kernel::new(NAME, facts, move |inputs: &[TValue]| {
            let real = inputs.iter().map(|input| input.cast_to::<f32>());
            let real: Vec<_> = real.collect::<TractResult<_>>()?;
            let outputs = of.run(&real.iter().map(|it| &**it).collect::<Vec<_>>())?;
            let outputs = outputs
                .into_iter()
                .zip(dtypes)
                .take(NodeOperator::outputs(&of));
            let cast = outputs.map(|(it, dtype)| Ok(it.cast_to_dt(dtype)?.into_owned()));
            cast.collect::<TractResult<TVec<Tensor>>>()
        });
        model.wire_node(prefix, kernel, inputs)
    }
}

impl LinearAttention {
    #[expect(clippy::cast_precision_loss, reason = "the size of a head")]
    fn run(&self, inputs: &[&Tensor]) -> TractResult<[Tensor; 2]> {
        let (&[batches, length, of_queries], &[_, _, of_keys], &[_, _, of_values]) =
            (inputs[0].shape(), inputs[1].shape(), inputs[2].shape())
        else {
            bail!("expected queries, keys and values of rank 3");
        };
        let [heads, states] = self.heads;
        let (size, width) = (of_queries / heads, of_values / states);
        let rows = batches * length;
        let slice = |at: usize| inputs[at].try_as_plain_ram()?.as_slice::<f32>();
        let (queries, keys, values) = (slice(0)?, slice(1)?, slice(2)?);
        let past = self.past.map(slice).transpose()?;
        let decay = self.decay.map(slice).transpose()?.unwrap_or_default();
        let rate = self.rate.map(slice).transpose()?.unwrap_or_default();
        // Decays and rates of each row; those of one number for several elements are repeated.
        let [of_decay, of_rate] = [decay, rate].map(|it| it.len().checked_div(rows).unwrap_or(0));
        let fits = heads * size == of_queries
            && states * size == of_keys
            && states * width == of_values
            && keys.len() == rows * of_keys
            && values.len() == rows * of_values
            && (self.decay.is_none() || of_decay == states || of_decay == of_keys)
            && (self.rate.is_none() || of_rate == states || of_rate == 1);
        ensure!(
            fits || rows == 0,
            "the inputs do not fit {heads} and {states} heads"
        );
        let scale = self.scale.unwrap_or_else(|| (size as f32).sqrt().recip());
        let mut kept = zeros(&[batches, states, size, width])?;
        let mut view = kept.try_as_plain_ram_mut()?;
        let state = view.as_slice_mut::<f32>()?;
        if let Some(past) = past {
            ensure!(
                past.len() == state.len(),
                "the state has {} elements",
                past.len()
            );
            state.copy_from_slice(past);
        }
        let mut output = vec![0.0; rows * heads * width];
        let mut value = vec![0.0; width];
        for (row, head) in (0..rows).flat_map(|row| (0..states).map(move |head| (row, head))) {
            let cell = (row / length * states + head) * size * width;
            let mut cell = HeadState::new(&mut state[cell..][..size * width], width);
            let key = &keys[row * of_keys + head * size..][..size];
            value.copy_from_slice(&values[row * of_values + head * width..][..width]);
            if self.decay.is_some() {
                let of_row = &decay[row * of_decay..][..of_decay];
                let is_shared = of_decay == states;
                cell.decay(|at| {
                    let at = if is_shared { head } else { head * size + at };
                    of_row[at].exp()
                });
            }
            if self.rate.is_some() {
                let rate = rate[row * of_rate + if of_rate == 1 { 0 } else { head }];
                cell.correct(key, &mut value, rate);
            }
            cell.add(key, &value);
            let each = heads / states;
            for reader in head * each..(head + 1) * each {
                let query = &queries[row * of_queries + reader * size..][..size];
                let to = &mut output[(row * heads + reader) * width..][..width];
                cell.read(query, scale, to);
            }
        }
        let output = Tensor::from_shape(&[batches, length, heads * width], &output)?;
        Ok([output, kept])
    }
}
