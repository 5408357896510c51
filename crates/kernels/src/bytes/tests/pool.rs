//! Pooling against plain loops.

use proptest::prelude::*;

use super::elementwise::{byte, grids, steps};
use super::{bytes, number, on_threads, windows};
use crate::bytes::Sign;
use crate::bytes::elementwise::{Grid, IntegerRange};
use crate::bytes::pool::{self, CountedTaps, Mean, MeanRounding};
use crate::window::{Window, WindowPositions};
use crate::{Cpu, Split};

/// The part of an image that the window of an output pixel covers.
struct CoveredPart {
    /// Numbers of the covered input pixels.
    pixels: Vec<usize>,
    /// Number of taps on the image or its padding.
    padded: usize,
}

/// Computed tap by tap; `after` is the padding below and on the right.
fn view(
    (window, placed): (&Window, &WindowPositions),
    after: [usize; 2],
    pixel: usize,
) -> CoveredPart {
    let [image, row, column] = placed.pixel(pixel);
    let mut view = CoveredPart {
        pixels: Vec::new(),
        padded: 0,
    };
    for tap in 0..window.taps() {
        let taps = [tap / window.kernel[1], tap % window.kernel[1]];
        let place = [0, 1].map(|axis| {
            [row, column][axis] * window.stride[axis] + taps[axis] * window.dilation[axis]
        });
        let all = |axis: usize| placed.before[axis] + placed.input[axis] + after[axis];
        view.padded += usize::from((0..2).all(|axis| place[axis] < all(axis)));
        let [Some(y), Some(x)] = [0, 1].map(|axis| {
            let place = place[axis].checked_sub(placed.before[axis])?;
            Some(place).filter(|place| *place < placed.input[axis])
        }) else {
            continue;
        };
        view.pixels
            .push((image * placed.input[0] + y) * placed.input[1] + x);
    }
    view
}

#[expect(clippy::cast_precision_loss, reason = "few pixels")]
fn averaged(mean: &Mean, sum: i32, count: usize) -> u8 {
    let (sum, count) = (sum as f32, count.max(1) as f32);
    let (scale, to) = (mean.from.scale, (mean.to, mean.range));
    match mean.rounding {
        MeanRounding::Fused => byte(to, sum * (scale / (mean.to.scale * count)), true),
        MeanRounding::Real => byte(to, sum * scale / count / mean.to.scale, false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pooling_is_exact(
        (window, placed) in windows(),
        after in [0_usize..=3, 0..=3],
        channels in 1_usize..=70,
        from in grids(),
        to in grids(),
        seed: u64,
    ) {
        let [height, width] = placed.input;
        let input = bytes(seed, placed.batch * height * width * channels);
        let pixels = placed.batch * placed.output[0] * placed.output[1];
        let windows = (&window, &placed);
        let views: Vec<CoveredPart> = (0..pixels).map(|pixel| view(windows, after, pixel)).collect();
        let of_channel = |at: usize| {
            let pixels = views[at / channels].pixels.iter();
            pixels.map(move |pixel| pixel * channels + at % channels)
        };
        let least = from.0.sign.byte(from.0.sign.range().0);
        let largest: Vec<u8> = (0..pixels * channels).map(|at| {
            let seen = of_channel(at).map(|at| input[at]);
            seen.max_by_key(|byte| number(from.0.sign, *byte)).unwrap_or(least)
        }).collect();
        let sums: Vec<i32> = (0..pixels * channels)
            .map(|at| of_channel(at).map(|at| steps(from.0, input[at])).sum())
            .collect();
        for cpu in Cpu::all() {
            on_threads(|split| {
                let mut output = vec![7; pixels * channels];
                pool::max_pool(cpu, from.0.sign, windows, channels, &input, &mut output, split).expect("a pool");
                assert!(output == largest, "{:?} differs", cpu.level());
                for rounding in [MeanRounding::Fused, MeanRounding::Real] {
                    let mean = Mean { from: from.0, to: to.0, range: to.1, rounding };
                    for counted in [CountedTaps::Pixels, CountedTaps::Padded(after)] {
                        output.fill(7);
                        mean.of_windows(cpu, windows, (channels, counted), &input, &mut output, split)
                            .expect("means");
                        let expected = sums.iter().enumerate().map(|(at, sum)| {
                            let view = &views[at / channels];
                            let count = match counted {
                                CountedTaps::Pixels => view.pixels.len(),
                                CountedTaps::Padded(_) => view.padded,
                            };
                            averaged(&mean, *sum, count)
                        });
                        assert!(output.iter().copied().eq(expected), "{:?} differs", cpu.level());
                    }
                    let mut output = vec![7; placed.batch * channels];
                    let sizes = [placed.batch, height * width, channels];
                    mean.of_images(cpu, sizes, &input, &mut output, split).expect("means");
                    for (at, found) in output.iter().enumerate() {
                        let image = &input[at / channels * height * width * channels..];
                        let pixels = image.chunks_exact(channels).take(height * width);
                        let sum = pixels.map(|pixel| steps(from.0, pixel[at % channels])).sum();
                        assert_eq!(*found, averaged(&mean, sum, height * width));
                    }
                }
            });
        }
    }
}

#[test]
fn sizes_that_are_none_are_told() {
    let grid = Grid {
        sign: Sign::Unsigned,
        scale: 1.0,
        zero_point: 0,
    };
    let mean = Mean {
        from: grid,
        to: grid,
        range: IntegerRange::whole(grid.sign),
        rounding: MeanRounding::Real,
    };
    let placed = WindowPositions {
        batch: 1,
        input: [2, 2],
        output: [1, 1],
        before: [0; 2],
    };
    let of = |kernel, placed: WindowPositions, input: &[u8]| {
        let window = Window {
            kernel,
            ..Window::PIXEL
        };
        let mut output = vec![0; placed.batch * placed.output.iter().product::<usize>()];
        let counted = (1, CountedTaps::Pixels);
        let windows = (&window, &placed);
        let made = mean.of_windows(Cpu::PLAIN, windows, counted, input, &mut output, Split::ONE);
        made.map(|()| output)
    };
    assert_eq!(of([2, 2], placed, &[1, 2, 3, 5]), Ok(vec![3]));
    assert!(of([0, 2], placed, &[1, 2, 3, 5]).is_err());
    assert!(of([1 << 10, 1 << 10], placed, &[1, 2, 3, 5]).is_err());
    assert!(of([2, 2], placed, &[1, 2, 3]).is_err());
    let empty = WindowPositions { batch: 0, ..placed };
    assert_eq!(of([2, 2], empty, &[]), Ok(Vec::new()));
    let nothing = WindowPositions {
        input: [0, 2],
        before: [1, 0],
        ..placed
    };
    assert_eq!(of([2, 2], nothing, &[]), Ok(vec![0]));
}
