//! The innermost part of a product: a few pixels by one panel of output channels, held in
//! registers.

use super::packed::FloatPanel;
use crate::simd::enter;

/// Pixels that are computed together, in tiles.
pub(super) struct Strip<'a> {
    /// Slices of the input, ordered by tile, tap and pixel.
    pub(super) taps: &'a [&'a [f32]],
    /// Number of taps of a pixel.
    pub(super) count: usize,
    /// Number of pixels in all tiles.
    pub(super) pixels: usize,
    /// Range of the output.
    pub(super) range: [f32; 2],
    /// Number of elements from one pixel of the output to the next.
    pub(super) stride: usize,
    /// Number of elements of the output before the panel's first channel.
    pub(super) column: usize,
}

/// Defines the functions for one instruction set, with as many pixels in a tile as the registers
/// hold.
macro_rules! tile {
    (#[$set:meta] $registers:ident, $most:literal: $($rows:literal)*) => {
        use crate::float::packed::FloatPanel;
        use crate::float::registers::$registers::{LANES, clamp, fused, lane, load, splat, store};
        use crate::float::tile::Strip;

        /// Computes all tiles of a strip for one panel.
        #[$set]
        pub(super) fn strip(strip: &Strip<'_>, panel: FloatPanel<&[f32]>, added: Option<&[f32]>, output: &mut [f32]) {
            let two = panel.wide > LANES;
            let (mut taps, mut first) = (strip.taps, 0);
            for rows in crate::window::tiles(strip.pixels, $most) {
                let (head, tail) = taps.split_at(strip.count * rows);
                taps = tail;
                let start = first * strip.stride + strip.column;
                first += rows;
                let (output, added) = (&mut output[start..], added.map(|added| &added[start..]));
                match (rows, two) {
                    $(
                        ($rows, true) => tile::<$rows, 2>(strip, head, panel, added, output),
                        ($rows, false) => tile::<$rows, 1>(strip, head, panel, added, output),
                    )*
                    _ => unreachable!("a tile has at most {} pixels", $most),
                }
            }
        }

        /// Computes one tile of `ROWS` pixels by `WIDE` registers.
        #[$set]
        fn tile<const ROWS: usize, const WIDE: usize>(
            strip: &Strip<'_>,
            taps: &[&[f32]],
            panel: FloatPanel<&[f32]>,
            added: Option<&[f32]>,
            output: &mut [f32],
        ) {
            let (bias, mut weights) = panel.values.as_chunks::<LANES>().0.as_chunks::<WIDE>().0.split_at(1);
            let mut bases = [splat(0.0); WIDE];
            for wide in 0..WIDE {
                bases[wide] = load(&bias[0][wide]);
            }
            let mut sums = [bases; ROWS];
            for tap in taps.as_chunks::<ROWS>().0 {
                let depth = tap[0].len();
                let (here, after) = weights.split_at(depth);
                weights = after;
                let (fours, ones) = here.as_chunks::<4>();
                let mut inputs: [&[[f32; 4]]; ROWS] = [&[]; ROWS];
                for row in 0..ROWS {
                    inputs[row] = &tap[row].as_chunks::<4>().0[..fours.len()];
                }
                for (place, four) in fours.iter().enumerate() {
                    tile!(@step 0, four, inputs, place, sums);
                    tile!(@step 1, four, inputs, place, sums);
                    tile!(@step 2, four, inputs, place, sums);
                    tile!(@step 3, four, inputs, place, sums);
                }
                for (place, one) in (depth - ones.len()..depth).zip(ones) {
                    for row in 0..ROWS {
                        let input = splat(tap[row][place]);
                        for wide in 0..WIDE {
                            sums[row][wide] = fused(input, load(&one[wide]), sums[row][wide]);
                        }
                    }
                }
            }
            // Loops over the sums must be short enough to be unrolled; otherwise the sums are not
            // kept in registers.
            let (least, most) = (splat(strip.range[0]), splat(strip.range[1]));
            if added.is_none() && panel.columns == WIDE * LANES {
                let mut rest = output;
                for row in 0..ROWS {
                    let step = if row + 1 < ROWS { strip.stride } else { WIDE * LANES };
                    let (output, after) = rest.split_at_mut(step);
                    rest = after;
                    let output = output.as_chunks_mut::<LANES>().0;
                    for wide in 0..WIDE {
                        store(&mut output[wide], clamp(sums[row][wide], least, most));
                    }
                }
                return;
            }
            let mut finished = [[[0.0; LANES]; WIDE]; ROWS];
            for row in 0..ROWS {
                for wide in 0..WIDE {
                    store(&mut finished[row][wide], sums[row][wide]);
                }
            }
            for (row, finished) in finished.iter_mut().enumerate() {
                let start = row * strip.stride;
                let output = &mut output[start..][..panel.columns];
                if let Some(added) = added {
                    for (sum, added) in finished.as_flattened_mut().iter_mut().zip(&added[start..][..panel.columns]) {
                        *sum += added;
                    }
                }
                if panel.columns == WIDE * LANES {
                    for (output, sums) in output.as_chunks_mut::<LANES>().0.iter_mut().zip(finished) {
                        store(output, clamp(load(sums), least, most));
                    }
                } else {
                    for sums in finished.iter_mut() {
                        store(sums, clamp(load(sums), least, most));
                    }
                    output.copy_from_slice(&finished.as_flattened()[..panel.columns]);
                }
            }
        }
    };
    (@step $step:literal, $weights:ident, $inputs:ident, $place:ident, $sums:ident) => {
        let mut weights = [splat(0.0); WIDE];
        for wide in 0..WIDE {
            weights[wide] = load(&$weights[$step][wide]);
        }
        for row in 0..ROWS {
            let four = &$inputs[row][$place];
            for wide in 0..WIDE {
                $sums[row][wide] = lane::<$step>(four, weights[wide], $sums[row][wide]);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    tile!(#[target_feature(enable = "avx2,fma")] avx2, 6: 1 2 3 4 5 6);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::Strip;
    use crate::float::packed::FloatPanel;
    use crate::float::registers::avx512::LANES;

    mod whole {
        tile!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx512, 10: 1 2 3 4 5 6 7 8 9 10);
    }

    /// Half a register of AVX-512 is one of AVX2.
    mod half {
        tile!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx2, 10: 1 2 3 4 5 6 7 8 9 10);
    }

    /// Computes all tiles of a strip for one panel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn strip(
        strip: &Strip<'_>,
        panel: FloatPanel<&[f32]>,
        added: Option<&[f32]>,
        output: &mut [f32],
    ) {
        if panel.wide < LANES {
            half::strip(strip, panel, added, output);
        } else {
            whole::strip(strip, panel, added, output);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    tile!(#[target_feature(enable = "neon")] neon, 8: 1 2 3 4 5 6 7 8);
}

mod plain {
    tile!(#[inline(never)] plain, 4: 1 2 3 4);
}

enter! {
    /// Computes all tiles of a strip for one panel. `added` is added before clamping. `output` and
    /// `added` start at the strip's first pixel.
    fn strip(strip: &Strip<'_>, panel: FloatPanel<&[f32]>, added: Option<&[f32]>, output: &mut [f32]);
}
