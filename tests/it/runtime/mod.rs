//! Running models.

mod worker;
