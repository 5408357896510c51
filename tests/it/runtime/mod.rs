//! Running models: what goes in, what comes out.

mod image;
mod input;
mod npy;
mod output;
