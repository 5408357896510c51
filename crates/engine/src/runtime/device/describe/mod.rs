//! Describes a Linux or Android device and reads its sensors while a model runs.
//!
//! The description and the values come from files below a root directory
//! and from the output of Android's `getprop` and `dumpsys battery`.
//!
//! Nothing in this folder fails: a file that is missing or makes no sense leaves its value
//! empty. At most 64 KiB of a file are read, and at most 512 cores, zones or supplies
//! are looked at.

mod battery;
mod cores;
mod facts;
mod files;
mod reading;
mod sensors;
#[cfg(test)]
mod trees;

pub use battery::battery_from_dumpsys;
pub use cores::CoreCluster;
pub use facts::{DeviceFacts, parse_properties, read_facts};
pub use reading::SensorReading;
pub use sensors::Sensors;
