//! `pkgtool lsp`.

use std::io::{BufReader, stdin};

use super::exit::{Exit, Failure};
use super::{output, rules};
use crate::lsp::{self, Ending, Options};

/// Arguments of `pkgtool lsp`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Don't open model files: check names, sizes and everything else
    #[arg(long)]
    no_model: bool,

    /// Use standard input and output. They are what is always used; many clients ask for it
    #[arg(long)]
    stdio: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let options = Options {
        open_models: !args.no_model,
        rules_page: rules::page_url(),
    };
    let ending = lsp::serve(BufReader::new(stdin()), &mut output::stdout(), &options)?;
    Ok(match ending {
        Ending::Orderly => Exit::Clean,
        // The protocol asks for 1 where `exit` came without `shutdown`.
        Ending::Broken => Exit::Findings,
    })
}
