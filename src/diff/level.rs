//! How much a change matters.

use serde::Serialize;

/// How much a change matters to those who use a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What worked with the older version may fail, or answer otherwise, with the newer.
    Breaking,
    /// What worked goes on to work.
    Compatible,
    /// Nobody who runs the package sees it.
    Cosmetic,
}

impl Level {
    /// All levels, the worst first.
    pub const ALL: [Self; 3] = [Self::Breaking, Self::Compatible, Self::Cosmetic];

    /// `breaking`, `compatible` or `cosmetic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Breaking => "breaking",
            Self::Compatible => "compatible",
            Self::Cosmetic => "cosmetic",
        }
    }
}
