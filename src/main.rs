//! The `pkgtool` binary, which validates, runs and serves on-device model packages.
//!
//! `docs/architecture/index.md` describes the crates that do the work.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
