//! Products of quantised rows with low-bit weights, followed by float32 scaling.
//!
//! The code here is shared by all kinds of registers; `levels.rs` and `neon.rs` define the
//! instructions.

/// Defines products of bytes. The surrounding module defines `Ints`, `Floats`, their `LANES`, and
/// functions on them; `$products` returns the sums.
macro_rules! byte_tiles {
    ($(#[$attribute:meta])* $products:ident) => {
        /// Multiplies `M` quantised rows by `N` registers of weights.
        $(#[$attribute])*
        fn byte_tile<const FOUR: bool, const M: usize, const N: usize>(
            work: &RowWork<'_>,
            rows: &Quantized,
            [panel, row, register]: [usize; 3],
            output: &mut [PanelLanes<f32>; M],
        ) {
            let (groups, octets) = (work.sizes.groups(), work.sizes.octets());
            let pairs = octets * pairs_of_octet::<FOUR>();
            let offset = offset(work.bits);
            let of_rows = &rows.steps[row..row + M];
            let mut zeros = [ints(0); M];
            for m in 0..M {
                zeros[m] = ints(-of_rows[m].zero());
            }
            let mut totals = [[floats(0.0); N]; M];
            if groups > 1 {
                let weighted = &work.panels.weighted[panel];
                for m in 0..M {
                    for n in 0..N {
                        totals[m][n] = multiply(real(zeros[m]), read(weighted, register + n));
                    }
                }
            }
            for group in 0..groups {
                let mut inputs: [&[[i32; 2]]; M] = [&[]; M];
                let mut sums = [[ints(0); N]; M];
                for m in 0..M {
                    let at = (row + m) * groups + group;
                    inputs[m] = &rows.pairs[at * pairs..(at + 1) * pairs];
                    sums[m] = [ints(rows.sums[at].wrapping_mul(-offset)); N];
                }
                let at = panel * groups + group;
                let steps = if FOUR { octets } else { 2 * octets };
                let steps = &work.panels.steps[at * steps..(at + 1) * steps];
                sums = $products::<FOUR, M, N>(steps, register, inputs, sums);
                let scales = &work.panels.scales[at];
                if groups > 1 {
                    for m in 0..M {
                        for n in 0..N {
                            let scale = read(scales, register + n);
                            totals[m][n] = multiply_add(real(sums[m][n]), scale, totals[m][n]);
                        }
                    }
                    continue;
                }
                let of_weights = &work.panels.sums[panel];
                for m in 0..M {
                    let step = floats(of_rows[m].step_size());
                    for n in 0..N {
                        let zero = multiply_ints(zeros[m], read_ints(of_weights, register + n));
                        let sum = multiply(real(add_ints(sums[m][n], zero)), step);
                        let bias = read(&work.panels.bias[panel], register + n);
                        let sum = multiply_add(sum, read(scales, register + n), bias);
                        write(&mut output[m], register + n, sum);
                    }
                }
            }
            if groups > 1 {
                for m in 0..M {
                    let step = floats(of_rows[m].step_size());
                    for n in 0..N {
                        let bias = read(&work.panels.bias[panel], register + n);
                        let sum = multiply_add(totals[m][n], step, bias);
                        write(&mut output[m], register + n, sum);
                    }
                }
            }
        }
    };
}
pub(super) use byte_tiles;

/// Defines the inputs of dot products that multiply bytes.
macro_rules! inputs_of_bytes {
    ($(#[$attribute:meta])*) => {
        /// Four inputs.
        type Signed = Ints;

        /// Returns the number of pairs of integers that eight inputs are packed into.
        const fn pairs_of_octet<const FOUR: bool>() -> usize {
            1
        }

        /// Returns eight inputs of a row.
        #[inline]
        $(#[$attribute])*
        fn inputs_of<const FOUR: bool>(row: &[[i32; 2]], octet: usize) -> [Signed; 2] {
            let [a, b] = row[octet];
            [ints(a), ints(b)]
        }
    };
}
pub(super) use inputs_of_bytes;

/// Defines the sums of tiles by dot products.
macro_rules! row_dot_products {
    ($(#[$attribute:meta])*) => {
        /// Returns the rows' first elements as slices of the same length.
        #[inline]
        $(#[$attribute])*
        fn equally_long<const M: usize>(
            mut inputs: [&[[i32; 2]]; M],
            pairs: usize,
        ) -> [&[[i32; 2]]; M] {
            for m in 0..M {
                inputs[m] = &inputs[m][..pairs];
            }
            inputs
        }

        /// Adds the products of a group's inputs and weights.
        $(#[$attribute])*
        #[inline]
        fn dot_products<const FOUR: bool, const M: usize, const N: usize>(
            steps: &[PanelStep],
            register: usize,
            inputs: [&[[i32; 2]]; M],
            mut sums: [[Ints; N]; M],
        ) -> [[Ints; N]; M] {
            // One row has few sums: the two halves of each group of eight are summed separately.
            let mut others = [[ints(0); N]; M];
            let (pairs, _) = steps.as_chunks::<2>();
            let octets = if FOUR { steps.len() } else { pairs.len() };
            let inputs = equally_long(inputs, octets * pairs_of_octet::<FOUR>());
            for octet in 0..octets {
                let (mut first, mut second) = ([ints(0); N], [ints(0); N]);
                for n in 0..N {
                    if FOUR {
                        let weights = weights(&steps[octet], register + n);
                        (first[n], second[n]) = (low(weights), high(weights));
                    } else {
                        let [a, b] = &pairs[octet];
                        (first[n], second[n]) =
                            (weights(a, register + n), weights(b, register + n));
                    }
                }
                for m in 0..M {
                    let [a, b] = inputs_of::<FOUR>(inputs[m], octet);
                    for n in 0..N {
                        if FOUR {
                            sums[m][n] = dot_small(sums[m][n], first[n], a);
                        } else {
                            sums[m][n] = dot(sums[m][n], first[n], a);
                        }
                        let other = if M == 1 { &mut others[m][n] } else { &mut sums[m][n] };
                        *other = if FOUR {
                            dot_small(*other, second[n], b)
                        } else {
                            dot(*other, second[n], b)
                        };
                    }
                }
            }
            if M == 1 {
                for n in 0..N {
                    sums[0][n] = add_ints(sums[0][n], others[0][n]);
                }
            }
            sums
        }
    };
}
pub(super) use row_dot_products;
