//! `pkgtool schema`.

use clap::ValueEnum;

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::package::precision;
use pkgtool_check::policy;
use pkgtool_check::validate;

/// Arguments of `pkgtool schema`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Document to print
    #[arg(value_enum)]
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The JSON Schema of configs
    Config,
    /// The JSON Schema of precision lists
    Precisions,
    /// The built-in precision list
    PrecisionList,
    /// The JSON Schema of project settings (pkgtool.toml)
    Settings,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    output::print(match args.what {
        What::Config => validate::CONFIG_SCHEMA,
        What::Precisions => validate::PRECISIONS_SCHEMA,
        What::PrecisionList => precision::DEFAULT_LIST,
        What::Settings => policy::SCHEMA,
    })?;
    Ok(Exit::Clean)
}
