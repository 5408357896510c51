//! Tests of data sets and measures through the crate's interface.

mod datasets;
mod objects;
