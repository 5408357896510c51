//! Running models: what goes in, what comes out, and what happens to the engine's process.

mod image;
mod input;
mod npy;
mod output;
mod worker;
