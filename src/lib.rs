//! pkgtool: the tool for on-device model packages.

pub mod diagnostic;
pub mod model;
pub mod package;
pub mod source;
pub mod validate;
