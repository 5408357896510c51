//! Running models.

mod conformance;
mod worker;
