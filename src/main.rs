//! The `pkgtool` binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    pkgtool::cli::main()
}
