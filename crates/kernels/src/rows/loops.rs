//! Loops of a row product over panels, rows and registers, the same for each kind of register.

/// Defines a module's loops over panels and rows.
///
/// `$rows` is the maximum number of rows in a tile, `$registers` the number of registers then, and
/// `$alone` the number for a single row. `$products` multiplies bytes.
macro_rules! loops {
    ($(#[$attribute:meta])* $rows:literal, $registers:literal, $alone:literal, $products:ident) => {
        use crate::rows::panels::{Bits, PanelLanes, PANEL, PanelStep};
        use crate::rows::quantize::Quantized;
        use crate::rows::work::{Inputs, Reals, RowWork};

        /// Number of registers in a panel.
        const REGISTERS: usize = PANEL / LANES;

        /// Computes panels starting at `first`.
        $(#[$attribute])*
        pub(in crate::rows) fn panels(work: &RowWork<'_>, first: usize, output: &mut [PanelLanes<f32>]) {
            let rows = work.rows;
            let each = rows.div_ceil(rows.div_ceil($rows).max(1)).max(1);
            for (panel, output) in output.chunks_exact_mut(rows.max(1)).enumerate() {
                for (part, output) in output.chunks_mut(each).enumerate() {
                    match work.bits {
                        Bits::Four => rows_of::<true>(work, first + panel, part * each, output),
                        Bits::Eight => rows_of::<false>(work, first + panel, part * each, output),
                    }
                }
            }
        }

        /// Computes rows of a panel, as many as `output` has.
        $(#[$attribute])*
        fn rows_of<const FOUR: bool>(
            work: &RowWork<'_>,
            panel: usize,
            row: usize,
            output: &mut [PanelLanes<f32>],
        ) {
            if let [output] = output {
                for register in (0..REGISTERS).step_by($alone) {
                    let output = std::array::from_mut(&mut *output);
                    tile::<FOUR, 1, $alone>(work, [panel, row, register], output);
                }
                return;
            }
            for register in (0..REGISTERS).step_by($registers) {
                let at = [panel, row, register];
                if let Ok(output) = <&mut [PanelLanes<f32>; 2]>::try_from(&mut *output) {
                    tile::<FOUR, 2, $registers>(work, at, output);
                } else if let Ok(output) = <&mut [PanelLanes<f32>; 3]>::try_from(&mut *output) {
                    tile::<FOUR, 3, $registers>(work, at, output);
                } else if let Ok(output) = <&mut [PanelLanes<f32>; 4]>::try_from(&mut *output) {
                    tile::<FOUR, 4, $registers>(work, at, output);
                } else if let Ok(output) = <&mut [PanelLanes<f32>; 5]>::try_from(&mut *output) {
                    tile::<FOUR, 5, $registers>(work, at, output);
                } else if let Ok(output) = <&mut [PanelLanes<f32>; 6]>::try_from(&mut *output) {
                    tile::<FOUR, 6, $registers>(work, at, output);
                }
            }
        }

        /// Computes `M` rows by `N` registers.
        $(#[$attribute])*
        fn tile<const FOUR: bool, const M: usize, const N: usize>(
            work: &RowWork<'_>,
            at: [usize; 3],
            output: &mut [PanelLanes<f32>; M],
        ) {
            match work.inputs {
                Inputs::Rounded(rows) => byte_tile::<FOUR, M, N>(work, rows, at, output),
                Inputs::Real(rows) => real_tile::<FOUR, M, N>(work, rows, at, output),
            }
        }

        crate::rows::byte_tiles::byte_tiles!($(#[$attribute])* $products);
        crate::rows::byte_tiles::row_dot_products!($(#[$attribute])*);
        crate::rows::real_tiles::real_tiles!($(#[$attribute])*);
    };
}

pub(super) use loops;
