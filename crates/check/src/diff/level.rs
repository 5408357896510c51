//! The severity of a change.

use serde::Serialize;

/// The severity of a change for users of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeLevel {
    /// Uses of the older version may fail or give other results with the newer one.
    Breaking,
    /// Uses of the older version continue to work.
    Compatible,
    /// Invisible to anyone who runs the package.
    Cosmetic,
}

impl ChangeLevel {
    /// All levels, the most severe first.
    pub const ALL: [Self; 3] = [Self::Breaking, Self::Compatible, Self::Cosmetic];

    /// Returns `breaking`, `compatible` or `cosmetic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Breaking => "breaking",
            Self::Compatible => "compatible",
            Self::Cosmetic => "cosmetic",
        }
    }
}
