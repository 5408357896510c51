//! Pooling: turns the token states of a text into one vector.
//!
//! The methods and their names are those of sentence-transformers. Invariant: only a text's own
//! tokens count, never padding. Sums are computed in binary64.

use super::EmbeddingError;

/// A pooling method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token.
    Last,
    /// The maximum of each dimension.
    Max,
    /// The sum, divided by the square root of the number of tokens.
    MeanSqrtLen,
    /// The weighted mean, in which the n-th token has the weight n.
    WeightedMean,
}

impl Pooling {
    /// All methods with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Cls, "cls"),
        (Self::Max, "max"),
        (Self::Mean, "mean"),
        (Self::MeanSqrtLen, "mean_sqrt_len_tokens"),
        (Self::WeightedMean, "weightedmean"),
        (Self::Last, "lasttoken"),
    ];

    /// Returns the method's name.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(pooling, _)| *pooling == self);
        found.map_or("mean", |(_, name)| name)
    }

    /// Returns the method with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = match name {
            "last" | "last_token" => "lasttoken",
            "first" => "cls",
            "mean_sqrt_len" => "mean_sqrt_len_tokens",
            "weighted_mean" => "weightedmean",
            other => other,
        };
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| *known == name)
            .map(|(pooling, _)| *pooling)
    }
}

/// The token states of one text, including padding.
#[derive(Debug)]
pub(super) struct States {
    /// The states in row-major order, one row per token.
    pub(super) values: Vec<f32>,
    /// Number of values per token.
    pub(super) width: usize,
    /// Index of the text's first own token.
    pub(super) first: usize,
}

impl States {
    /// Returns the states of the text's own tokens.
    pub(super) fn own(&self, tokens: usize) -> Option<&[f32]> {
        let own = self.first * self.width..(self.first + tokens) * self.width;
        self.values.get(own).filter(|own| !own.is_empty())
    }
}

/// Computes the vector of a text with this number of tokens.
pub(super) fn pooled(
    states: &States,
    tokens: usize,
    ways: &[Pooling],
) -> Result<Vec<f32>, EmbeddingError> {
    let Some(own) = states.own(tokens) else {
        let has = states.values.len().checked_div(states.width).unwrap_or(0);
        let reason = format!("it has states of {has} tokens for a text of {tokens}");
        return Err(EmbeddingError::Output(reason));
    };
    let width = states.width;
    let parts = ways.iter().flat_map(|way| match way {
        Pooling::Cls => own[..width].to_vec(),
        Pooling::Last => own[own.len() - width..].to_vec(),
        Pooling::Max => largest(own, width),
        Pooling::Mean => weighted(own, width, |_| 1.0, |total| total),
        Pooling::MeanSqrtLen => weighted(own, width, |_| 1.0, f64::sqrt),
        Pooling::WeightedMean => weighted(own, width, |place| place + 1.0, |total| total),
    });
    Ok(parts.collect())
}

fn largest(own: &[f32], width: usize) -> Vec<f32> {
    let mut most = own[..width].to_vec();
    for state in own.chunks_exact(width) {
        for (most, value) in most.iter_mut().zip(state) {
            *most = most.max(*value);
        }
    }
    most
}

/// Computes the weighted sum of states, divided by `divisor` of the sum of weights.
fn weighted(
    own: &[f32],
    width: usize,
    weight: impl Fn(f64) -> f64,
    divisor: impl Fn(f64) -> f64,
) -> Vec<f32> {
    let mut sums = vec![0.0_f64; width];
    let (mut total, mut place) = (0.0, 0.0);
    for state in own.chunks_exact(width) {
        let weight = weight(place);
        for (sum, value) in sums.iter_mut().zip(state) {
            *sum += weight * f64::from(*value);
        }
        total += weight;
        place += 1.0;
    }
    let divisor = divisor(total);
    #[expect(clippy::cast_possible_truncation, reason = "vectors are binary32")]
    sums.into_iter().map(|sum| (sum / divisor) as f32).collect()
}

/// Scales a vector to length 1; a zero vector stays zero.
pub(super) fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    // The minimum divisor is the one that torch uses.
    let length = squares.sqrt().max(1e-12);
    for value in vector {
        #[expect(clippy::cast_possible_truncation, reason = "vectors are binary32")]
        let scaled = (f64::from(*value) / length) as f32;
        *value = scaled;
    }
}

/// Computes the cosine similarity of two vectors: 1 for the same direction, 0 if one of them is
/// zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        let values = a.iter().zip(b);
        values.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (product(a, a) * product(b, b)).sqrt();
    if lengths > 0.0 {
        product(a, b) / lengths
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns three tokens of two dimensions, surrounded by padding with arbitrary values.
    fn states() -> States {
        let values = vec![
            f32::NAN,
            f32::NAN,
            1.0,
            4.0,
            2.0,
            -5.0,
            6.0,
            7.0,
            f32::NAN,
            f32::NAN,
        ];
        States {
            values,
            width: 2,
            first: 1,
        }
    }

    #[test]
    fn padding_counts_for_nothing() {
        let of = |way| pooled(&states(), 3, &[way]).expect("as many tokens");
        assert_eq!(of(Pooling::Mean), [3.0, 2.0]);
        assert_eq!(of(Pooling::Cls), [1.0, 4.0]);
        assert_eq!(of(Pooling::Last), [6.0, 7.0]);
        assert_eq!(of(Pooling::Max), [6.0, 7.0]);
        let root = 3.0_f32.sqrt();
        let by_root = of(Pooling::MeanSqrtLen)
            .into_iter()
            .zip([9.0 / root, 6.0 / root]);
        assert!(
            by_root
                .into_iter()
                .all(|(found, right)| (found - right).abs() < 1e-5)
        );
        assert_eq!(of(Pooling::WeightedMean), [23.0 / 6.0, 15.0 / 6.0]);
        let both = pooled(&states(), 3, &[Pooling::Cls, Pooling::Mean]);
        assert_eq!(both, Ok(vec![1.0, 4.0, 3.0, 2.0]));
        assert!(pooled(&states(), 5, &[Pooling::Mean]).is_err());
    }

    #[test]
    fn lengths_become_one() {
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert!(
            vector
                .iter()
                .zip([0.6, 0.8])
                .all(|(one, other)| (one - other).abs() < 1e-6)
        );
        let mut zeros = [0.0; 3];
        normalize(&mut zeros);
        assert!(zeros.iter().all(|it| *it == 0.0));
    }

    #[test]
    fn names_are_known_both_ways() {
        for (pooling, name) in Pooling::ALL {
            assert_eq!(Pooling::from_name(name), Some(pooling));
            assert_eq!(pooling.name(), name);
        }
        assert_eq!(Pooling::from_name("last"), Some(Pooling::Last));
        assert_eq!(Pooling::from_name("median"), None);
    }
}
