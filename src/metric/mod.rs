//! What is counted and measured while a server runs, and the page that shows it.
//!
//! Invariant: counting takes no lock and, once its series is there, no memory; what is shown of a
//! histogram adds up. Knows nothing of what is counted.

mod family;
mod histogram;
mod page;

pub use family::{Bounded, Family};
pub use histogram::Histogram;
pub use page::{Format, Number, Page, Samples};

/// The label of everything beyond a bound.
pub const OTHER: &str = "other";
