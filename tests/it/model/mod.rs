//! Readers of model files.

mod executorch;
