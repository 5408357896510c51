//! Text for models and from them: what stands between the characters of a caller and the ids of a model.
//!
//! Invariant: what a package brings along (a tokenizer, its settings) is read in bounds, and whatever is
//! wrong with it becomes an error that names the file. Knows nothing of services, requests or terminals.

pub mod embedding;
pub mod tokenizer;
