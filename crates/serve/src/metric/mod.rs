//! Metrics: lock-free counters and histograms, and the page that shows them.
//!
//! The module knows nothing of the meaning of a metric.
//!
//! Invariant: counting takes no lock. It allocates no memory once its series exists. The buckets
//! shown for a histogram add up.

mod family;
mod histogram;
mod page;

pub use family::{BoundedFamily, Family};
pub use histogram::Histogram;
pub use page::{MetricValue, Page, PageFormat, Samples};

/// Label of the series for all keys beyond a bound.
pub const OTHER_LABEL: &str = "other";
