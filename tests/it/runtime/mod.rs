//! Running models.

#[cfg(feature = "ort")]
mod ort;
#[cfg(feature = "ort")]
mod ort_library;
mod worker;
