//! Tests of training: datasets, the classifier, its records.

mod classifier;
mod dataset;
mod memory;
mod story;
