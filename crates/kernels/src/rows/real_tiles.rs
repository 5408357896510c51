//! Products of float32 rows with low-bit weights, which are converted to floats only in registers.
//!
//! The code here is shared by all kinds of registers; `levels.rs` and `neon.rs` define the
//! instructions.

/// Defines products of real numbers. The surrounding module defines `Ints`, `Floats`, their
/// `LANES`, and functions on them.
macro_rules! real_tiles {
    ($(#[$attribute:meta])*) => {
        /// Multiplies `M` float32 rows by `N` registers of weights.
        $(#[$attribute])*
        fn real_tile<const FOUR: bool, const M: usize, const N: usize>(
            work: &RowWork<'_>,
            rows: &Reals<'_>,
            [panel, row, register]: [usize; 3],
            output: &mut [PanelLanes<f32>; M],
        ) {
            let (groups, group) = (work.sizes.groups(), work.sizes.group);
            let offset = offset_of(work.bits);
            let mut totals = [[floats(0.0); N]; M];
            for m in 0..M {
                for n in 0..N {
                    totals[m][n] = read(&work.panels.bias[panel], register + n);
                }
            }
            for at in 0..groups {
                let mut inputs: [&[[f32; 8]]; M] = [&[]; M];
                let mut sums = [floats(0.0); M];
                for m in 0..M {
                    let of_row = (row + m) * groups + at;
                    let values = &rows.values[of_row * group..(of_row + 1) * group];
                    inputs[m] = values.as_chunks().0;
                    sums[m] = floats(-rows.sums[of_row]);
                }
                let at = panel * groups + at;
                let steps = work.sizes.octets() * if FOUR { 1 } else { 2 };
                let steps = &work.panels.steps[at * steps..(at + 1) * steps];
                let products = real_products::<FOUR, M, N>(steps, register, inputs);
                for n in 0..N {
                    let scale = read(&work.panels.scales[at], register + n);
                    let zero = rows.zeros.get(at).map_or(floats(offset), |zeros| {
                        read_bytes(zeros, register + n)
                    });
                    for m in 0..M {
                        let sum = multiply_add(zero, sums[m], products[m][n]);
                        totals[m][n] = multiply_add(sum, scale, totals[m][n]);
                    }
                }
            }
            for m in 0..M {
                for n in 0..N {
                    write(&mut output[m], register + n, totals[m][n]);
                }
            }
        }

        /// Returns the offset added to weights.
        fn offset_of(bits: Bits) -> f32 {
            match bits {
                Bits::Four => 8.0,
                Bits::Eight => 128.0,
            }
        }

        /// Loads a register of unsigned bytes.
        #[inline]
        $(#[$attribute])*
        fn read_bytes(bytes: &PanelLanes<u8>, at: usize) -> Floats {
            let mut lanes = [0.0; PANEL];
            for (lane, byte) in lanes.iter_mut().zip(bytes) {
                *lane = f32::from(*byte);
            }
            read(&lanes, at)
        }

        /// Computes products of a group's inputs and weights; the weights are unsigned.
        $(#[$attribute])*
        fn real_products<const FOUR: bool, const M: usize, const N: usize>(
            steps: &[PanelStep],
            register: usize,
            inputs: [&[[f32; 8]]; M],
        ) -> [[Floats; N]; M] {
            // One row has few sums: those of even and odd inputs are kept separate.
            let mut sums = [[[floats(0.0); N]; M]; 2];
            let (pairs, _) = steps.as_chunks::<2>();
            let octets = if FOUR { steps.len() } else { pairs.len() };
            for octet in 0..octets {
                let (mut first, mut second) = ([ints(0); N], [ints(0); N]);
                for n in 0..N {
                    if FOUR {
                        first[n] = weights(&steps[octet], register + n);
                    } else {
                        let [a, b] = &pairs[octet];
                        first[n] = weights(a, register + n);
                        second[n] = weights(b, register + n);
                    }
                }
                let mut numbers = [&[0.0; 8]; M];
                for m in 0..M {
                    numbers[m] = &inputs[m][octet];
                }
                for input in 0..8 {
                    let half = if M == 1 { input % 2 } else { 0 };
                    let byte = [0, 8, 16, 24][input % 4];
                    for n in 0..N {
                        let weight = if FOUR {
                            part(first[n], if input < 4 { byte } else { byte + 4 }, 15)
                        } else {
                            part(if input < 4 { first[n] } else { second[n] }, byte, 255)
                        };
                        for m in 0..M {
                            let x = floats(numbers[m][input]);
                            sums[half][m][n] = multiply_add(weight, x, sums[half][m][n]);
                        }
                    }
                }
            }
            let [mut even, odd] = sums;
            if M == 1 {
                for n in 0..N {
                    even[0][n] = multiply_add(odd[0][n], floats(1.0), even[0][n]);
                }
            }
            even
        }
    };
}

pub(super) use real_tiles;
