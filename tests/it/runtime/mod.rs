//! Running models: what is chosen for them, and what happens to the engine's process.

mod examples;
mod hostile;
mod machine;
mod worker;
