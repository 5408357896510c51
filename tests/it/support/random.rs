//! Random numbers that are the same for a seed, and the length of tests that use them.

use std::time::{Duration, SystemTime};

use super::environment::say;

/// Variable that makes tests of random faults longer by so many times.
const TIMES: &str = "PKGTOOL_TEST_TIMES";

/// Variable with the seed of a run that is to be repeated.
const SEED: &str = "PKGTOOL_TEST_SEED";

/// Random numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates the numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below another one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }
}

/// Returns the seed of a test, which it prints.
pub(crate) fn seed(test: &str) -> u64 {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let clock = since.map_or(0, |since| u64::from(since.subsec_nanos()));
    let seed = given.unwrap_or(clock);
    say(&format!("{test}: {SEED}={seed}"));
    seed
}

/// Returns a duration, or a longer one if a variable asks for it.
pub(crate) fn lasting(duration: Duration) -> Duration {
    let times = std::env::var(TIMES).ok().and_then(|text| text.parse().ok());
    duration * times.unwrap_or(1)
}
