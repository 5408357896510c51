//! Tests against attention by its definition.

use proptest::prelude::*;

use super::{Attention, HeadRows, VisibleKeys};
use crate::{Cpu, Split};

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| u16::try_from((at * 7919 + seed * 104_729) % 2003).unwrap_or(0);
    (0..count)
        .map(|at| f32::from(number(at)) / 1000.0 - 1.0)
        .collect()
}

fn small(number: usize) -> i64 {
    i64::try_from(number).expect("a small number")
}

/// Attention by its definition, in double precision.
fn defined(of: &Attention<'_>, [head, query]: [usize; 2]) -> Vec<f64> {
    let [_, keys, size, width] = of.sizes;
    let seen = of.visible.map_or(0..keys, |visible| {
        let VisibleKeys { first, end, most } = visible[head];
        let moved = |key: i64| usize::try_from(key + small(query)).unwrap_or(0);
        let end = moved(end).min(most).min(keys);
        moved(first).min(end)..end
    });
    let scores = seen.clone().map(|key| {
        let pairs = of
            .queries
            .row(head, query, size)
            .iter()
            .zip(of.keys.row(head, key, size));
        let product: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let mask = of.mask.map_or(0.0, |mask| mask.row(head, query, keys)[key]);
        let score = product * f64::from(of.scale);
        let limited = of.score_limit.map(f64::from);
        limited.map_or(score, |limit| limit * (score / limit).tanh()) + f64::from(mask)
    });
    let scores: Vec<f64> = scores.collect();
    let sink = of.sinks.map(|sinks| f64::from(sinks[head]));
    let most = scores
        .iter()
        .copied()
        .chain(sink)
        .fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![if of.zeros { 0.0 } else { f64::NAN }; width];
    }
    let shares: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = shares
        .iter()
        .chain(&sink.map(|sink| (sink - most).exp()))
        .sum();
    let of_column = |column: usize| {
        let pairs = seen.clone().zip(&shares);
        pairs
            .map(|(key, share)| share / sum * f64::from(of.values.row(head, key, width)[column]))
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
        masked: bool, hidden in 0..5_usize, causal: bool, window in 0..40_i64, limited: bool, sink: bool, zeros: bool, beside: bool, threads in 1..3_usize,
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
        let last = small(keys) - small(queries);
        let visible = VisibleKeys { first: last - window, end: last + 1, most: keys - seed % 2 };
        let visible = vec![visible; heads];
        let sinks: Vec<f32> = numbers(heads, seed + 4);
        let of = Attention {
            queries: HeadRows { elements: &of_queries, starts: &q, stride: stride(size) },
            keys: HeadRows { elements: &of_keys, starts: &k, stride: stride(size) },
            values: HeadRows { elements: &of_values, starts: &v, stride: stride(width) },
            mask: masked.then_some(HeadRows { elements: &of_mask, starts: &mask, stride: keys }),
            sizes: [queries, keys, size, width],
            scale: 0.3,
            score_limit: limited.then_some(0.4),
            visible: causal.then_some(&visible),
            sinks: sink.then_some(&sinks),
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
            score_limit: None,
            visible: None,
            sinks: None,
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
            score_limit: None,
            visible: None,
            sinks: None,
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
