//! How many numbers a kernel's registers hold, and what that makes of channels and pixels.

use crate::kernels::Cpu;
use crate::kernels::cpu::Level;

/// What a tile is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Numbers in a register.
    pub(super) lanes: usize,
    /// Numbers in the register that the last channels may go into: half as many, or as many.
    half: usize,
    /// The most pixels.
    pub(super) most: usize,
}

impl Shape {
    /// The first channel and the width of each panel of channels `from..to`.
    pub(super) fn panels(self, from: usize, to: usize) -> impl Iterator<Item = [usize; 2]> {
        let Self { lanes, half, .. } = self;
        let mut start = from;
        std::iter::from_fn(move || {
            let wide = match to.checked_sub(start)? {
                0 => return None,
                rest if rest <= half => half,
                rest if rest <= lanes + half % lanes => lanes,
                _ => 2 * lanes,
            };
            let panel = [start, wide];
            start = to.min(start + wide);
            Some(panel)
        })
    }
}

/// What tiles are made of with these instructions.
pub(super) const fn of(cpu: Cpu) -> Shape {
    let (lanes, half, most) = match cpu.level() {
        Level::Plain => (4, 4, 4),
        Level::Avx2 | Level::Avx2Vnni => (8, 8, 6),
        Level::Avx512 | Level::Avx512Vnni => (16, 8, 10),
        Level::Neon | Level::NeonDot => (4, 4, 8),
    };
    Shape { lanes, half, most }
}
