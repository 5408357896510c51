//! Tensors: what goes in, what comes out, as files and as texts.

mod coupled;
mod image;
mod input;
mod npy;
mod output;
