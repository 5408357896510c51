//! The `pkgtool` binary.

fn main() {}
