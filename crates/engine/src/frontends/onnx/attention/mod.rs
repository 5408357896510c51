//! Attention of the ONNX standard and of ONNX Runtime.
//!
//! All forms run on one kernel, [`AttentionRun`]:
//!
//! - `Attention` of the standard, with one more input and attribute, which [`contrib`] uses;
//! - [`grouped`]: `GroupQueryAttention`, whose cache may be longer than its sequences;
//! - [`contrib`]: writes other operators of `com.microsoft` as `Attention`;
//! - [`rotary`]: rotates queries and keys by their positions.

pub(super) mod contrib;
pub(super) mod grouped;
pub(super) mod rotary;
mod run;

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::array::TypedConcat;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use self::run::{AttentionRun, HeadTensor, ScoreKind, ScoreMask, Scoring};
use super::graph::{attribute, integer};
use super::node_operator::{
    Built, NodeOperator, Tensors, Wired, chosen, integers_of, operator, wanted_outputs,
};
use crate::graph::kernel::Kernel;
use pkgtool_kernels::float::VisibleKeys;

/// The operator's name.
pub(super) const NAME: &str = "Attention";

/// Builds an `Attention` of the standard.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    operator(NAME, None, StandardAttention::of(node)?)
}

impl Scoring {
    /// Reads the scoring of a node. A scale or a limit of zero means none.
    fn of(node: &NodeProto) -> Self {
        let number = |name: &str| attribute(node, name).map(|found| found.f);
        let [scale, limit] = ["scale", "softcap"].map(|name| number(name).filter(|it| *it != 0.0));
        Self { scale, limit }
    }
}

/// The position of the padding of keys, which the standard does not have.
const PADDING: usize = 7;

/// The attribute with the number that is added to the scores of padding.
const PADDING_VALUE: &str = "padding_value";

/// The tensors of an attention, by their position in the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttentionInput {
    Queries,
    Keys,
    Values,
    Mask,
    PastKeys,
    PastValues,
    /// Number of keys of each batch.
    Lengths,
    /// Numbers of keys of each batch, or flags of keys.
    Padding,
}

const INPUTS: usize = PADDING + 1;
const _: () = assert!(
    AttentionInput::Padding as usize == PADDING,
    "it follows those of the standard"
);

/// The inputs of the kernel after queries, keys and values.
const OTHERS: [AttentionInput; 4] = [
    AttentionInput::Mask,
    AttentionInput::PastKeys,
    AttentionInput::Lengths,
    AttentionInput::Padding,
];

#[derive(Debug, Clone)]
struct StandardAttention {
    /// Positions of the inputs among those that are given.
    given: [Option<usize>; INPUTS],
    /// Outputs that are wanted: the answer, keys, values and scores.
    wanted: [bool; 4],
    /// Numbers of heads of tensors of rank 3.
    heads: [Option<usize>; 2],
    scoring: Scoring,
    window: VisibleWindow,
    scores: ScoreKind,
    /// Added to the scores of padding.
    padding: f32,
}

/// The keys that a query sees, by its position.
#[derive(Debug, Clone, Copy)]
struct VisibleWindow {
    is_causal: bool,
    /// Numbers of keys before and after the query's own; `None` for all.
    sides: [Option<i64>; 2],
}

impl VisibleWindow {
    /// Returns the keys that the queries of a batch see; `offset` is the position of the first
    /// query.
    fn visible(self, offset: i64, most: usize) -> VisibleKeys {
        let [left, right] = self.sides;
        let causal = self.is_causal.then_some(0);
        let right = match (right, causal) {
            (Some(right), Some(causal)) => Some(right.min(causal)),
            (right, causal) => right.or(causal),
        };
        VisibleKeys {
            first: left.map_or(i64::MIN, |left| offset.saturating_sub(left)),
            end: right.map_or(i64::MAX, |right| {
                offset.saturating_add(right).saturating_add(1)
            }),
            most,
        }
    }
}

impl StandardAttention {
    fn of(node: &NodeProto) -> TractResult<Self> {
        let count = |name: &str| {
            let found = attribute(node, name)?.i;
            usize::try_from(found).ok().filter(|count| *count > 0)
        };
        let side = |name: &str| Some(integer(node, name, -1)).filter(|size| *size >= 0);
        let mut given = [None; INPUTS];
        for (to, from) in given.iter_mut().zip(optional_inputs(node)) {
            *to = from;
        }
        let wanted = wanted_outputs(node);
        ensure!(
            wanted[0] && given[..3].iter().all(Option::is_some),
            "expected queries, keys, values and an output"
        );
        let has = |input: AttentionInput| given[input as usize].is_some();
        ensure!(
            has(AttentionInput::PastKeys) == has(AttentionInput::PastValues),
            "past keys and past values belong together"
        );
        ensure!(
            !(has(AttentionInput::Lengths) && has(AttentionInput::PastKeys)),
            "`nonpad_kv_seqlen` does not go with past keys"
        );
        Ok(Self {
            given,
            wanted,
            heads: [count("q_num_heads"), count("kv_num_heads")],
            scoring: Scoring::of(node),
            padding: attribute(node, PADDING_VALUE).map_or(0.0, |found| found.f),
            window: VisibleWindow {
                is_causal: integer(node, "is_causal", 0) != 0,
                sides: [side("left_window_size"), side("right_window_size")],
            },
            scores: match integer(node, "qk_matmul_output_mode", 0) {
                0 => ScoreKind::Products,
                1 => ScoreKind::Limited,
                2 => ScoreKind::Masked,
                3 => ScoreKind::Weights,
                other => bail!("`qk_matmul_output_mode` is {other}: expected 0 to 3"),
            },
        })
    }

    fn input<T: Copy>(&self, of: &[T], input: AttentionInput) -> Option<T> {
        self.given[input as usize].map(|at| of[at])
    }

    /// Returns the sizes of a tensor of heads as `[batch, heads, rows, width]`.
    fn four(shape: &[TDim], heads: Option<usize>) -> TractResult<[TDim; 4]> {
        match (shape, heads) {
            ([a, b, c, d], _) => Ok([a, b, c, d].map(Clone::clone)),
            ([batch, rows, all], Some(heads)) => Ok([
                batch.clone(),
                heads.to_dim(),
                rows.clone(),
                all.clone() / heads,
            ]),
            ([_, _, _], None) => bail!("tensors of rank 3 need `q_num_heads` and `kv_num_heads`"),
            (shape, _) => bail!("expected tensors of rank 3 or 4, got {shape:?}"),
        }
    }

    /// Returns the shapes of the outputs, given those of the inputs.
    fn shapes(&self, inputs: &[TVec<TDim>]) -> TractResult<[TVec<TDim>; 4]> {
        let shape = |input: AttentionInput| {
            let at = self.given[input as usize];
            at.map(|at| inputs[at].as_slice())
        };
        let [of_queries, of_keys] = self.heads;
        let queries = shape(AttentionInput::Queries).expect("it is given");
        let [batch, heads, rows, _] = Self::four(queries, of_queries)?;
        let mut keys = Self::four(shape(AttentionInput::Keys).expect("it is given"), of_keys)?;
        let mut values = Self::four(shape(AttentionInput::Values).expect("it is given"), of_keys)?;
        for (to, past) in [
            (&mut keys, AttentionInput::PastKeys),
            (&mut values, AttentionInput::PastValues),
        ] {
            if let Some(past) = shape(past) {
                ensure!(
                    past.len() == 4,
                    "expected past tensors of rank 4, got {past:?}"
                );
                to[2] = past[2].clone() + to[2].clone();
            }
        }
        let width = values[3].clone();
        let output = if queries.len() == 4 {
            tvec!(batch.clone(), heads.clone(), rows.clone(), width)
        } else {
            tvec!(batch.clone(), rows.clone(), heads.clone() * width)
        };
        let scores = tvec!(batch, heads, rows, keys[2].clone());
        Ok([
            output,
            keys.into_iter().collect(),
            values.into_iter().collect(),
            scores,
        ])
    }
}

impl NodeOperator for StandardAttention {
    fn outputs(&self) -> usize {
        self.wanted.iter().filter(|wanted| **wanted).count()
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        let dtypes = [
            AttentionInput::Queries,
            AttentionInput::Keys,
            AttentionInput::Values,
            AttentionInput::Queries,
        ];
        for (output, of) in outputs.iter().zip(chosen(self.wanted, dtypes)) {
            let at = self.given[of as usize].expect("it is given");
            s.equals(&output.datum_type, &inputs[at].datum_type)?;
        }
        let shapes: Vec<_> = inputs.iter().map(|input| &input.shape).collect();
        s.given_all(shapes, move |s, shapes: Vec<TVec<TDim>>| {
            let found = chosen(self.wanted, self.shapes(&shapes)?);
            for (output, shape) in outputs.iter().zip(found) {
                s.equals(&output.shape, shape)?;
            }
            Ok(())
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let shapes = inputs
            .iter()
            .map(|it| Ok(model.outlet_fact(*it)?.shape.to_tvec()));
        let shapes: Vec<TVec<TDim>> = shapes.collect::<TractResult<_>>()?;
        let all = self.shapes(&shapes)?;
        let of = |input| self.input(inputs, input);
        let mut wirer = Wirer { prefix, model };
        let queries = inputs[0];
        let [_, of_keys] = self.heads;
        let [mut keys, mut values] = [inputs[1], inputs[2]];
        let [_, keeps_keys, keeps_values, _] = self.wanted;
        for (rows, past, is_kept, name) in [
            (&mut keys, AttentionInput::PastKeys, keeps_keys, "keys"),
            (
                &mut values,
                AttentionInput::PastValues,
                keeps_values,
                "values",
            ),
        ] {
            if is_kept || of(past).is_some() {
                *rows = wirer.by_head(name, *rows, of_keys)?;
            }
            if let Some(past) = of(past) {
                *rows = wirer.node(name, TypedConcat::new(2), &[past, *rows])?;
            }
        }
        let dtype = wirer.dtype(queries)?;
        let mut from = tvec!();
        for (name, outlet) in [("q", queries), ("k", keys), ("v", values)] {
            from.push(wirer.float(name, outlet)?);
        }
        let mut places = [None; OTHERS.len()];
        for (place, input) in places.iter_mut().zip(OTHERS) {
            let Some(outlet) = of(input) else { continue };
            *place = Some(from.len());
            from.push(match input {
                AttentionInput::Mask => wirer.float("mask", outlet)?,
                _ => outlet,
            });
        }
        let form = self.clone();
        let wants_scores = self.wanted[3];
        let [output, _, _, scores] = all;
        let mut facts = tvec!(f32::fact(output));
        if wants_scores {
            facts.push(f32::fact(scores));
        }
        let kernel = Kernel::new(NAME, facts, move |inputs: &[TValue]| {
            let heads = [&*inputs[0], &*inputs[1], &*inputs[2]];
            form.run(heads, places.map(|place| place.map(|at| &*inputs[at])))
        });
        let made = wirer
            .model
            .wire_node(format!("{prefix}.attention"), kernel, &from)?;
        let mut answers = tvec!();
        if wants_scores {
            answers.push(
                wirer
                    .model
                    .wire_node(format!("{prefix}.scores"), cast(dtype), &made[1..2])?[0],
            );
        }
        let output = wirer.model.wire_node(prefix, cast(dtype), &made[..1])?[0];
        let kept = [(keeps_keys, keys), (keeps_values, values)];
        let kept = kept
            .into_iter()
            .filter_map(|(is_kept, outlet)| is_kept.then_some(outlet));
        Ok(std::iter::once(output).chain(kept).chain(answers).collect())
    }
}

impl StandardAttention {
    fn run(
        &self,
        [queries, keys, values]: [&Tensor; 3],
        [mask, past, lengths, padding]: [Option<&Tensor>; OTHERS.len()],
    ) -> TractResult<TVec<Tensor>> {
        let [of_queries, of_keys] = self.heads;
        let queries = HeadTensor::of(queries, of_queries)?;
        let [keys, values] = [
            HeadTensor::of(keys, of_keys)?,
            HeadTensor::of(values, of_keys)?,
        ];
        let offset = past.and_then(|past| past.shape().get(2).copied());
        let visible = if let Some(lengths) = lengths {
            let rows = i64::try_from(queries.rows)?;
            let lengths = integers_of(lengths)?.into_iter();
            let visible = lengths.map(|length| {
                let most = usize::try_from(length).unwrap_or(0);
                self.window.visible(length.saturating_sub(rows), most)
            });
            visible.collect()
        } else {
            let offset = i64::try_from(offset.unwrap_or(0))?;
            vec![self.window.visible(offset, keys.rows); queries.batches]
        };
        let sizes = [queries.batches, queries.heads, queries.rows, keys.rows];
        let padded = match (padding, mask) {
            (Some(padding), mask) => Some(padded(padding, self.padding, mask, sizes)?),
            (None, _) => None,
        };
        let mask = padded.as_ref().or(mask);
        let run = AttentionRun {
            queries,
            keys,
            values,
            mask: mask.map(|mask| ScoreMask::of(mask, sizes)).transpose()?,
            visible,
            sinks: None,
            scoring: self.scoring,
        };
        let mut outputs = tvec!(run.output()?);
        if self.wanted[3] {
            outputs.push(run.scores(self.scores)?);
        }
        Ok(outputs)
    }
}

/// Returns the numbers that padding adds to scores, plus those of a mask.
fn padded(
    padding: &Tensor,
    added: f32,
    mask: Option<&Tensor>,
    sizes: [usize; 4],
) -> TractResult<Tensor> {
    let [batches, heads, queries, keys] = sizes;
    let numbers = integers_of(padding)?;
    let is_hidden: Box<dyn Fn([usize; 3]) -> bool> = match *padding.shape() {
        [count] if count == batches || count == 2 * batches => Box::new(move |[batch, _, key]| {
            let key = i64::try_from(key).unwrap_or(i64::MAX);
            let start = numbers.get(batches + batch).copied().unwrap_or(0);
            !(start..numbers[batch]).contains(&key)
        }),
        [a, b] if [a, b] == [batches, keys] => {
            Box::new(move |[batch, _, key]| numbers[batch * keys + key] == 0)
        }
        [a, b, c] if [a, b, c] == [batches, queries, keys] => {
            Box::new(move |[batch, query, key]| {
                numbers[(batch * queries + query) * keys + key] == 0
            })
        }
        ref other => bail!(
            "a padding of shape {other:?} does not fit {batches} batches, {queries} queries and \
             {keys} keys"
        ),
    };
    let mask = mask.map(|mask| ScoreMask::of(mask, sizes)).transpose()?;
    let heads = if mask.is_some() { heads } else { 1 };
    let mut sums = Vec::with_capacity(batches * heads * queries * keys);
    for (batch, head) in (0..batches).flat_map(|it| (0..heads).map(move |head| (it, head))) {
        for query in 0..queries {
            let row = mask
                .as_ref()
                .map(|mask| mask.rows().row(batch * heads + head, query, keys));
            sums.extend((0..keys).map(|key| {
                let of_padding = if is_hidden([batch, query, key]) {
                    added
                } else {
                    0.0
                };
                row.map_or(0.0, |row| row[key]) + of_padding
            }));
        }
    }
    Tensor::from_shape(&[batches, heads, queries, keys], &sums)
}

/// Adds steps to a graph, with names that begin with that of a node.
struct Wirer<'m> {
    prefix: &'m str,
    model: &'m mut TypedModel,
}

impl Wirer<'_> {
    fn node(
        &mut self,
        name: &str,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        let prefix = self.prefix;
        let name = format!("{prefix}.{name}.{}", self.model.nodes().len());
        Ok(self.model.wire_node(name, op, inputs)?[0])
    }

    fn dtype(&self, outlet: OutletId) -> TractResult<DatumType> {
        Ok(self.model.outlet_fact(outlet)?.datum_type)
    }

    /// Converts numbers to float32; flags stay.
    fn float(&mut self, name: &str, outlet: OutletId) -> TractResult<OutletId> {
        match self.dtype(outlet)? {
            DatumType::F32 | DatumType::Bool => Ok(outlet),
            DatumType::F16 => self.node(name, cast(f32::datum_type()), &[outlet]),
            other => bail!("attention of {other:?} is not supported"),
        }
    }

    /// Splits rows of all heads into `[batch, heads, rows, width]`.
    fn by_head(
        &mut self,
        name: &str,
        outlet: OutletId,
        heads: Option<usize>,
    ) -> TractResult<OutletId> {
        let shape = self.model.outlet_fact(outlet)?.shape.to_tvec();
        let [_, _, all] = shape.as_slice() else {
            return Ok(outlet);
        };
        let heads = heads.context("tensors of rank 3 need `kv_num_heads`")?;
        let split = tvec!(heads.to_dim(), all.clone() / heads);
        let split = AxisOp::Reshape(2, tvec!(all.clone()), split);
        let split = self.node(name, split, &[outlet])?;
        self.node(name, AxisOp::Move(2, 1), &[split])
    }
}
