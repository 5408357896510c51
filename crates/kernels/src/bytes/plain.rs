//! Byte kernels in plain Rust, for every processor.

use super::ByteLimits;
use super::dense::{BytePanel, Dense, DenseRows, Part};
use super::depthwise::{ByteDepthwise, WindowView};
use super::round_to;
use super::tiles::{
    CHANNELS, Line, TilePlace, TileTarget, blocks, chunk, dot_products, part, tiles,
};

/// Sums of 16 channels.
type Register = [i32; 16];
/// Number of registers for a line of weights.
const PARTS: usize = 1;
/// Number of lines for a word of a block.
const BLOCK_LINES: usize = 1;
/// Number of channels in a block.
const WIDTH: usize = 16;

const fn zero() -> Register {
    [0; 16]
}

const fn integers(from: &[i32; 16]) -> [Register; PARTS] {
    [*from]
}

fn weights(line: &Line) -> [[i8; 64]; PARTS] {
    [line.0.map(u8::cast_signed)]
}

fn splat<const FLIP: bool>(word: [u8; 4]) -> [[u8; 4]; 16] {
    let flip = if FLIP { 0x80 } else { 0 };
    [word.map(|byte| byte ^ flip); 16]
}

fn interleaved<const FLIP: bool>(taps: [&[u8; WIDTH]; 4]) -> [[[[u8; 4]; 16]; PARTS]; BLOCK_LINES] {
    let flip = if FLIP { 0x80 } else { 0 };
    let mut words = [[0; 4]; 16];
    for (channel, word) in words.iter_mut().enumerate() {
        *word = taps.map(|tap| tap[channel] ^ flip);
    }
    [[words]]
}

fn dot(mut sums: Register, words: [[u8; 4]; 16], weights: [i8; 64]) -> Register {
    let products = words.iter().zip(weights.as_chunks::<4>().0);
    for (sum, (word, weights)) in sums.iter_mut().zip(products) {
        let pairs = word.iter().zip(weights);
        let product: i32 = pairs.map(|(x, w)| i32::from(*x) * i32::from(*w)).sum();
        *sum = sum.wrapping_add(product);
    }
    sums
}

fn store_bytes(
    to: &mut [u8; 16],
    [sums]: [Register; PARTS],
    factors: &[f32; 16],
    limits: ByteLimits,
) {
    for ((to, sum), factor) in to.iter_mut().zip(sums).zip(factors) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "rounds on purpose; takes the low byte"
        )]
        {
            let number = round_to(sum as f32 * factor, limits.least, limits.most);
            *to = (number + limits.zero) as u8;
        }
    }
}

fn store_wide(
    to: &mut [u8; WIDTH],
    [sums]: [[Register; PARTS]; BLOCK_LINES],
    factors: &[[f32; 16]],
    limits: ByteLimits,
) {
    store_bytes(to, sums, &factors[0], limits);
}

const fn store_integers(to: &mut [i32; 16], [sums]: [Register; PARTS]) {
    *to = sums;
}

tiles!(rows: [1 2], lines: [1]);
dot_products!();
blocks!(taps: 4 [a b c d]);
