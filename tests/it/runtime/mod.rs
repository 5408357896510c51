//! Tests of running models: engine selection, and the life of the worker process.

mod examples;
mod hostile;
mod machine;
#[cfg(all(target_os = "linux", feature = "ort"))]
mod sandbox;
mod worker;
