//! The inner loops of the byte kernels: tiles of pixels by output channels, and blocks of channels
//! of a pixel.
//!
//! The macros are expanded once for each kind of register, in a module that defines the register
//! operations under fixed names. Dot products multiply the inputs of a word ([`WordForm`]) at a time,
//! so weights are stored in lines of 16 output channels by one word.
//!
//! [`WordForm`]: super::words::WordForm

/// Weights of 16 channels by a word. A register holds a whole line, half of it or a quarter.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Line(pub(super) [u8; 64]);

/// Number of output channels in a line.
pub(super) const CHANNELS: usize = 16;

/// Destination of results: whole rows, or columns of a single row.
pub(super) enum TileTarget<'a> {
    /// Rounded to bytes.
    Bytes(&'a mut [u8]),
    /// Unchanged sums.
    Sums(&'a mut [i32]),
}

/// The columns of a panel that a tile fills.
#[derive(Clone, Copy)]
pub(super) struct TilePlace {
    /// Number of elements before the tile's first.
    pub(super) start: usize,
    /// Number of elements from one row to the next.
    pub(super) stride: usize,
    /// Number of channels in the panel.
    pub(super) width: usize,
}

/// Returns the bytes of a whole block.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "must be compiled with the instructions of the surrounding loop"
)]
pub(super) fn chunk<const WIDTH: usize>(from: &[u8], at: usize) -> Option<&[u8; WIDTH]> {
    from.get(at..)?.first_chunk()
}

/// Returns the remaining bytes of a block, padded with zeros.
#[cold]
pub(super) fn part<const WIDTH: usize>(from: &[u8], at: usize) -> [u8; WIDTH] {
    let mut all = [0; WIDTH];
    let from = from.get(at..).unwrap_or_default();
    for (to, from) in all.iter_mut().zip(from) {
        *to = *from;
    }
    all
}

/// Defines tiles of dense products: `rows` are the supported tile sizes, `lines` those of panels.
macro_rules! tiles {
    ($(#[$attribute:meta])* rows: [$($rows:literal)*], lines: [$($lines:literal)*]) => {
        /// Computes these lines of a group's channels for all rows of a block.
        $(#[$attribute])*
        pub(in crate::bytes) fn block(
            dense: &Dense,
            part: &Part,
            rows: &DenseRows<'_>,
            target: &mut TileTarget<'_>,
        ) {
            for panel in dense.panels(part) {
                let mut first = 0;
                for (count, slices) in rows.tiles() {
                    let place = TilePlace {
                        start: first * part.stride + panel.column,
                        stride: part.stride,
                        width: panel.width,
                    };
                    first += count;
                    match (panel.lines, dense.flip) {
                        $(
                            ($lines, false) => by_rows::<$lines, false>(dense, &panel, (count, slices), place, target),
                            ($lines, true) => by_rows::<$lines, true>(dense, &panel, (count, slices), place, target),
                        )*
                        _ => {}
                    }
                }
            }
        }

        $(#[$attribute])*
        fn by_rows<const LINES: usize, const FLIP: bool>(
            dense: &Dense,
            panel: &BytePanel<'_>,
            (count, slices): (usize, &[&[[u8; 4]]]),
            place: TilePlace,
            target: &mut TileTarget<'_>,
        ) {
            match count {
                $($rows => tile::<$rows, LINES, FLIP>(dense, panel, slices, place, target),)*
                _ => {}
            }
        }

        $(#[$attribute])*
        fn tile<const ROWS: usize, const LINES: usize, const FLIP: bool>(
            dense: &Dense,
            panel: &BytePanel<'_>,
            slices: &[&[[u8; 4]]],
            place: TilePlace,
            target: &mut TileTarget<'_>,
        ) {
            let mut finished = [[[0; CHANNELS]; LINES]; ROWS];
            products::<ROWS, LINES, FLIP>(dense, panel, slices, &mut finished);
            let width = place.width.min(LINES * CHANNELS);
            for (row, sums) in finished.iter().enumerate() {
                let start = place.start + row * place.stride;
                match target {
                    TileTarget::Bytes(bytes) => {
                        let (whole, rest) = bytes[start..start + width].as_chunks_mut();
                        let mut lines = sums.iter().zip(panel.factors);
                        for (to, (sums, factors)) in whole.iter_mut().zip(&mut lines) {
                            store_bytes(to, integers(sums), factors, dense.limits);
                        }
                        if !rest.is_empty() && let Some((sums, factors)) = lines.next() {
                            let mut all = [0; CHANNELS];
                            store_bytes(&mut all, integers(sums), factors, dense.limits);
                            rest.copy_from_slice(&all[..rest.len()]);
                        }
                    }
                    TileTarget::Sums(numbers) => {
                        numbers[start..start + width].copy_from_slice(&sums.as_flattened()[..width]);
                    }
                }
            }
        }
    };
}
pub(super) use tiles;

/// Defines the sums of tiles by dot products.
macro_rules! dot_products {
    ($(#[$attribute:meta])*) => {
        $(#[$attribute])*
        #[inline]
        fn products<const ROWS: usize, const LINES: usize, const FLIP: bool>(
            dense: &Dense,
            panel: &BytePanel<'_>,
            slices: &[&[[u8; 4]]],
            finished: &mut [[[i32; CHANNELS]; LINES]; ROWS],
        ) {
            let mut start = [[zero(); PARTS]; LINES];
            for line in 0..LINES {
                start[line] = integers(&panel.bias[line]);
            }
            let mut sums = [start; ROWS];
            let steps = dense.steps;
            let taps = slices.chunks_exact(ROWS).zip(panel.weights.chunks_exact(steps * LINES));
            for (rows, lines) in taps {
                let inputs = panel.offset..panel.offset + steps;
                let mut words = [&rows[0][inputs.clone()]; ROWS];
                for row in 1..ROWS {
                    words[row] = &rows[row][inputs.clone()];
                }
                for (step, lines) in lines.as_chunks::<LINES>().0.iter().enumerate() {
                    let mut packed = [weights(&lines[0]); LINES];
                    for line in 1..LINES {
                        packed[line] = weights(&lines[line]);
                    }
                    for row in 0..ROWS {
                        let word = splat::<FLIP>(words[row][step]);
                        for line in 0..LINES {
                            for part in 0..PARTS {
                                sums[row][line][part] = dot(sums[row][line][part], word, packed[line][part]);
                            }
                        }
                    }
                }
            }
            // Arrays indexed by a loop that is not unrolled live in memory; the sums would then be
            // stored in each step.
            for row in 0..ROWS {
                for line in 0..LINES {
                    store_integers(&mut finished[row][line], sums[row][line]);
                }
            }
        }
    };
}
pub(super) use dot_products;

/// Defines blocks of channels for depthwise convolutions; `taps` are those of a word.
macro_rules! blocks {
    ($(#[$attribute:meta])* taps: $count:literal [$($tap:ident)*]) => {
        /// Computes the pixels of a chunk; `taps` locates the window of a pixel in the input.
        $(#[$attribute])*
        pub(in crate::bytes) fn pixels(
            depthwise: &ByteDepthwise,
            view: &WindowView<'_>,
            first: usize,
            output: &mut [u8],
        ) {
            if depthwise.flip {
                by_sign::<true>(depthwise, view, first, output);
            } else {
                by_sign::<false>(depthwise, view, first, output);
            }
        }

        $(#[$attribute])*
        fn by_sign<const FLIP: bool>(
            depthwise: &ByteDepthwise,
            view: &WindowView<'_>,
            first: usize,
            output: &mut [u8],
        ) {
            let channels = depthwise.channels;
            let pixels = output.len() / channels;
            let mut taps: Vec<&[u8]> = vec![view.zeros; depthwise.steps * $count];
            let mut pixel = 0;
            while pixel < pixels {
                let run = view.taps(depthwise, first + pixel, &mut taps).min(pixels - pixel);
                for step in (0..run).step_by(depthwise.together) {
                    let start = (pixel + step) * channels;
                    let end = start + depthwise.together.min(run - step) * channels;
                    let moved = step * view.window.stride[1] * channels;
                    for block in 0..channels.div_ceil(WIDTH) {
                        let sums = windowed::<FLIP>(depthwise, &taps, (block, moved));
                        let factors = &depthwise.factors[block * BLOCK_LINES..][..BLOCK_LINES];
                        let at = block * WIDTH;
                        // Excess elements belong to pixels that are computed later.
                        if let Some(to) = output[start + at..].first_chunk_mut() {
                            store_wide(to, sums, factors, depthwise.limits);
                        } else {
                            let mut all = [0; WIDTH];
                            store_wide(&mut all, sums, factors, depthwise.limits);
                            let to = &mut output[start + at..end];
                            to.copy_from_slice(&all[..to.len()]);
                        }
                    }
                }
                pixel += run;
            }
        }

        $(#[$attribute])*
        #[inline]
        fn windowed<const FLIP: bool>(
            depthwise: &ByteDepthwise,
            taps: &[&[u8]],
            (block, moved): (usize, usize),
        ) -> [[Register; PARTS]; BLOCK_LINES] {
            let at = block * WIDTH + moved;
            let bias = &depthwise.bias[block * BLOCK_LINES..][..BLOCK_LINES];
            let mut sums = [[zero(); PARTS]; BLOCK_LINES];
            for line in 0..BLOCK_LINES {
                sums[line] = integers(&bias[line]);
            }
            let lines = &depthwise.lines[block * depthwise.steps * BLOCK_LINES..];
            let steps = taps.as_chunks::<$count>().0.iter().zip(lines.as_chunks::<BLOCK_LINES>().0);
            for (taps, lines) in steps {
                let [$($tap),*] = taps;
                let words = if let ($(Some($tap)),*) = ($(chunk($tap, at)),*) {
                    interleaved::<FLIP>([$($tap),*])
                } else {
                    let [$($tap),*] = [$(part($tap, at)),*];
                    interleaved::<FLIP>([$(&$tap),*])
                };
                for line in 0..BLOCK_LINES {
                    let weights = weights(&lines[line]);
                    for part in 0..PARTS {
                        sums[line][part] = dot(sums[line][part], words[line][part], weights[part]);
                    }
                }
            }
            sums
        }
    };
}
pub(super) use blocks;
