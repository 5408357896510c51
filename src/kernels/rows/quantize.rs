//! Rows rounded to 255 steps between their extremes, as XNNPACK's dynamic quantisation does.

/// Added and taken away, it rounds what is below 2²² to whole numbers, halves to even.
const AWAY: f32 = 12_582_912.0;

/// Into what steps a row is rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Steps {
    /// Steps in 1.
    scale: f32,
    /// Which step is 0, from -128 to 127.
    zero: f32,
}

impl Steps {
    /// Scale and zero point from a row's extremes, 0 among them, the zero point nudged to an integer by
    /// whichever end has the smaller error.
    #[expect(clippy::float_cmp, reason = "a row of zeros only")]
    pub(crate) fn of(row: &[f32]) -> Self {
        let (low, high) = extremes(row);
        let scale = if low == high {
            1.0
        } else {
            255.0 / (high - low)
        };
        let (scaled_low, scaled_high) = (low * scale, high * scale);
        let error_low = -128.0 + scaled_low;
        let error_high = 127.0 + scaled_high;
        let zero = if error_low + error_high > 0.0 {
            -128.0 - scaled_low
        } else {
            127.0 - scaled_high
        };
        let zero = zero.clamp(-128.0, 127.0).round_ties_even();
        Self { scale, zero }
    }

    /// What a step stands for.
    pub(crate) fn step(self) -> f32 {
        self.scale.recip()
    }

    /// How many steps a number is from 0: a whole number, which with [`Steps::zero`] has eight bits.
    pub(crate) fn whole(self, x: f32) -> f32 {
        self.away(x) - AWAY
    }

    /// Which step is 0; 0 for a row without any, which has infinite numbers.
    #[expect(clippy::cast_possible_truncation, reason = "a small integer")]
    pub(super) fn zero(self) -> i32 {
        self.zero as i32
    }

    /// The step that a number is rounded to, in the lower eight bits.
    pub(super) fn place(self, x: f32, zero: i32) -> i32 {
        // Numbers near `AWAY` have their whole part in their lower bits.
        let whole = self.away(x).to_bits().wrapping_sub(AWAY.to_bits());
        whole.cast_signed().wrapping_add(zero)
    }

    fn away(self, x: f32) -> f32 {
        let (least, most) = (-128.0 - self.zero, 127.0 - self.zero);
        (x * self.scale).max(least).min(most) + AWAY
    }
}

/// The least and the greatest of a row and 0; what is no number counts as none.
fn extremes(row: &[f32]) -> (f32, f32) {
    let (eights, rest) = row.as_chunks::<8>();
    let (mut lows, mut highs) = ([0.0_f32; 8], [0.0_f32; 8]);
    for eight in eights {
        for ((low, high), x) in lows.iter_mut().zip(&mut highs).zip(eight) {
            *low = low.min(*x);
            *high = high.max(*x);
        }
    }
    let low = lows.iter().chain(rest).fold(0.0_f32, |low, x| low.min(*x));
    let high = highs.iter().chain(rest);
    (low, high.fold(0.0_f32, |high, x| high.max(*x)))
}

/// Rows rounded to steps, in the order in which kernels read them.
///
/// Each group of a row is filled up with zeros to a multiple of eight; four inputs are one number, the first
/// in its lowest bits.
pub(super) struct Quantized {
    /// Eight inputs each, a row after the other.
    pub(super) octets: Vec<[i32; 2]>,
    /// Sums of the inputs of each group, a row after the other.
    pub(super) sums: Vec<i32>,
    /// Of each row.
    pub(super) steps: Vec<Steps>,
}

impl Quantized {
    /// Rows of this many inputs, in groups that divide them.
    pub(super) fn of(input: &[f32], inputs: usize, group: usize) -> Self {
        let rows = input.chunks_exact(inputs);
        let groups = rows.len() * (inputs / group);
        let mut quantized = Self {
            octets: Vec::with_capacity(groups * group.div_ceil(8)),
            sums: Vec::with_capacity(groups),
            steps: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            let steps = Steps::of(row);
            for group in row.chunks_exact(group) {
                quantized.group(group, steps);
            }
            quantized.steps.push(steps);
        }
        quantized
    }

    fn group(&mut self, group: &[f32], steps: Steps) {
        let zero = steps.zero();
        let mut sum = 0_i32;
        let (eights, rest) = group.as_chunks::<8>();
        for eight in eights {
            let places = eight.map(|x| signed(steps.place(x, zero)));
            sum = sum.wrapping_add(places.iter().sum());
            self.octets.push(joined(places));
        }
        if !rest.is_empty() {
            let mut places = [0; 8];
            for (place, x) in places.iter_mut().zip(rest) {
                *place = signed(steps.place(*x, zero));
            }
            sum = sum.wrapping_add(places.iter().sum());
            self.octets.push(joined(places));
        }
        self.sums.push(sum);
    }
}

/// The lower eight bits as a signed number.
fn signed(x: i32) -> i32 {
    (x << 24) >> 24
}

/// Eight numbers of eight bits as two of 32.
fn joined(x: [i32; 8]) -> [i32; 2] {
    let four =
        |[a, b, c, d]: [i32; 4]| (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24);
    [
        four([x[0], x[1], x[2], x[3]]),
        four([x[4], x[5], x[6], x[7]]),
    ]
}
