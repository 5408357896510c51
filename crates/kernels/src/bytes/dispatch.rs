//! Calls the inner loops that are compiled for the processor's instruction set.

use super::dense::{Dense, DenseRows, Part};
use super::depthwise::{ByteDepthwise, WindowView};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::plain;
use super::tiles::TileTarget;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::cpu::Level;
use crate::simd::inside;

/// Computes a part of the output for the rows of a block.
pub(super) fn block(dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>) {
    match dense.cpu.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            x86::vnni_512::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl",
            x86::pairs_512::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2Vnni => inside!(
            "avx2,fma,avxvnni",
            x86::vnni_256::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => inside!(
            "avx2,fma",
            x86::pairs_256::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "aarch64")]
        Level::NeonMatrix => inside!(
            "neon,dotprod,i8mm",
            neon::matrix::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => inside!(
            "neon,dotprod",
            neon::dot::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => inside!(
            "neon",
            neon::pairs::block,
            dense: &Dense, part: &Part, rows: &DenseRows<'_>, target: &mut TileTarget<'_>
        ),
        _ => plain::block(dense, part, rows, target),
    }
}

/// Computes the pixels of `output`, the first of which has the number `first`.
pub(super) fn pixels(
    depthwise: &ByteDepthwise,
    view: &WindowView<'_>,
    first: usize,
    output: &mut [u8],
) {
    match (depthwise.cpu.level(), depthwise.width) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512Vnni, 64) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            x86::vnni_512::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512Vnni, 32) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            x86::narrow_vnni_512::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, 64) => inside!(
            "avx512f,avx512bw,avx512dq,avx512vl",
            x86::pairs_512::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2Vnni, 32) => inside!(
            "avx2,fma,avxvnni",
            x86::vnni_256::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Avx2, 32) => inside!(
            "avx2,fma",
            x86::pairs_256::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "aarch64")]
        (Level::NeonDot | Level::NeonMatrix, 16) => inside!(
            "neon,dotprod",
            neon::dot::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        #[cfg(target_arch = "aarch64")]
        (Level::Neon, 16) => inside!(
            "neon",
            neon::pairs::pixels,
            depthwise: &ByteDepthwise, view: &WindowView<'_>, first: usize, output: &mut [u8]
        ),
        _ => plain::pixels(depthwise, view, first, output),
    }
}
