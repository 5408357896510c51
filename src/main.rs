//! The `pkgtool` binary: parses the arguments, runs the command and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    pkgtool::cli::main()
}
