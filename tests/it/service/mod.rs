//! Services: tensors in requests, devices of packages, the catalog of directories.

mod catalog;
mod device;
mod packages;
mod tensors;
