//! What packages offer a caller.

mod engine;
