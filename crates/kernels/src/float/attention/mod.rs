//! Scaled dot-product attention: `softmax(queries · keysᵀ · scale + mask) · values` for each head.
//!
//! Only the scores of one block of keys are stored at a time. The softmax is updated with each
//! block: when a larger score appears, the sums so far are scaled down.

#[cfg(test)]
mod tests;
mod visible;

use std::ops::Range;

pub use visible::VisibleKeys;

use super::activate::exponential;
use super::aligned::AlignedNumbers;
use super::{matrix, shape};
use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Number of keys in a block.
const KEYS_PER_BLOCK: usize = 128;

/// Minimum number of queries of a head for which its keys are packed.
const MIN_QUERIES_TO_PACK: usize = 4;

/// Number of elements that are summed in parallel.
const LANES: usize = 16;

/// Rows of numbers for each head.
#[derive(Debug, Clone, Copy)]
pub struct HeadRows<'a> {
    /// All elements.
    pub elements: &'a [f32],
    /// Start of each head.
    pub starts: &'a [usize],
    /// Number of elements from one row of a head to the next.
    pub stride: usize,
}

impl<'a> HeadRows<'a> {
    /// Returns a row of a head.
    #[must_use]
    pub fn row(&self, head: usize, row: usize, width: usize) -> &'a [f32] {
        &self.elements[self.starts[head] + row * self.stride..][..width]
    }

    fn check(&self, name: &str, rows: usize, width: usize) -> Result<(), String> {
        let last = self.starts.iter().max().copied().unwrap_or_default();
        let end = rows
            .saturating_sub(1)
            .checked_mul(self.stride)
            .and_then(|end| end.checked_add(last)?.checked_add(width));
        let is_there = self.starts.is_empty() || rows == 0 || width == 0;
        if is_there || end.is_some_and(|end| end <= self.elements.len()) {
            return Ok(());
        }
        let found = self.elements.len();
        Err(format!(
            "{name}: too short: {found} elements, expected {rows} rows of {width} starting at {last}"
        ))
    }
}

/// The inputs of an attention operator.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// `[head][query][size]`.
    pub queries: HeadRows<'a>,
    /// `[head][key][size]`.
    pub keys: HeadRows<'a>,
    /// `[head][key][width]`.
    pub values: HeadRows<'a>,
    /// Added to scores, `[head][query][key]`.
    pub mask: Option<HeadRows<'a>>,
    /// Number of queries and keys of a head, elements of a key, elements of a value.
    pub sizes: [usize; 4],
    /// Factor of the scores.
    pub scale: f32,
    /// Limits products times [`scale`](Self::scale), before the mask is added: `limit * tanh(score
    /// / limit)`.
    pub score_limit: Option<f32>,
    /// Keys that the queries of each head see; all if `None`.
    pub visible: Option<&'a [VisibleKeys]>,
    /// For each head, the score of a key with a value of zeros that every query sees.
    pub sinks: Option<&'a [f32]>,
    /// Whether a query without visible keys, or with only scores of -∞, returns zeros instead of
    /// NaN. Then a mask of -∞ hides a key with any product, even NaN.
    pub zeros: bool,
}

/// A row of the output, with its position.
struct AttentionRow<'a> {
    head: usize,
    query: usize,
    output: &'a mut [f32],
    /// Largest score so far.
    most: f32,
    /// Sum of all weights so far.
    sum: f32,
}

impl AttentionRow<'_> {
    /// Adds a key with a value of zeros to the softmax.
    fn add_sink(&mut self, score: f32) {
        let most = self.most.max(score);
        if most == f32::NEG_INFINITY {
            return;
        }
        let factor = (self.most - most).exp();
        self.output.iter_mut().for_each(|number| *number *= factor);
        self.sum = self.sum * factor + (score - most).exp();
        self.most = most;
    }
}

/// Scratch memory: packed keys and values of a block, and scores.
struct Room {
    keys: AlignedNumbers,
    values: AlignedNumbers,
    scores: Vec<f32>,
    sums: AlignedNumbers,
}

impl Attention<'_> {
    /// Computes rows of the output, one for each given head and query.
    pub fn run(
        &self,
        cpu: Cpu,
        places: &[[usize; 2]],
        output: &mut [f32],
        split: Split,
    ) -> Result<(), String> {
        let [queries, keys, size, width] = self.sizes;
        check_length("the output", output.len(), &[places.len(), width])?;
        self.queries.check("queries", queries, size)?;
        self.keys.check("keys", keys, size)?;
        self.values.check("values", keys, width)?;
        if let Some(mask) = &self.mask {
            mask.check("the mask", queries, keys)?;
        }
        let all = [
            Some(&self.queries),
            Some(&self.keys),
            Some(&self.values),
            self.mask.as_ref(),
        ];
        let heads = all
            .into_iter()
            .flatten()
            .map(|lines| lines.starts.len())
            .chain(self.visible.map(<[_]>::len))
            .chain(self.sinks.map(<[_]>::len))
            .min();
        let is_there = |[head, query]: &[usize; 2]| Some(*head) < heads && *query < queries;
        if let Some(place) = places.iter().find(|place| !is_there(place)) {
            return Err(format!(
                "row {place:?} is out of range: {heads:?} heads and {queries} queries"
            ));
        }
        if width == 0 {
            return Ok(());
        }
        split.rows(output, width, keys * (size + width), |first, output| {
            let rows = output.chunks_exact_mut(width).zip(&places[first..]);
            let rows = rows.map(|(output, [head, query])| AttentionRow {
                head: *head,
                query: *query,
                output,
                most: f32::NEG_INFINITY,
                sum: 0.0,
            });
            let mut rows: Vec<AttentionRow<'_>> = rows.collect();
            rows.sort_by_key(|row| row.head);
            self.rows(cpu, &mut rows);
        });
        Ok(())
    }

    /// Computes rows of the output, ordered by head.
    fn rows(&self, cpu: Cpu, rows: &mut [AttentionRow<'_>]) {
        let [_, keys, size, width] = self.sizes;
        let most = shape::of(cpu).most;
        let across = 2 * shape::of(cpu).lanes;
        let across = width.next_multiple_of(across);
        let mut room = Room {
            keys: AlignedNumbers::zeros(size * KEYS_PER_BLOCK),
            values: AlignedNumbers::zeros(KEYS_PER_BLOCK * across),
            scores: vec![0.0; most * KEYS_PER_BLOCK],
            sums: AlignedNumbers::zeros(most * across),
        };
        for rows in rows.chunk_by_mut(|a, b| a.head == b.head) {
            for row in &mut *rows {
                row.output.fill(0.0);
            }
            for first in (0..keys).step_by(KEYS_PER_BLOCK) {
                let block = [first, KEYS_PER_BLOCK.min(keys - first)];
                if rows.iter().all(|row| self.seen_of(row, block).is_empty()) {
                    continue;
                }
                if rows.len() < MIN_QUERIES_TO_PACK {
                    for row in &mut *rows {
                        self.one(cpu, row, block, &mut room.scores);
                    }
                    continue;
                }
                self.pack(rows[0].head, block, across, &mut room);
                for rows in rows.chunks_mut(most) {
                    self.several(cpu, rows, block, across, &mut room);
                }
            }
            for row in rows {
                if let Some(sinks) = self.sinks {
                    row.add_sink(sinks[row.head]);
                }
                let share = match row.most {
                    // The sum over no keys.
                    _ if keys == 0 => 0.0,
                    f32::NEG_INFINITY if self.zeros && !row.sum.is_nan() => 0.0,
                    f32::NEG_INFINITY => f32::NAN,
                    _ => row.sum.recip(),
                };
                row.output.iter_mut().for_each(|number| *number *= share);
            }
        }
    }

    /// Computes one query with a block of keys.
    fn one(
        &self,
        cpu: Cpu,
        row: &mut AttentionRow<'_>,
        [first, count]: [usize; 2],
        scores: &mut [f32],
    ) {
        let [_, _, size, width] = self.sizes;
        let seen = self.seen_of(row, [first, count]);
        let first = first + seen.start;
        let scores = &mut scores[..seen.len()];
        let query = self.queries.row(row.head, row.query, size);
        for (key, score) in (first..).zip(&mut *scores) {
            dot(cpu, query, self.keys.row(row.head, key, size), score);
        }
        let factor = self.softmax_weights(cpu, row, first, scores);
        scaled(cpu, factor, row.output);
        for (key, share) in (first..).zip(scores) {
            added(
                cpu,
                *share,
                self.values.row(row.head, key, width),
                row.output,
            );
        }
    }

    /// Computes several queries of a head with a packed block of keys.
    fn several(
        &self,
        cpu: Cpu,
        rows: &mut [AttentionRow<'_>],
        block: [usize; 2],
        across: usize,
        room: &mut Room,
    ) {
        let [_, _, size, width] = self.sizes;
        let queries = rows
            .iter()
            .map(|row| self.queries.row(row.head, row.query, size));
        let queries: Vec<&[f32]> = queries.collect();
        matrix::products(
            cpu,
            &queries,
            room.keys.values(),
            KEYS_PER_BLOCK,
            &mut room.scores,
        );
        let mut factors = vec![0.0; rows.len()];
        for ((row, scores), factor) in rows
            .iter_mut()
            .zip(room.scores.chunks_exact_mut(KEYS_PER_BLOCK))
            .zip(&mut factors)
        {
            let seen = self.seen_of(row, block);
            let first = block[0] + seen.start;
            *factor = self.softmax_weights(cpu, row, first, &mut scores[seen.clone()]);
            scores[..seen.start].fill(0.0);
            scores[seen.end..].fill(0.0);
        }
        let shares: Vec<&[f32]> = room
            .scores
            .chunks_exact(KEYS_PER_BLOCK)
            .take(rows.len())
            .map(|row| &row[..block[1]])
            .collect();
        matrix::products(
            cpu,
            &shares,
            room.values.values(),
            across,
            room.sums.values_mut(),
        );
        let sums = room.sums.values().chunks_exact(across);
        for ((row, sums), factor) in rows.iter_mut().zip(sums).zip(factors) {
            joined(cpu, factor, &sums[..width], row.output);
        }
    }

    /// Returns the keys of a block that a query sees.
    fn seen_of(&self, row: &AttentionRow<'_>, [first, count]: [usize; 2]) -> Range<usize> {
        self.visible.map_or(0..count, |visible| {
            visible[row.head].in_block(row.query, first, count)
        })
    }

    /// Turns the products with keys starting at `first` into weights. Returns the factor for the
    /// sums so far.
    fn softmax_weights(
        &self,
        cpu: Cpu,
        row: &mut AttentionRow<'_>,
        first: usize,
        scores: &mut [f32],
    ) -> f32 {
        let mask = self.mask.map(|mask| {
            let row = mask.row(row.head, row.query, self.sizes[1]);
            &row[first..first + scores.len()]
        });
        let mut scale = self.scale;
        if let Some(limit) = self.score_limit {
            let factor = scale / limit;
            for score in &mut *scores {
                *score = limit * (*score * factor).tanh();
            }
            scale = 1.0;
        }
        let mut factor = 0.0;
        shares(
            cpu,
            scale,
            [mask, mask.filter(|_| self.zeros)],
            scores,
            [&mut row.most, &mut row.sum, &mut factor],
        );
        factor
    }

    /// Packs keys of a head as `[size][key]` and values as `[key][width]`, both padded with zeros.
    fn pack(&self, head: usize, [first, count]: [usize; 2], across: usize, room: &mut Room) {
        let [_, _, size, width] = self.sizes;
        let packed = room.keys.values_mut();
        for key in 0..KEYS_PER_BLOCK {
            if key < count {
                let from = self.keys.row(head, first + key, size);
                for (place, number) in packed[key..].iter_mut().step_by(KEYS_PER_BLOCK).zip(from) {
                    *place = *number;
                }
            } else {
                packed
                    .iter_mut()
                    .skip(key)
                    .step_by(KEYS_PER_BLOCK)
                    .for_each(|place| *place = 0.0);
            }
        }
        for (key, to) in room
            .values
            .values_mut()
            .chunks_exact_mut(across)
            .take(count)
            .enumerate()
        {
            to[..width].copy_from_slice(self.values.row(head, first + key, width));
        }
    }
}

compiled! {
    fn dot(a: &[f32], b: &[f32], product: &mut f32) {
        let mut lanes = [0.0_f32; LANES];
        let (a, a_rest) = a.as_chunks::<LANES>();
        let (b, b_rest) = b.as_chunks::<LANES>();
        for (a, b) in a.iter().zip(b) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += a * b;
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane += a * b;
        }
        *product = lanes.iter().sum();
    }
}

compiled! {
    fn added(share: f32, values: &[f32], output: &mut [f32]) {
        for (to, value) in output.iter_mut().zip(values) {
            *to += share * value;
        }
    }
}

compiled! {
    fn scaled(factor: f32, output: &mut [f32]) {
        for to in output {
            *to *= factor;
        }
    }
}

compiled! {
    fn joined(factor: f32, sums: &[f32], output: &mut [f32]) {
        for (to, sum) in output.iter_mut().zip(sums) {
            *to = *to * factor + sum;
        }
    }
}

compiled! {
    fn shares(
        scale: f32,
        masks: [Option<&[f32]>; 2],
        scores: &mut [f32],
        state: [&mut f32; 3],
    ) {
        let [mask, hiding] = masks;
        let [most, sum, factor] = state;
        match mask {
            None => scores.iter_mut().for_each(|score| *score *= scale),
            Some(mask) => {
                for (score, mask) in scores.iter_mut().zip(mask) {
                    *score = *score * scale + mask;
                }
            }
        }
        if let Some(hiding) = hiding {
            for (score, mask) in scores.iter_mut().zip(hiding) {
                *score = if *mask == f32::NEG_INFINITY { *mask } else { *score };
            }
        }
        let mut largest = [*most; LANES];
        for scores in scores.chunks(LANES) {
            for (largest, score) in largest.iter_mut().zip(scores) {
                *largest = if *score > *largest { *score } else { *largest };
            }
        }
        let now = largest.iter().fold(*most, |most, score| most.max(*score));
        if now == f32::NEG_INFINITY {
            // No weights to compute, but NaN must not get lost.
            *sum += scores.iter().filter(|score| score.is_nan()).sum::<f32>();
            scores.fill(0.0);
            *factor = 1.0;
            return;
        }
        // The maximum is unchanged: no scaling, since `exponential` of 0 is 1 only up to rounding.
        *factor = if *most < now { exponential(*most - now) } else { 1.0 };
        *most = now;
        let mut sums = [0.0_f32; LANES];
        for scores in scores.chunks_mut(LANES) {
            for (sum, score) in sums.iter_mut().zip(scores) {
                *score = exponential(*score - now);
                *sum += *score;
            }
        }
        *sum = *sum * *factor + sums.iter().sum::<f32>();
    }
}
