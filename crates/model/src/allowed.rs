//! The set of sizes that a dynamic dimension accepts, for files that declare more than an upper
//! bound.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The accepted sizes of a dimension; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    /// An arithmetic sequence of sizes.
    Range {
        /// Smallest size.
        least: u64,
        /// Upper bound; the largest size is at most this.
        most: u64,
        /// Distance between two neighbouring sizes; at least 1.
        step: u64,
    },
    /// A list of sizes in ascending order.
    Choices(Vec<u64>),
}

impl Allowed {
    /// Returns the sizes from `min` to `max` in steps, limited to `bound`; `None` if the result is
    /// empty.
    pub fn range(min: i64, max: i64, step: i64, bound: u64) -> Option<Self> {
        let least = u64::try_from(min).ok()?;
        let most = u64::try_from(max).ok()?.min(bound);
        let step = u64::try_from(step).unwrap_or(1).max(1);
        (least <= most).then_some(Self::Range { least, most, step })
    }

    /// Returns the listed sizes, limited to `bound`; `None` if the result is empty.
    pub fn choices(sizes: &[i64], bound: u64) -> Option<Self> {
        let sizes = sizes.iter().filter_map(|size| u64::try_from(*size).ok());
        let mut sizes: Vec<u64> = sizes.filter(|size| *size <= bound).collect();
        sizes.sort_unstable();
        sizes.dedup();
        (!sizes.is_empty()).then_some(Self::Choices(sizes))
    }

    /// Returns whether `size` is accepted.
    pub fn has(&self, size: u64) -> bool {
        match self {
            Self::Range { least, most, step } => {
                (*least..=*most).contains(&size) && (size - least).is_multiple_of(*step)
            }
            Self::Choices(sizes) => sizes.binary_search(&size).is_ok(),
        }
    }

    /// Returns the largest accepted size.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Range { least, most, step } => most - (most - least) % step,
            Self::Choices(sizes) => sizes.last().copied().unwrap_or(0),
        }
    }

    /// Returns the smallest accepted size.
    pub fn smallest(&self) -> u64 {
        match self {
            Self::Range { least, .. } => *least,
            Self::Choices(sizes) => sizes.first().copied().unwrap_or(0),
        }
    }

    /// Returns the largest accepted size that does not exceed `size`.
    pub fn at_most(&self, size: u64) -> Option<u64> {
        match self {
            Self::Range { least, most, step } => {
                let size = size.min(*most);
                let above = size.checked_sub(*least)?;
                Some(size - above % step)
            }
            Self::Choices(sizes) => sizes.iter().copied().rfind(|it| *it <= size),
        }
    }

    /// Returns whether a size between the smallest and the largest is rejected.
    pub fn has_gaps(&self) -> bool {
        match self {
            Self::Range { step, .. } => *step > 1,
            Self::Choices(_) => true,
        }
    }

    /// Returns whether every size up to the largest is accepted, so that an upper bound describes
    /// the set.
    pub fn is_upper_bound_only(&self) -> bool {
        matches!(
            self,
            Self::Range {
                least: 0 | 1,
                step: 1,
                ..
            }
        )
    }
}

/// Formats as `2 to 16`, `2 to 16 in steps of 2` or `4, 8 or 16`.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { least, step: 1, .. } => write!(f, "{least} to {}", self.largest()),
            Self::Range { least, step, .. } => {
                write!(f, "{least} to {} in steps of {step}", self.largest())
            }
            Self::Choices(sizes) => {
                let texts: Vec<String> = sizes.iter().map(u64::to_string).collect();
                match texts.split_last() {
                    Some((last, [])) => f.write_str(last),
                    Some((last, first)) => write!(f, "{} or {last}", first.join(", ")),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_from_the_least() {
        let even = Allowed::range(2, 15, 4, 16).expect("there are some");
        assert_eq!(even.to_string(), "2 to 14 in steps of 4");
        let found: Vec<u64> = (0..20).filter(|size| even.has(*size)).collect();
        assert_eq!(found, [2, 6, 10, 14]);
        assert_eq!(even.largest(), 14);
        let bounded = Allowed::range(1, 100, 0, 16).expect("there are some");
        assert!(bounded.is_upper_bound_only() && bounded.has(16) && !bounded.has(17));
        assert!(!bounded.has(0), "the least is 1");
        assert_eq!(Allowed::range(17, 20, 1, 16), None);
        assert_eq!(Allowed::range(-1, 20, 1, 16), None);
        let few = Allowed::choices(&[16, 4, 8, 32, -1], 16).expect("there are some");
        assert_eq!(few.to_string(), "4, 8 or 16");
        assert!(few.has(8) && !few.has(5) && few.largest() == 16);
        assert_eq!(Allowed::choices(&[32], 16), None);
    }
}
