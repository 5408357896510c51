//! Running models: what is chosen for them, and what happens to the engine's process.

mod examples;
mod hostile;
mod machine;
#[cfg(all(target_os = "linux", feature = "ort"))]
mod sandbox;
mod worker;
