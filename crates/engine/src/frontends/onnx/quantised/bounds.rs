//! Bounds of the activations between an operator and its quantisation, as ranges of quantised
//! numbers.

use crate::graph::dynamic::place;
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange};

/// Bounds of real numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    least: f32,
    most: f32,
}

impl Bounds {
    /// Infinite bounds.
    pub(super) const NONE: Self = Self {
        least: f32::NEG_INFINITY,
        most: f32::INFINITY,
    };

    /// Creates the bounds of a `Clip`; `None` if one is NaN.
    pub(super) fn new(least: f32, most: f32) -> Option<Self> {
        let known = !least.is_nan() && !most.is_nan();
        known.then_some(Self { least, most })
    }

    /// Combines these bounds with those of an earlier activation. The upper one of contradicting
    /// bounds wins.
    pub(super) fn after(self, first: Self) -> Self {
        Self {
            least: first.least.max(self.least).min(self.most),
            most: first.most.max(self.least).min(self.most),
        }
    }

    /// Clamps a number.
    pub(super) fn hold(self, number: f32) -> f32 {
        number.max(self.least).min(self.most)
    }

    /// Returns the bounds as quantised numbers.
    pub(super) fn on(self, grid: Grid) -> IntegerRange {
        let most = place(grid, self.most);
        IntegerRange {
            least: place(grid, self.least).min(most),
            most,
        }
    }
}

/// Combines two ranges that are applied one after the other.
pub(super) fn narrowed(first: IntegerRange, then: IntegerRange) -> IntegerRange {
    let most = first.most.max(then.least).min(then.most);
    IntegerRange {
        least: first.least.max(then.least).min(most),
        most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pkgtool_kernels::bytes::Sign;

    #[test]
    fn bounds_become_numbers_of_a_grid() {
        let grid = Grid {
            sign: Sign::Unsigned,
            scale: 0.5,
            zero_point: 3,
        };
        let of = |bounds: Bounds| {
            let range = bounds.on(grid);
            [range.least, range.most]
        };
        let bounds = |least, most| Bounds::new(least, most).expect("numbers");
        assert_eq!(of(Bounds::NONE), [0, 255]);
        assert_eq!(of(bounds(0.0, 6.0)), [3, 15]);
        assert_eq!(of(bounds(0.25, 0.75)), [3, 5], "ties go to the even step");
        assert_eq!(of(bounds(2.0, 1.0)), [5, 5], "the upper one holds");
        assert!(Bounds::new(f32::NAN, 1.0).is_none());
        let both = bounds(0.0, 6.0).after(bounds(-1.0, 2.0));
        assert_eq!(both, bounds(0.0, 2.0));
        let apart = bounds(5.0, 6.0).after(bounds(0.0, 1.0));
        assert_eq!(apart, bounds(5.0, 5.0));
    }

    #[test]
    fn ranges_narrow() {
        let of = |[a, b]: [i32; 2], [c, d]: [i32; 2]| {
            let range = |least, most| IntegerRange { least, most };
            let both = narrowed(range(a, b), range(c, d));
            [both.least, both.most]
        };
        assert_eq!(of([0, 100], [10, 200]), [10, 100]);
        assert_eq!(of([0, 5], [10, 20]), [10, 10]);
        assert_eq!(of([30, 50], [10, 20]), [20, 20]);
    }
}
