//! `GroupQueryAttention` of ONNX Runtime: attention with a cache, whose sequences may be shorter
//! than it.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use super::rotary::Angles;
use super::run::{AttentionRun, HeadTensor, ScoreKind, ScoreMask, Scoring};
use super::{VisibleWindow, Wirer};
use crate::frontends::onnx::graph::{integer, text};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, chosen, integers_of, operator, positive, wanted_outputs,
};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

/// The operator's name.
pub(in super::super) const NAME: &str = "GroupQueryAttention";

/// The operator's name with its domain.
pub(super) const FULL_NAME: &str = "com.microsoft::GroupQueryAttention";

/// Builds a `GroupQueryAttention`.
pub(in super::super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    operator(NAME, None, GroupedAttention::of(node)?)
}

/// The inputs, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupedInput {
    Queries,
    Keys,
    Values,
    PastKeys,
    PastValues,
    /// Number of tokens of each sequence minus one.
    LastTokens,
    /// Number of tokens of the longest sequence.
    Total,
    Cosines,
    Sines,
    Positions,
    Bias,
    Sinks,
}

const INPUTS: usize = 12;

#[derive(Debug, Clone)]
struct GroupedAttention {
    /// Positions of the inputs among those that are given.
    given: [Option<usize>; INPUTS],
    /// Outputs that are wanted: the answer, keys, values and scores.
    wanted: [bool; 4],
    /// Numbers of heads of queries and of keys.
    heads: [usize; 2],
    scoring: Scoring,
    window: VisibleWindow,
    has_angles: bool,
    is_interleaved: bool,
    /// Whether each softmax has one more score of zero.
    is_smooth: bool,
    scores: ScoreKind,
}

impl GroupedAttention {
    fn of(node: &NodeProto) -> TractResult<Self> {
        let heads = [
            positive(node, "num_heads")?,
            positive(node, "kv_num_heads")?,
        ];
        for name in ["k_quant_type", "v_quant_type"] {
            let kind = text(node, name);
            ensure!(
                matches!(kind, b"" | b"NONE"),
                "a quantised cache is not supported: `{name}`"
            );
        }
        ensure!(
            integer(node, "sliding_window_cache", 0) == 0,
            "`sliding_window_cache` is not supported"
        );
        let mut given = [None; INPUTS];
        for (at, from) in optional_inputs(node).take(node.input.len()).enumerate() {
            match given.get_mut(at) {
                Some(to) => *to = from,
                None => ensure!(from.is_none(), "the input {at} is not supported"),
            }
        }
        let has = |input: GroupedInput| given[input as usize].is_some();
        ensure!(
            has(GroupedInput::Queries) && has(GroupedInput::LastTokens) && has(GroupedInput::Total),
            "expected queries, `seqlens_k` and `total_sequence_length`"
        );
        for [a, b] in [
            [GroupedInput::Keys, GroupedInput::Values],
            [GroupedInput::PastKeys, GroupedInput::PastValues],
            [GroupedInput::Cosines, GroupedInput::Sines],
        ] {
            ensure!(has(a) == has(b), "{a:?} and {b:?} belong together");
        }
        let has_angles = integer(node, "do_rotary", 0) != 0;
        ensure!(
            has(GroupedInput::Cosines) || !has_angles,
            "`do_rotary` needs cosines and sines"
        );
        let window = integer(node, "local_window_size", -1);
        let wanted = wanted_outputs(node);
        ensure!(wanted[0], "the output is missing");
        Ok(Self {
            given,
            wanted,
            heads,
            scoring: Scoring::of(node),
            window: VisibleWindow {
                is_causal: integer(node, "causal", 1) != 0,
                sides: [(window > 0).then(|| window - 1), None],
            },
            has_angles,
            is_interleaved: integer(node, "rotary_interleaved", 0) != 0,
            is_smooth: integer(node, "smooth_softmax", 0) > 0,
            scores: match integer(node, "qk_output", 0) {
                2 => ScoreKind::Weights,
                _ => ScoreKind::Masked,
            },
        })
    }

    fn input<T: Copy>(&self, of: &[T], input: GroupedInput) -> Option<T> {
        self.given[input as usize].map(|at| of[at])
    }

    /// Returns the size of a head, given the last size of the queries, which may contain keys and
    /// values.
    fn width<D: DimLike>(&self, all: &D) -> D {
        let [queries, keys] = self.heads;
        let packed = if self.given[GroupedInput::Keys as usize].is_none() {
            2 * keys
        } else {
            0
        };
        all.clone() / (queries + packed)
    }
}

impl NodeOperator for GroupedAttention {
    fn outputs(&self) -> usize {
        self.wanted.iter().filter(|wanted| **wanted).count()
    }

    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        for output in outputs {
            s.equals(&output.datum_type, &inputs[0].datum_type)?;
        }
        let [queries, keys] = self.heads;
        s.given(&inputs[0].shape, move |s, shape| {
            let [batch, rows, all] = shape.as_slice() else {
                bail!("expected queries of rank 3, got {shape:?}");
            };
            let width = self.width(all);
            let output = tvec!(batch.clone(), rows.clone(), width.clone() * queries);
            s.equals(&outputs[0].shape, output)?;
            let kept = usize::from(self.wanted[1]) + usize::from(self.wanted[2]);
            for output in &outputs[1..=kept] {
                s.equals(&output.rank, 4)?;
                s.equals(&output.shape[0], batch.clone())?;
                s.equals(&output.shape[1], keys.to_dim())?;
                s.equals(&output.shape[3], width.clone())?;
            }
            Ok(())
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut wirer = Wirer { prefix, model };
        let dtype = wirer.dtype(inputs[0])?;
        let shape = wirer.model.outlet_fact(inputs[0])?.shape.to_tvec();
        let [batch, rows, all] = shape.as_slice() else {
            bail!("expected queries of rank 3, got {shape:?}");
        };
        let width = self.width(all);
        let past = match self.input(inputs, GroupedInput::PastKeys) {
            Some(past) => wirer.model.outlet_fact(past)?.shape[2].clone(),
            None => 0.to_dim(),
        };
        let total = self
            .input(inputs, GroupedInput::Total)
            .expect("it is given");
        let total = wirer.model.outlet_fact(total)?.konst.clone();
        let length = match total.as_deref().map(one_of).transpose()? {
            Some(total) => past.maxi(total.to_dim()),
            None => wirer.model.symbols.new_with_prefix("cache").to_dim(),
        };
        let [queries, keys] = self.heads;
        let output = tvec!(batch.clone(), rows.clone(), width.clone() * queries);
        let cache: TVec<TDim> = tvec!(batch.clone(), keys.to_dim(), length.clone(), width);
        let scores = tvec!(batch.clone(), queries.to_dim(), rows.clone(), length);
        let facts = chosen(self.wanted, [output, cache.clone(), cache, scores]);
        let facts = facts.into_iter().map(f32::fact).collect();
        let mut from = tvec!();
        for outlet in inputs {
            let is_real = wirer.dtype(*outlet)?.is_float();
            from.push(if is_real {
                wirer.float("real", *outlet)?
            } else {
                *outlet
            });
        }
        let form = self.clone();
        let kernel = Kernel::new(NAME, facts, move |inputs: &[TValue]| {
            let all: Vec<&Tensor> = inputs.iter().map(|input| &**input).collect();
            form.run(&all)
        });
        let name = format!("{prefix}.attention");
        let made = wirer.model.wire_node(name, kernel.binding(), &from)?;
        let answers = made.iter().enumerate().map(|(at, outlet)| {
            let name = if at == 0 {
                prefix.to_owned()
            } else {
                format!("{prefix}.{at}")
            };
            Ok(wirer.model.wire_node(name, cast(dtype), &[*outlet])?[0])
        });
        answers.collect()
    }
}

fn one_of(total: &Tensor) -> TractResult<usize> {
    match integers_of(total)?[..] {
        [total] if total >= 0 => Ok(usize::try_from(total)?),
        ref other => {
            bail!("`total_sequence_length` must be one number of at least 0, got {other:?}")
        }
    }
}

/// The new tokens of each sequence, and their places in the cache.
struct NewTokens<'t> {
    parts: [HeadTensor<'t>; 3],
    /// Number of tokens before the new ones.
    past: Vec<usize>,
    /// Number of rows of the cache.
    most: usize,
}

impl GroupedAttention {
    fn run(&self, inputs: &[&Tensor]) -> TractResult<TVec<Tensor>> {
        let tokens = self.tokens(inputs)?;
        let [queries, keys, values] = tokens.parts;
        let (batches, rows, width) = (queries.batches, queries.rows, queries.width);
        let of = |input| self.input(inputs, input);
        let angles = match (
            of(GroupedInput::Cosines),
            of(GroupedInput::Sines),
            self.has_angles,
        ) {
            (Some(cos), Some(sin), true) => Some(Angles::of([cos, sin], self.is_interleaved)?),
            _ => None,
        };
        angles.map_or(Ok(()), |angles| angles.check(width))?;
        let positions = of(GroupedInput::Positions).map(integers_of).transpose()?;
        if let Some(positions) = &positions {
            ensure!(
                positions.len() == batches * rows,
                "{} positions for {batches} sequences of {rows} tokens",
                positions.len()
            );
        }
        let position = |batch: usize, row: usize| match &positions {
            Some(positions) => Ok(positions[batch * rows + row]),
            None => i64::try_from(tokens.past[batch] + row),
        };
        let mut rotated = Vec::new();
        if let Some(angles) = angles {
            rotated.reserve_exact(batches * rows * queries.heads * width);
            for (batch, row) in (0..batches).flat_map(|it| (0..rows).map(move |row| (it, row))) {
                for head in 0..queries.heads {
                    let start = rotated.len();
                    rotated.extend_from_slice(queries.row(batch, head, row));
                    angles.rotate(NAME, position(batch, row)?, &mut rotated[start..])?;
                }
            }
        }
        let queries = match angles {
            Some(_) => {
                let sizes = [batches, queries.heads, rows, width];
                HeadTensor::by_row(&rotated, sizes, queries.heads * width)
            }
            None => queries,
        };
        let mut cache = Vec::with_capacity(2);
        for (new, past, angles) in [
            (keys, of(GroupedInput::PastKeys), angles),
            (values, of(GroupedInput::PastValues), None),
        ] {
            cache.push(
                tokens.appended(new, past, |batch, row, numbers| match angles {
                    Some(angles) => angles.rotate(NAME, position(batch, row)?, numbers),
                    None => Ok(()),
                })?,
            );
        }
        let sizes = [batches, queries.heads, rows, tokens.most];
        let smooth = vec![0.0; queries.heads];
        let sinks = match of(GroupedInput::Sinks) {
            Some(sinks) => Some(sinks.try_as_plain_ram()?.as_slice::<f32>()?),
            None => self.is_smooth.then_some(&*smooth),
        };
        let visible = tokens.past.iter().map(|past| {
            let offset = i64::try_from(*past)?;
            Ok(self.window.visible(offset, past + rows))
        });
        let run = AttentionRun {
            queries,
            keys: HeadTensor::of(&cache[0], None)?,
            values: HeadTensor::of(&cache[1], None)?,
            mask: of(GroupedInput::Bias)
                .map(|bias| ScoreMask::of(bias, sizes))
                .transpose()?,
            visible: visible.collect::<TractResult<_>>()?,
            sinks,
            scoring: self.scoring,
        };
        let output = run.output()?;
        let scores = if self.wanted[3] {
            self.scores(&run)?
        } else {
            Tensor::default()
        };
        let mut cache = cache.into_iter();
        let mut next = || cache.next().unwrap_or_default();
        Ok(chosen(self.wanted, [output, next(), next(), scores]))
    }

    /// Computes the scores; those of hidden keys are zero.
    fn scores(&self, run: &AttentionRun<'_>) -> TractResult<Tensor> {
        let mut scores = run.scores(self.scores)?;
        let mut view = scores.try_as_plain_ram_mut()?;
        let hidden = view.as_slice_mut::<f32>()?.iter_mut();
        hidden
            .filter(|score| **score == f32::NEG_INFINITY)
            .for_each(|score| *score = 0.0);
        Ok(scores)
    }

    fn tokens<'t>(&self, inputs: &[&'t Tensor]) -> TractResult<NewTokens<'t>> {
        let of = |input| self.input(inputs, input);
        let [heads, of_keys] = self.heads;
        let queries = inputs[0];
        let (&[batches, rows, all], elements) = (
            queries.shape(),
            queries.try_as_plain_ram()?.as_slice::<f32>()?,
        ) else {
            bail!("expected queries of rank 3, got {:?}", queries.shape());
        };
        let parts = if let (Some(keys), Some(values)) =
            (of(GroupedInput::Keys), of(GroupedInput::Values))
        {
            [
                HeadTensor::of(queries, Some(heads))?,
                HeadTensor::of(keys, Some(of_keys))?,
                HeadTensor::of(values, Some(of_keys))?,
            ]
        } else {
            let width = self.width(&all);
            ensure!(
                width * (heads + 2 * of_keys) == all,
                "{all} numbers do not divide into {heads} and twice {of_keys} heads"
            );
            let part = |start: usize, heads: usize| {
                let elements = elements.get(start * width..).unwrap_or_default();
                HeadTensor::by_row(elements, [batches, heads, rows, width], all)
            };
            [
                part(0, heads),
                part(heads, of_keys),
                part(heads + of_keys, of_keys),
            ]
        };
        for part in &parts[1..] {
            ensure!(
                part.batches == batches && part.rows == rows && part.width == parts[0].width,
                "queries, keys and values differ in their sequences or in the size of their heads"
            );
        }
        let total = one_of(of(GroupedInput::Total).expect("it is given"))?;
        let shape = of(GroupedInput::PastKeys).map(Tensor::shape);
        let kept = shape.and_then(|shape| shape.get(2).copied()).unwrap_or(0);
        let last = integers_of(of(GroupedInput::LastTokens).expect("it is given"))?;
        ensure!(
            last.len() == batches,
            "{} lengths for {batches} sequences",
            last.len()
        );
        let most = kept.max(total);
        let refuse = |reason: String| InvalidInput {
            operator: FULL_NAME.to_owned(),
            reason,
        };
        if total > kept.saturating_add(rows) {
            return Err(refuse(format!(
                "`total_sequence_length` is {total}, but there are {rows} new tokens and {kept} in \
                 the cache"
            ))
            .into());
        }
        let past = last.iter().map(|last| {
            let length = usize::try_from(last.saturating_add(1)).ok();
            // In the first run, tokens after a sequence's end do not change those before it.
            let past = match length {
                Some(length) if rows != total => length.checked_sub(rows),
                Some(_) => Some(0),
                None => None,
            };
            let past = past.filter(|past| *past <= kept && past + rows <= most);
            past.ok_or_else(|| {
                refuse(format!(
                    "`seqlens_k` has a sequence of {} tokens, which does not fit {rows} new \
                     tokens, {kept} in the cache, and {total} of the longest sequence",
                    last.saturating_add(1)
                ))
            })
        });
        Ok(NewTokens {
            past: past.collect::<Result<_, _>>()?,
            parts,
            most,
        })
    }
}

impl NewTokens<'_> {
    /// Returns the cache with the new rows; `change` is applied to each.
    fn appended(
        &self,
        new: HeadTensor<'_>,
        past: Option<&Tensor>,
        change: impl Fn(usize, usize, &mut [f32]) -> TractResult<()>,
    ) -> TractResult<Tensor> {
        let HeadTensor {
            batches,
            heads,
            rows,
            width,
            ..
        } = new;
        let past = past.map(|past| HeadTensor::of(past, None)).transpose()?;
        if let Some(past) = &past {
            ensure!(
                past.batches == batches && past.heads == heads && past.width == width,
                "a cache of {} sequences, {} heads and a size of {} does not fit {batches}, \
                 {heads} and {width}",
                past.batches,
                past.heads,
                past.width
            );
        }
        let mut cache = Tensor::zero_dt(f32::datum_type(), &[batches, heads, self.most, width])?;
        let mut view = cache.try_as_plain_ram_mut()?;
        let to = view.as_slice_mut::<f32>()?;
        let size = self.most * width;
        for (at, to) in to.chunks_exact_mut(size.max(1)).enumerate() {
            let (batch, head) = (at / heads, at % heads);
            let before = self.past[batch];
            if let Some(past) = past.filter(|_| before > 0 && width > 0) {
                ensure!(
                    before <= past.rows,
                    "{before} tokens in a cache of {}",
                    past.rows
                );
                to[..before * width].copy_from_slice(past.head(batch, head, before));
            }
            let places = to[before * width..].chunks_exact_mut(width.max(1));
            for (row, to) in places.take(rows).enumerate() {
                to.copy_from_slice(new.row(batch, head, row));
                change(batch, row, to)?;
            }
        }
        Ok(cache)
    }
}
