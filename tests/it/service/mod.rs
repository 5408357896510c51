//! Tests of services: tensors in requests, devices of packages, the catalog of directories,
//! sessions.

mod catalog;
mod device;
mod engine;
mod packages;
mod tensors;
