//! Measures how well two outputs agree, and checks the figures against tolerances.
//!
//! `a` is the reference, `b` the output under test. All sums are computed in binary64, in one pass.
//! Elements that are NaN in both, or the same infinity in both, agree. If only one of them is, the
//! error is infinite.

use serde::Serialize;

use super::Tensor;

/// Smallest magnitude that relative errors are divided by.
const MIN_MAGNITUDE: f64 = 1e-30;

/// The agreement of a tensor with another one of the same shape, or of several pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Number of compared elements.
    pub elements: u64,
    /// Largest |a − b|.
    pub max_abs: f64,
    /// Largest |a − b| of a tensor, relative to the largest |a| of the same tensor.
    pub max_rel: f64,
    /// Average of |a − b|.
    pub mean_abs: f64,
    /// Cosine of the angle between a and b; 1 if both are zero, 0 if only one is.
    pub cosine: f64,
    /// Signal-to-noise ratio, 10 log₁₀(Σa² / Σ(a−b)²), in decibels; `null` without noise.
    pub snr_db: Option<f64>,
    /// Share of rows (all axes but the last) whose largest element is at the same position. It is
    /// `null` if the last axis has fewer than two elements, or if the dtype is not a float.
    pub top1: Option<f64>,
    /// Share of elements that are equal.
    pub equal: f64,
    /// Number of elements that are NaN or infinite in `a`.
    pub not_finite_a: u64,
    /// Number of elements that are NaN or infinite in `b`.
    pub not_finite_b: u64,
}

impl Agreement {
    /// Returns the worst value of each figure; `None` without any agreement.
    pub fn worst<'a>(several: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        // A missing figure (no noise, no rows) counts as best.
        let lower = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let several = several.into_iter().cloned();
        several.reduce(|a, b| Self {
            elements: a.elements + b.elements,
            max_abs: a.max_abs.max(b.max_abs),
            max_rel: a.max_rel.max(b.max_rel),
            mean_abs: a.mean_abs.max(b.mean_abs),
            cosine: a.cosine.min(b.cosine),
            snr_db: lower(a.snr_db, b.snr_db),
            top1: lower(a.top1, b.top1),
            equal: a.equal.min(b.equal),
            not_finite_a: a.not_finite_a + b.not_finite_a,
            not_finite_b: a.not_finite_b + b.not_finite_b,
        })
    }
}

/// The reason why two tensors cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// The shapes differ.
    #[error("the shapes differ: {a:?} and {b:?}")]
    Shape {
        /// Shape of the reference.
        a: Vec<u64>,
        /// Shape of the other tensor.
        b: Vec<u64>,
    },
    /// One side is an integer or a boolean, the other a float.
    #[error("the dtypes differ: {a} and {b}")]
    DType {
        /// Dtype of the reference.
        a: super::DType,
        /// Dtype of the other tensor.
        b: super::DType,
    },
}

/// Running sums for an [`Agreement`], over one or several pairs.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    elements: u64,
    max_abs: f64,
    max_rel: f64,
    sum_abs: f64,
    dot: f64,
    squares_a: f64,
    squares_b: f64,
    noise: f64,
    rows: u64,
    same_top: u64,
    equal: u64,
    not_finite_a: u64,
    not_finite_b: u64,
}

impl Comparison {
    /// Adds a pair of outputs. Floats of different widths can be compared, and integers too.
    pub fn add(&mut self, a: &Tensor, b: &Tensor) -> Result<(), Incomparable> {
        if a.shape() != b.shape() {
            return Err(Incomparable::Shape {
                a: a.shape().to_vec(),
                b: b.shape().to_vec(),
            });
        }
        if a.dtype().is_float() != b.dtype().is_float() {
            return Err(Incomparable::DType {
                a: a.dtype(),
                b: b.dtype(),
            });
        }
        let (mut largest_a, mut largest_error) = (0.0_f64, 0.0_f64);
        for (a, b) in a.to_f64().zip(b.to_f64()) {
            let error = self.element(a, b);
            largest_error = largest_error.max(error);
            if a.is_finite() {
                largest_a = largest_a.max(a.abs());
            }
        }
        self.max_abs = self.max_abs.max(largest_error);
        if largest_error > 0.0 {
            self.max_rel = self
                .max_rel
                .max(largest_error / largest_a.max(MIN_MAGNITUDE));
        }
        self.tops(a, b);
        Ok(())
    }

    /// Adds a pair of elements, and returns their distance.
    fn element(&mut self, a: f64, b: f64) -> f64 {
        self.elements += 1;
        self.not_finite_a += u64::from(!a.is_finite());
        self.not_finite_b += u64::from(!b.is_finite());
        #[expect(clippy::float_cmp, reason = "exact equality is counted")]
        let same = a == b || (a.is_nan() && b.is_nan());
        self.equal += u64::from(same);
        if !(a.is_finite() && b.is_finite()) {
            // Equal infinities must not make the sums infinite.
            let error = if same { 0.0 } else { f64::INFINITY };
            self.sum_abs += error;
            self.noise += error;
            return error;
        }
        let error = (a - b).abs();
        self.sum_abs += error;
        self.noise += error * error;
        self.dot += a * b;
        self.squares_a += a * a;
        self.squares_b += b * b;
        error
    }

    /// Counts rows whose largest elements are at the same position.
    fn tops(&mut self, a: &Tensor, b: &Tensor) {
        let Some(&width) = a.shape().last().filter(|width| **width >= 2) else {
            return;
        };
        if !a.dtype().is_float() || a.is_empty() {
            return;
        }
        let width = usize::try_from(width).unwrap_or(usize::MAX);
        let (a, b): (Vec<f64>, Vec<f64>) = (a.to_f64().collect(), b.to_f64().collect());
        for (a, b) in a.chunks(width).zip(b.chunks(width)) {
            self.rows += 1;
            self.same_top += u64::from(top(a) == top(b));
        }
    }

    /// Computes the agreement of the pairs added so far.
    pub fn agreement(&self) -> Agreement {
        let elements = count(self.elements).max(1.0);
        let lengths = self.squares_a.sqrt() * self.squares_b.sqrt();
        let both_zero = self.squares_a == 0.0 && self.squares_b == 0.0;
        let cosine = if self.noise.is_infinite() {
            0.0
        } else if both_zero {
            1.0
        } else if lengths == 0.0 {
            0.0
        } else {
            (self.dot / lengths).clamp(-1.0, 1.0)
        };
        Agreement {
            elements: self.elements,
            max_abs: self.max_abs,
            max_rel: self.max_rel,
            mean_abs: self.sum_abs / elements,
            cosine,
            snr_db: (self.noise > 0.0).then(|| 10.0 * (self.squares_a / self.noise).log10()),
            top1: (self.rows > 0).then(|| count(self.same_top) / count(self.rows)),
            equal: if self.elements == 0 {
                1.0
            } else {
                count(self.equal) / elements
            },
            not_finite_a: self.not_finite_a,
            not_finite_b: self.not_finite_b,
        }
    }
}

/// Required agreement; `None` requires nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Tolerances {
    /// Maximum of [`Agreement::max_abs`].
    pub max_abs: Option<f64>,
    /// Maximum of [`Agreement::max_rel`].
    pub max_rel: Option<f64>,
    /// Minimum of [`Agreement::cosine`].
    pub min_cosine: Option<f64>,
    /// Minimum of [`Agreement::snr_db`].
    pub min_snr_db: Option<f64>,
    /// Minimum of [`Agreement::top1`].
    pub min_top1: Option<f64>,
}

/// A tolerance that is exceeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToleranceViolation {
    /// The figure, named like its option: `max-abs`, `min-cosine`, ….
    pub figure: &'static str,
    /// The measured value.
    pub value: f64,
    /// The maximum or the minimum.
    pub limit: f64,
}

impl Tolerances {
    /// Returns the expected agreement of a variant of this precision with one of full precision.
    ///
    /// float32 against float32 (two engines): the order of summation shows in the last digits. Half
    /// precisions have 11 and 8 bits of mantissa. Quantized variants are judged by direction: 8
    /// bits keep it well, 4 bits less so.
    pub fn of_precision(precision: &str, quantized: bool) -> Self {
        let relative = |limit| Self {
            max_rel: Some(limit),
            ..Self::default()
        };
        let direction = |limit| Self {
            min_cosine: Some(limit),
            ..Self::default()
        };
        match precision {
            "fp16" => relative(1e-2),
            "bf16" => relative(5e-2),
            token if quantized && token.contains('4') => direction(0.95),
            _ if quantized => direction(0.99),
            _ => relative(1e-4),
        }
    }

    /// Returns the expected agreement between two programs of the same network on the same engine,
    /// one of them lowered to portable operators, in this precision. They differ only in the order
    /// of sums and in the rounding of weights.
    pub fn of_reading(precision: &str, quantized: bool) -> Self {
        let relative = |limit| Self {
            max_rel: Some(limit),
            ..Self::default()
        };
        match precision {
            "fp32" => relative(1e-5),
            "fp16" => relative(5e-3),
            "bf16" => relative(2e-2),
            _ => Self::of_precision(precision, quantized),
        }
    }

    /// Returns these tolerances, with gaps filled from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            max_abs: self.max_abs.or(other.max_abs),
            max_rel: self.max_rel.or(other.max_rel),
            min_cosine: self.min_cosine.or(other.min_cosine),
            min_snr_db: self.min_snr_db.or(other.min_snr_db),
            min_top1: self.min_top1.or(other.min_top1),
        }
    }

    /// Returns whether nothing is required.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the tolerances that an agreement exceeds. A missing figure (no noise, no rows)
    /// always passes.
    pub fn violations(&self, agreement: &Agreement) -> Vec<ToleranceViolation> {
        let at_most = [
            ("max-abs", Some(agreement.max_abs), self.max_abs),
            ("max-rel", Some(agreement.max_rel), self.max_rel),
        ];
        let at_least = [
            ("min-cosine", Some(agreement.cosine), self.min_cosine),
            ("min-snr", agreement.snr_db, self.min_snr_db),
            ("min-top1", agreement.top1, self.min_top1),
        ];
        let violation = |(figure, value, limit): (&'static str, Option<f64>, Option<f64>)| {
            Some(ToleranceViolation {
                figure,
                value: value?,
                limit: limit?,
            })
        };
        // A NaN fails every tolerance.
        let above = at_most.into_iter().filter_map(violation);
        let above = above.filter(|one| one.value > one.limit || one.value.is_nan());
        let below = at_least.into_iter().filter_map(violation);
        let below = below.filter(|one| one.value < one.limit || one.value.is_nan());
        above.chain(below).collect()
    }
}

/// Returns the position of the largest element, the first one of several. NaN is never the largest.
fn top(row: &[f64]) -> Option<usize> {
    let numbers = row.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let mut best: Option<(usize, f64)> = None;
    for (place, &value) in numbers {
        if best.is_none_or(|(_, largest)| value > largest) {
            best = Some((place, value));
        }
    }
    best.map(|(place, _)| place)
}

#[expect(clippy::cast_precision_loss, reason = "no tensor has 2^53 elements")]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn tensor(shape: &[u64], values: &[f64]) -> Tensor {
        let values = values.iter().copied();
        Tensor::from_f64(DType::Float64, shape.to_vec(), values).expect("it is small")
    }

    fn agreement(shape: &[u64], a: &[f64], b: &[f64]) -> Agreement {
        let mut comparison = Comparison::default();
        let added = comparison.add(&tensor(shape, a), &tensor(shape, b));
        added.expect("they can be compared");
        comparison.agreement()
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }

    /// The expected numbers were computed with NumPy.
    #[test]
    fn figures_are_those_of_numpy() {
        let found = agreement(
            &[2, 3],
            &[1.0, 2.0, 3.0, -4.0, 5.0, 0.0],
            &[1.0, 2.5, 2.0, -4.0, 4.0, 0.5],
        );
        near(found.max_abs, 1.0);
        near(found.max_rel, 0.2);
        near(found.mean_abs, 0.5);
        near(found.cosine, 48.0 / (55.0_f64.sqrt() * 43.5_f64.sqrt()));
        near(
            found.snr_db.expect("there is noise"),
            10.0 * 22.0_f64.log10(),
        );
        near(found.top1.expect("there are rows"), 0.5);
        near(found.equal, 2.0 / 6.0);
    }

    #[test]
    fn what_is_the_same_agrees_entirely() {
        let odd = [f64::NAN, f64::INFINITY, -0.0, 1e300];
        let found = agreement(&[4], &odd, &odd);
        assert_eq!(
            (found.max_abs, found.max_rel, found.snr_db),
            (0.0, 0.0, None)
        );
        assert_eq!((found.equal, found.top1), (1.0, Some(1.0)));
        assert_eq!((found.not_finite_a, found.not_finite_b), (2, 2));
        let zeros = agreement(&[3], &[0.0; 3], &[0.0; 3]);
        near(zeros.cosine, 1.0);
        let empty = agreement(&[0], &[], &[]);
        assert_eq!((empty.elements, empty.equal, empty.top1), (0, 1.0, None));
    }

    #[test]
    fn a_nan_on_one_side_is_an_infinite_error() {
        let found = agreement(&[2], &[1.0, 2.0], &[1.0, f64::NAN]);
        assert!(found.max_abs.is_infinite() && found.max_rel.is_infinite());
        assert!(found.cosine.abs() < f64::EPSILON);
        let demands = Tolerances::of_precision("int8", true);
        assert_eq!(demands.violations(&found).len(), 1);
        let demands = Tolerances::of_precision("fp32", false);
        assert_eq!(demands.violations(&found)[0].figure, "max-rel");
    }

    #[test]
    fn other_shapes_are_no_numbers() {
        let mut comparison = Comparison::default();
        let error = comparison.add(&tensor(&[2], &[1.0, 2.0]), &tensor(&[2, 1], &[1.0, 2.0]));
        assert_eq!(
            error.expect_err("no shape alike").to_string(),
            "the shapes differ: [2] and [2, 1]"
        );
    }

    #[test]
    fn demands_are_held_against_figures() {
        let found = agreement(&[2], &[1.0, -1.0], &[1.0, 1.0]);
        let demands = Tolerances {
            max_abs: Some(1.0),
            min_top1: Some(1.0),
            min_snr_db: Some(-100.0),
            ..Tolerances::default()
        };
        let found = demands.violations(&found);
        let figures: Vec<&str> = found.iter().map(|violation| violation.figure).collect();
        assert_eq!(figures, ["max-abs"]);
    }
}
