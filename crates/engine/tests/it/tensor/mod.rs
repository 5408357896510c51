//! Tests of tensors: inputs and outputs as files and texts.

mod coupled;
mod image;
mod input;
mod npy;
mod output;
