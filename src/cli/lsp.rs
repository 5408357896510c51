//! `pkgtool lsp`.

use std::io::{BufReader, stdin};

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_check::lsp::{self, Ending, ServerOptions};

/// Arguments of `pkgtool lsp`.
#[derive(Debug, clap::Args)]
pub(super) struct LspArgs {
    /// Don't open model files; run all checks that don't need them
    #[arg(long)]
    no_model: bool,

    /// Use standard input and output. This is always the case; the option exists for clients that
    /// pass it
    #[arg(long)]
    stdio: bool,
}

/// Runs the command.
pub(super) fn run(args: &LspArgs) -> Result<Exit, Failure> {
    let options = ServerOptions {
        open_models: !args.no_model,
    };
    let ending = lsp::serve(BufReader::new(stdin()), &mut output::stdout(), &options)?;
    Ok(match ending {
        Ending::Orderly => Exit::Clean,
        // The protocol requires exit code 1 for `exit` without `shutdown`.
        Ending::Broken => Exit::Findings,
    })
}
