//! Scaled dot-product attention: `softmax(queries · keysᵀ · scale + mask) · values` for each head.
//!
//! Only the scores of one block of keys are stored at a time. The softmax is updated with each
//! block: when a larger score appears, the sums so far are scaled down.

use super::activate::exponential;
use super::packed::AlignedNumbers;
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
    fn row(&self, head: usize, row: usize, width: usize) -> &'a [f32] {
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
    /// Number of keys that the first query sees. Each later query sees one more. `None` if all keys
    /// are visible.
    pub first_visible: Option<usize>,
    /// Whether a query without visible keys, or with only scores of -∞, returns zeros instead of
    /// NaN.
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
        let count = self.seen_of(row, [first, count]);
        let scores = &mut scores[..count];
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
            *factor = self.softmax_weights(cpu, row, block[0], &mut scores[..seen]);
            scores[seen..].fill(0.0);
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

    /// Returns the number of keys in a block that a query sees.
    fn seen_of(&self, row: &AttentionRow<'_>, [first, count]: [usize; 2]) -> usize {
        let seen = self
            .first_visible
            .map(|seen| (seen + row.query).saturating_sub(first));
        seen.map_or(count, |seen| seen.min(count))
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
        let mut factor = 0.0;
        shares(
            cpu,
            self.scale,
            mask,
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
        mask: Option<&[f32]>,
        scores: &mut [f32],
        state: [&mut f32; 3],
    ) {
        let [most, sum, factor] = state;
        match mask {
            None => scores.iter_mut().for_each(|score| *score *= scale),
            Some(mask) => {
                for (score, mask) in scores.iter_mut().zip(mask) {
                    *score = *score * scale + mask;
                }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Attention, HeadRows};
    use crate::{Cpu, Split};

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |at: usize| u16::try_from((at * 7919 + seed * 104_729) % 2003).unwrap_or(0);
        (0..count)
            .map(|at| f32::from(number(at)) / 1000.0 - 1.0)
            .collect()
    }

    /// Attention by its definition, in double precision.
    fn defined(of: &Attention<'_>, [head, query]: [usize; 2]) -> Vec<f64> {
        let [_, keys, size, width] = of.sizes;
        let seen = of
            .first_visible
            .map_or(keys, |seen| (seen + query).min(keys));
        let scores = (0..seen).map(|key| {
            let pairs = of
                .queries
                .row(head, query, size)
                .iter()
                .zip(of.keys.row(head, key, size));
            let product: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let mask = of.mask.map_or(0.0, |mask| mask.row(head, query, keys)[key]);
            product * f64::from(of.scale) + f64::from(mask)
        });
        let scores: Vec<f64> = scores.collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return vec![if of.zeros { 0.0 } else { f64::NAN }; width];
        }
        let shares: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = shares.iter().sum();
        let of_column = |column: usize| {
            let pairs = shares.iter().enumerate();
            pairs
                .map(|(key, share)| {
                    share / sum * f64::from(of.values.row(head, key, width)[column])
                })
                .sum()
        };
        (0..width).map(of_column).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn it_is_what_its_definition_says(
            heads in 1..4_usize, queries in 1..30_usize, keys in prop_oneof![1..40_usize, 100..300_usize],
            size in 1..40_usize, width in 1..70_usize, seed in 0..1000_usize,
            masked: bool, hidden in 0..5_usize, causal: bool, zeros: bool, beside: bool, threads in 1..3_usize,
        ) {
            let (of_queries, of_keys) = (numbers(heads * queries * size, seed), numbers(heads * keys * size, seed + 1));
            let of_values = numbers(heads * keys * width, seed + 2);
            let mut of_mask = numbers(heads * queries * keys, seed + 3);
            for (at, number) in of_mask.iter_mut().enumerate() {
                // Some queries see no key, some keys are hidden from all queries.
                if hidden > 0 && (at / keys % 5 == hidden || at % keys % 3 == hidden) {
                    *number = f32::NEG_INFINITY;
                }
            }
            // Heads one after the other, or next to each other in each row.
            let starts = |rows: usize, width: usize| -> Vec<usize> {
                (0..heads).map(|head| if beside { head * width } else { head * rows * width }).collect()
            };
            let stride = |width: usize| if beside { heads * width } else { width };
            let [q, k, v] = [starts(queries, size), starts(keys, size), starts(keys, width)];
            let mask: Vec<usize> = (0..heads).map(|head| head * queries * keys).collect();
            let of = Attention {
                queries: HeadRows { elements: &of_queries, starts: &q, stride: stride(size) },
                keys: HeadRows { elements: &of_keys, starts: &k, stride: stride(size) },
                values: HeadRows { elements: &of_values, starts: &v, stride: stride(width) },
                mask: masked.then_some(HeadRows { elements: &of_mask, starts: &mask, stride: keys }),
                sizes: [queries, keys, size, width],
                scale: 0.3,
                first_visible: causal.then_some(keys.saturating_sub(queries)),
                zeros,
            };
            let mut places: Vec<[usize; 2]> =
                (0..heads).flat_map(|head| (0..queries).map(move |query| [head, query])).collect();
            if beside {
                places.sort_by_key(|[_, query]| *query);
            }
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            for cpu in Cpu::all() {
                let mut output = vec![7.0; places.len() * width];
                let done = pool.install(|| of.run(cpu, &places, &mut output, Split::current()));
                prop_assert_eq!(done, Ok(()));
                for (found, place) in output.chunks_exact(width).zip(&places) {
                    for (found, wanted) in found.iter().zip(defined(&of, *place)) {
                        let is_same = (f64::from(*found) - wanted).abs() < 1e-5 || found.is_nan() && wanted.is_nan();
                        prop_assert!(is_same, "{cpu:?} {place:?}: {found} and not {wanted}");
                    }
                }
            }
        }
    }

    /// NaN in a visible query or value affects the result.
    #[test]
    fn what_is_no_number_is_not_lost() {
        for (queries, broken) in [(1, 0), (8, 0), (1, 1), (8, 1), (1, 2), (8, 2)] {
            let mut of = [vec![0.5; queries * 3], vec![0.5; 5 * 3], vec![0.5; 5 * 2]];
            let last = of[broken].len() - 1;
            of[broken][last] = f32::NAN;
            let lines = |at: usize, stride| HeadRows {
                elements: &of[at],
                starts: &[0],
                stride,
            };
            let attention = Attention {
                queries: lines(0, 3),
                keys: lines(1, 3),
                values: lines(2, 2),
                mask: None,
                sizes: [queries, 5, 3, 2],
                scale: 1.0,
                first_visible: None,
                zeros: true,
            };
            let places: Vec<[usize; 2]> = (0..queries).map(|query| [0, query]).collect();
            for cpu in Cpu::all() {
                let mut output = vec![0.0; queries * 2];
                attention
                    .run(cpu, &places, &mut output, Split::ONE)
                    .expect("lengths that fit");
                assert!(
                    output[queries * 2 - 1].is_nan(),
                    "{cpu:?} {queries} {broken}"
                );
                assert_eq!(
                    output[0].is_nan(),
                    broken == 1 || broken == 0 && queries == 1,
                    "{broken}"
                );
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let numbers = [1.0; 6];
        let lines = |stride| HeadRows {
            elements: &numbers,
            starts: &[0],
            stride,
        };
        let run = |stride, sizes: [usize; 4], places: &[[usize; 2]]| {
            let of = Attention {
                queries: lines(3),
                keys: lines(stride),
                values: lines(stride),
                mask: None,
                sizes,
                scale: 1.0,
                first_visible: None,
                zeros: false,
            };
            of.run(Cpu::chosen(), places, &mut [0.0; 3], Split::ONE)
        };
        assert_eq!(run(3, [2, 2, 3, 3], &[[0, 1]]), Ok(()));
        assert_eq!(run(3, [2, 0, 3, 3], &[[0, 1]]), Ok(()));
        assert!(run(4, [2, 2, 3, 3], &[[0, 1]]).is_err());
        assert!(run(3, [2, 3, 3, 3], &[[0, 1]]).is_err());
        assert!(run(usize::MAX, [2, 2, 3, 3], &[[0, 1]]).is_err());
        assert!(run(3, [2, 2, 3, 3], &[[0, 2]]).is_err());
        assert!(run(3, [2, 2, 3, 3], &[[1, 0]]).is_err());
        assert!(run(3, [2, 2, 3, 3], &[]).is_err());
    }
}
