//! Computes attention from tensors of heads.

use std::borrow::Cow;

use tract_onnx::tract_core::internal::*;

use crate::frontends::onnx::node_operator::zeros;
use crate::graph::pool::computed_anew;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{Attention, HeadRows, VisibleKeys};

/// How scores are computed from the products of queries and keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scoring {
    /// Factor of the products; by default `1 / sqrt(size)`.
    pub(super) scale: Option<f32>,
    /// Limits the scores by `limit * tanh(score / limit)`.
    pub(super) limit: Option<f32>,
}

/// Rows of numbers of each head of each batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadTensor<'t> {
    elements: &'t [f32],
    pub(super) batches: usize,
    pub(super) heads: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
    /// Number of elements between batches, heads and rows.
    strides: [usize; 3],
    /// Whether the heads of a row are next to each other.
    is_by_row: bool,
}

impl<'t> HeadTensor<'t> {
    /// Reads `[batch, heads, rows, width]`, or `[batch, rows, heads * width]` with this number of
    /// heads.
    pub(super) fn of(tensor: &'t Tensor, heads: Option<usize>) -> TractResult<Self> {
        let elements = tensor.try_as_plain_ram()?.as_slice::<f32>()?;
        match (tensor.shape(), heads) {
            (&[batches, heads, rows, width], _) => {
                Ok(Self::by_head(elements, [batches, heads, rows, width]))
            }
            (&[batches, rows, all], Some(heads)) if heads > 0 && all.is_multiple_of(heads) => {
                let width = all / heads;
                Ok(Self::by_row(elements, [batches, heads, rows, width], all))
            }
            (shape, Some(heads)) => bail!("the shape {shape:?} does not divide into {heads} heads"),
            (shape, None) => bail!("expected a tensor of rank 4, got the shape {shape:?}"),
        }
    }

    /// Reads elements of `[batch, heads, rows, width]`.
    pub(super) fn by_head(elements: &'t [f32], [batches, heads, rows, width]: [usize; 4]) -> Self {
        Self {
            elements,
            batches,
            heads,
            rows,
            width,
            strides: [heads * rows * width, rows * width, width],
            is_by_row: false,
        }
    }

    /// Reads elements of `[batch, rows, ..]`, where each row of `all` elements begins with those of
    /// its heads.
    pub(super) fn by_row(
        elements: &'t [f32],
        [batches, heads, rows, width]: [usize; 4],
        all: usize,
    ) -> Self {
        Self {
            strides: [rows * all, width, all],
            is_by_row: true,
            ..Self::by_head(elements, [batches, heads, rows, width])
        }
    }

    /// Returns one row.
    pub(super) fn row(&self, batch: usize, head: usize, row: usize) -> &'t [f32] {
        let places = [batch, head, row].into_iter().zip(self.strides);
        let start: usize = places.map(|(place, stride)| place * stride).sum();
        &self.elements[start..][..self.width]
    }

    /// Returns the first rows of a head, which must be stored one after the other.
    pub(super) fn head(&self, batch: usize, head: usize, rows: usize) -> &'t [f32] {
        let start = batch * self.strides[0] + head * self.strides[1];
        &self.elements[start..][..rows * self.width]
    }

    /// Returns the starts of the heads that `heads` query heads of each batch read.
    fn starts(&self, heads: usize) -> Vec<usize> {
        let each = (heads / self.heads.max(1)).max(1);
        let [of_batch, of_head, _] = self.strides;
        let all = (0..self.batches).flat_map(|batch| (0..heads).map(move |head| (batch, head)));
        all.map(|(batch, head)| batch * of_batch + head / each * of_head)
            .collect()
    }

    fn rows_of<'a>(&self, starts: &'a [usize]) -> HeadRows<'a>
    where
        't: 'a,
    {
        HeadRows {
            elements: self.elements,
            starts,
            stride: self.strides[2],
        }
    }
}

/// Numbers that are added to scores, with the layout of each head.
#[derive(Debug)]
pub(super) struct ScoreMask<'t> {
    elements: Cow<'t, [f32]>,
    starts: Vec<usize>,
    stride: usize,
}

impl<'t> ScoreMask<'t> {
    /// Reads a mask that can be broadcast to `[batch, heads, queries, keys]`. Keys beyond its last
    /// column are hidden. `false` hides a key.
    pub(super) fn of(
        tensor: &'t Tensor,
        [batches, heads, queries, keys]: [usize; 4],
    ) -> TractResult<Self> {
        let given = tensor.shape();
        let mut shape = [1; 4];
        let first = shape.len().checked_sub(given.len());
        let first = first.with_context(|| format!("a mask of rank {}", given.len()))?;
        shape[first..].copy_from_slice(given);
        let [of_batches, of_heads, of_queries, columns] = shape;
        let wanted = [batches, heads, queries];
        let fits = shape
            .iter()
            .zip(wanted)
            .all(|(has, all)| *has == 1 || *has == all);
        ensure!(
            fits && columns <= keys,
            "a mask of shape {given:?} does not fit {wanted:?} batches, heads and queries, and \
             {keys} keys"
        );
        let view = tensor.try_as_plain_ram()?;
        let added: Cow<'t, [f32]> = if tensor.datum_type() == DatumType::Bool {
            let flags = view.as_slice::<bool>()?.iter();
            Cow::Owned(
                flags
                    .map(|flag| if *flag { 0.0 } else { f32::NEG_INFINITY })
                    .collect(),
            )
        } else {
            Cow::Borrowed(view.as_slice::<f32>()?)
        };
        let elements = if columns == keys {
            added
        } else {
            let mut padded = vec![f32::NEG_INFINITY; of_batches * of_heads * of_queries * keys];
            let rows = padded.chunks_exact_mut(keys.max(1));
            for (to, from) in rows.zip(added.chunks_exact(columns.max(1))) {
                to[..columns].copy_from_slice(from);
            }
            Cow::Owned(padded)
        };
        let all = (0..batches).flat_map(|batch| (0..heads).map(move |head| (batch, head)));
        let start = |(batch, head)| {
            let batch = if of_batches == 1 { 0 } else { batch };
            let head = if of_heads == 1 { 0 } else { head };
            (batch * of_heads + head) * of_queries * keys
        };
        Ok(Self {
            elements,
            starts: all.map(start).collect(),
            stride: if of_queries == 1 { 0 } else { keys },
        })
    }

    /// Returns the numbers for each head.
    pub(super) fn rows(&self) -> HeadRows<'_> {
        HeadRows {
            elements: &self.elements,
            starts: &self.starts,
            stride: self.stride,
        }
    }
}

/// Queries, keys and values, and what hides keys.
#[derive(Debug)]
pub(super) struct AttentionRun<'t> {
    pub(super) queries: HeadTensor<'t>,
    pub(super) keys: HeadTensor<'t>,
    pub(super) values: HeadTensor<'t>,
    pub(super) mask: Option<ScoreMask<'t>>,
    /// Keys that queries see, for each batch.
    pub(super) visible: Vec<VisibleKeys>,
    /// The score of a further key with a value of zeros, for each query head.
    pub(super) sinks: Option<&'t [f32]>,
    pub(super) scoring: Scoring,
}

/// The kinds of scores that attention returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScoreKind {
    /// Scaled products.
    Products,
    /// Limited ones.
    Limited,
    /// With the mask.
    Masked,
    /// Weights of the values.
    Weights,
}

impl AttentionRun<'_> {
    /// Returns the numbers of batches, of query heads, of queries and of keys.
    fn sizes(&self) -> [usize; 4] {
        let of = &self.queries;
        [of.batches, of.heads, of.rows, self.keys.rows]
    }

    fn check(&self) -> TractResult<()> {
        let (q, k, v) = (&self.queries, &self.keys, &self.values);
        let is_one = q.batches == k.batches
            && k.batches == v.batches
            && k.heads == v.heads
            && k.rows == v.rows
            && q.width == k.width
            && self.visible.len() == q.batches;
        ensure!(
            is_one,
            "queries, keys and values do not fit together: {} and {} and {} batches, {} and {} \
             heads of keys and values, {} and {} rows, a size of {} and {}",
            q.batches,
            k.batches,
            v.batches,
            k.heads,
            v.heads,
            k.rows,
            v.rows,
            q.width,
            k.width
        );
        ensure!(
            k.heads > 0 && q.heads.is_multiple_of(k.heads),
            "the number of query heads {} is not a multiple of the key heads {}",
            q.heads,
            k.heads
        );
        let sinks = self.sinks.map_or(q.heads, <[_]>::len);
        ensure!(sinks == q.heads, "{sinks} sinks for {} heads", q.heads);
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "the size of a head")]
    fn scale(&self) -> f32 {
        let usual = || (self.queries.width as f32).sqrt().recip();
        self.scoring.scale.unwrap_or_else(usual)
    }

    /// Computes the output: `[batch, heads, queries, width]`, or `[batch, queries, heads * width]`
    /// if the queries have this form.
    pub(super) fn output(&self) -> TractResult<Tensor> {
        self.check()?;
        let [batches, heads, queries, keys] = self.sizes();
        let width = self.values.width;
        let [of_queries, of_keys, of_values] =
            [self.queries, self.keys, self.values].map(|of| of.starts(heads));
        let visible = self.visible.iter().flat_map(|it| vec![*it; heads]);
        let visible: Vec<VisibleKeys> = visible.collect();
        let sinks = self.sinks.map(|sinks| sinks.repeat(batches));
        let attention = Attention {
            queries: self.queries.rows_of(&of_queries),
            keys: self.keys.rows_of(&of_keys),
            values: self.values.rows_of(&of_values),
            mask: self.mask.as_ref().map(ScoreMask::rows),
            sizes: [queries, keys, self.queries.width, width],
            scale: self.scale(),
            score_limit: self.scoring.limit,
            visible: Some(&visible),
            sinks: sinks.as_deref(),
            zeros: true,
        };
        let is_by_row = self.queries.is_by_row;
        let place = |at: usize| {
            if is_by_row {
                let (row, head) = (at / heads, at % heads);
                [row / queries * heads + head, row % queries]
            } else {
                [at / queries, at % queries]
            }
        };
        let places: Vec<[usize; 2]> = (0..batches * heads * queries).map(place).collect();
        let shape: TVec<usize> = if is_by_row {
            tvec!(batches, queries, heads * width)
        } else {
            tvec!(batches, heads, queries, width)
        };
        computed_anew::<f32, f32>(&shape, &[], |_, to, split| {
            attention.run(Cpu::chosen(), &places, to, split)
        })
    }

    /// Computes the scores: `[batch, heads, queries, keys]`.
    pub(super) fn scores(&self, kind: ScoreKind) -> TractResult<Tensor> {
        self.check()?;
        let [batches, heads, queries, keys] = self.sizes();
        let [of_queries, of_keys] = [self.queries, self.keys].map(|of| of.starts(heads));
        let of_queries = self.queries.rows_of(&of_queries);
        let of_keys = self.keys.rows_of(&of_keys);
        let mask = self.mask.as_ref().map(ScoreMask::rows);
        let (size, scale) = (self.queries.width, self.scale());
        let mut scores = zeros(&[batches, heads, queries, keys])?;
        let mut view = scores.try_as_plain_ram_mut()?;
        let rows = view.as_slice_mut::<f32>()?.chunks_exact_mut(keys.max(1));
        for (at, row) in rows.enumerate() {
            let (head, query) = (at / queries, at % queries);
            let seen = self.visible[head / heads].in_block(query, 0, keys);
            let numbers = of_queries.row(head, query, size);
            for (key, score) in row.iter_mut().enumerate() {
                let pairs = numbers.iter().zip(of_keys.row(head, key, size));
                *score = pairs.map(|(a, b)| a * b).sum::<f32>() * scale;
                if let (Some(limit), true) = (self.scoring.limit, kind != ScoreKind::Products) {
                    *score = limit * (*score / limit).tanh();
                }
                if matches!(kind, ScoreKind::Masked | ScoreKind::Weights) {
                    let added = mask.map_or(0.0, |mask| mask.row(head, query, keys)[key]);
                    let is_hidden = !seen.contains(&key) || added == f32::NEG_INFINITY;
                    *score = if is_hidden {
                        f32::NEG_INFINITY
                    } else {
                        *score + added
                    };
                }
            }
            if kind == ScoreKind::Weights {
                let sink = self
                    .sinks
                    .map_or(f32::NEG_INFINITY, |sinks| sinks[head % heads]);
                softmax(row, sink);
            }
        }
        Ok(scores)
    }
}

/// Turns scores into weights; rows of -∞ become zeros.
fn softmax(row: &mut [f32], sink: f32) {
    let most = row.iter().fold(sink, |most, score| most.max(*score));
    let floor = if most == f32::NEG_INFINITY { 0.0 } else { most };
    for score in &mut *row {
        *score = (*score - floor).exp();
    }
    let sum = row.iter().sum::<f32>() + (sink - floor).exp();
    if sum > 0.0 {
        for weight in row {
            *weight /= sum;
        }
    }
}
