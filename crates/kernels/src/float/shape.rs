//! Numbers of lanes and tile sizes for each instruction set.

use crate::Cpu;
use crate::cpu::Level;

/// The sizes of tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileShape {
    /// Numbers in a register.
    pub(super) lanes: usize,
    /// Numbers in the register for the last channels: half as many, or the same.
    half: usize,
    /// Maximum number of pixels in a tile.
    pub(super) most: usize,
}

impl TileShape {
    /// Returns the first channel and the width of each panel for channels `from..to`.
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

/// Returns the tile sizes for this instruction set.
pub(super) const fn of(cpu: Cpu) -> TileShape {
    let (lanes, half, most) = match cpu.level() {
        Level::Plain => (4, 4, 4),
        Level::Avx2 | Level::Avx2Vnni => (8, 8, 6),
        Level::Avx512 | Level::Avx512Vnni => (16, 8, 10),
        Level::Neon | Level::NeonDot | Level::NeonMatrix => (4, 4, 8),
    };
    TileShape { lanes, half, most }
}
