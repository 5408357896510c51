//! `pkgtool schema`.

use clap::ValueEnum;

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::package::precision;
use pkgtool_check::policy;
use pkgtool_check::validate;

/// Arguments of `pkgtool schema`.
#[derive(Debug, clap::Args)]
pub(super) struct SchemaArgs {
    /// Document to print
    #[arg(value_enum)]
    what: SchemaChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaChoice {
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
pub(super) fn run(args: &SchemaArgs) -> Result<Exit, Failure> {
    output::print(match args.what {
        SchemaChoice::Config => validate::CONFIG_SCHEMA,
        SchemaChoice::Precisions => validate::PRECISIONS_SCHEMA,
        SchemaChoice::PrecisionList => precision::DEFAULT_LIST,
        SchemaChoice::Settings => policy::SCHEMA,
    })?;
    Ok(Exit::Clean)
}
