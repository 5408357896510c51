//! What a package is.

mod properties;
