//! Generated inputs: zeros, ones, counting and random numbers.
//!
//! Invariant: generated values depend only on the generator's name, the seed, and the input's
//! index, dtype and shape. They are the same on every machine, operating system and release.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::tensor::{DType, Tensor, TensorError};

/// Upper bound of random integers with 16 and more bits, so that they are valid token ids in any
/// vocabulary.
const RANDOM_INTEGER_BOUND: u64 = 10;

/// The largest float16, where counting stops.
const MAX_FLOAT16: f64 = 65504.0;

/// A generator of tensors with any dtype and shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generator {
    /// Zeros; `false`.
    Zeros,
    /// Ones; `true`.
    Ones,
    /// Floats uniform in [-1, 1), rounded to the dtype; 0 to 9 for integers of 16 and more bits;
    /// the whole range of 8-bit integers; `true` half of the time.
    ///
    /// The seed is the key of `ChaCha8` (its bytes little-endian, then zeros), and the input's
    /// index is the stream number. Each element takes 32 bits of the stream. Float inputs that
    /// differ only in dtype get the same values, rounded.
    Random {
        /// Random seed; other seeds give other values.
        seed: u64,
    },
    /// 0, 1, 2, … in row-major order, up to the dtype's largest value, which then repeats.
    Arange,
}

impl Generator {
    /// All names that [`FromStr`] accepts.
    pub const NAMES: [&'static str; 4] = ["zeros", "ones", "random", "arange"];

    /// Generates a tensor for the input with the index `input`.
    pub fn tensor(
        self,
        dtype: DType,
        shape: Vec<u64>,
        input: usize,
    ) -> Result<Tensor, TensorError> {
        match self {
            Self::Zeros => Tensor::zeros(dtype, shape),
            Self::Ones => Tensor::from_f64(dtype, shape, std::iter::repeat(1.0)),
            Self::Random { seed } => {
                let mut key = [0; 32];
                key[..8].copy_from_slice(&seed.to_le_bytes());
                let mut chance = ChaCha8Rng::from_seed(key);
                chance.set_stream(input as u64);
                let values = std::iter::repeat_with(move || draw(dtype, chance.next_u32()));
                Tensor::from_f64(dtype, shape, values)
            }
            Self::Arange => {
                let largest = match dtype {
                    DType::Float16 => MAX_FLOAT16,
                    // The conversion clamps to the largest integer.
                    _ => f64::INFINITY,
                };
                let count = (0_u32..=u32::MAX).map(f64::from);
                let beyond = std::iter::successors(Some(2_f64.powi(32)), |last| Some(last + 1.0));
                let values = count.chain(beyond).map(|value| value.min(largest));
                Tensor::from_f64(dtype, shape, values)
            }
        }
    }
}

/// Converts 32 random bits to a value.
fn draw(dtype: DType, bits: u32) -> f64 {
    match dtype {
        DType::Bool => f64::from(bits >> 31),
        DType::Uint8 => f64::from(bits >> 24),
        DType::Int8 => f64::from(bits >> 24) - 128.0,
        dtype if dtype.is_float() => {
            // 24 bits are exact in float32, and the same for every other float type.
            f64::from(bits >> 8) / f64::from(1_u32 << 23) - 1.0
        }
        _ => {
            let below = (u64::from(bits) * RANDOM_INTEGER_BOUND) >> 32;
            f64::from(u32::try_from(below).expect("it is below 10"))
        }
    }
}

/// `zeros`, `ones`, `random`, `random:SEED`, `arange`; the default seed is 0.
impl FromStr for Generator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zeros" => Ok(Self::Zeros),
            "ones" => Ok(Self::Ones),
            "arange" => Ok(Self::Arange),
            "random" => Ok(Self::Random { seed: 0 }),
            _ => {
                let Some(seed) = text.strip_prefix("random:") else {
                    return Err(format!("unknown generator `{text}`"));
                };
                let seed = seed.parse();
                seed.map(|seed| Self::Random { seed }).map_err(|_| {
                    "invalid seed in `random:SEED`: expected a non-negative integer".to_owned()
                })
            }
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::Ones => f.write_str("ones"),
            Self::Random { seed } => write!(f, "random:{seed}"),
            Self::Arange => f.write_str("arange"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, dtype: DType, count: u64, input: usize) -> Vec<f64> {
        let generator: Generator = text.parse().expect("it is a generator");
        let tensor = generator.tensor(dtype, vec![count], input);
        tensor.expect("it is small").to_f64().collect()
    }

    #[test]
    fn a_seed_gives_the_same_values_for_ever() {
        let first = values("random", DType::Float32, 4, 0);
        assert_eq!(first, values("random:0", DType::Float32, 4, 0));
        // The key stream of ChaCha8 for a key of zeros begins 3e00ef2f 895f40d6 7f5bb8e8 1f09a5a1
        // (draft-strombergson-chacha-test-vectors, TC1, 256-bit key).
        let words = [0x2fef_003e_u32, 0xd640_5f89, 0xe8b8_5b7f, 0xa1a5_091f];
        let expected = words.map(|word| f64::from(word >> 8) / 8_388_608.0 - 1.0);
        assert_eq!(first, expected);
        assert_ne!(first, values("random:1", DType::Float32, 4, 0));
        assert_ne!(first, values("random:0", DType::Float32, 4, 1));
    }

    #[test]
    fn chance_stays_in_range() {
        for dtype in DType::ALL {
            let values = values("random:7", dtype, 4096, 0);
            let range = match dtype {
                DType::Bool => 0.0..=1.0,
                DType::Int8 => -128.0..=127.0,
                DType::Uint8 => 0.0..=255.0,
                dtype if dtype.is_float() => -1.0..=1.0,
                _ => 0.0..=9.0,
            };
            assert!(values.iter().all(|value| range.contains(value)), "{dtype}");
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let width = range.end() - range.start();
            assert!(high - low > 0.95 * width, "{dtype}: {low} to {high}");
        }
    }

    #[test]
    fn counting_stops_at_the_largest_value() {
        assert_eq!(values("arange", DType::Int64, 3, 0), [0.0, 1.0, 2.0]);
        assert_eq!(
            values("arange", DType::Uint8, 300, 0)[254..257],
            [254.0, 255.0, 255.0]
        );
        assert_eq!(values("arange", DType::Int8, 300, 0)[299..], [127.0]);
        assert_eq!(values("arange", DType::Bool, 3, 0), [0.0, 1.0, 1.0]);
        let many = values("arange", DType::Float16, 70_000, 0);
        assert_eq!(many[69_999..], [65504.0]);
    }

    #[test]
    fn other_names_are_refused() {
        for text in ["zero", "random:", "random:-1", "random:1.5", "Zeros", ""] {
            assert!(text.parse::<Generator>().is_err(), "{text}");
        }
    }
}
