//! Tests of running models: engine selection, and the life of the worker process.

#[cfg(all(target_os = "linux", feature = "ort"))]
mod cores;
mod examples;
mod hostile;
#[cfg(unix)]
mod links;
mod machine;
#[cfg(all(target_os = "linux", feature = "ort"))]
mod sandbox;
mod worker;
