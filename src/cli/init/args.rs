//! Arguments of `pkgtool init`, and their conversion to options.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::cli::exit::Failure;
use crate::cli::policy_args::SettingsArgs;
use pkgtool_base::diagnostic::book;
use pkgtool_base::package::Backend;
use pkgtool_check::author::init::{Given, InitOptions};
use pkgtool_check::policy::{Overrides, Policy};

/// Arguments of `pkgtool init`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(crate::cli::exit::HELP, "init"))]
pub(in crate::cli) struct InitArgs {
    /// Directory of a backend with model files, or a tree with several of them. Each gets a
    /// config.json
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Model token [default: the common beginning of the model files' names]
    #[arg(long, visible_alias = "name", value_name = "NAME", value_parser = token)]
    model: Option<String>,

    /// Family, a loose grouping of models [default: that of the configs for other backends]
    #[arg(long, value_name = "NAME", value_parser = token)]
    family: Option<String>,

    /// Size token [default: inferred from directory and file names]
    #[arg(long, value_name = "NAME", value_parser = token)]
    size: Option<String>,

    /// Capability of the model; may be given several times, or with commas [default: inferred from
    /// other backends' configs, signatures, components and names]
    #[arg(long = "capability", value_name = "NAME", value_delimiter = ',', value_parser = capability)]
    capabilities: Vec<String>,

    /// Licence: an SPDX identifier or the short name in a model card [default: read from a model
    /// card or a LICENSE file in the package]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    license: Option<String>,

    /// Write configs only for this backend. In a directory that is not named after a backend, the
    /// backend of its models
    #[arg(long, value_name = "NAME", value_parser = backend)]
    backend: Option<Backend>,

    /// Precision of a file, or of all files whose names don't state theirs; may be given several
    /// times
    #[arg(long = "precision", value_name = "[FILE=]TOKEN", value_parser = precision)]
    precision: Vec<(Option<String>, String)>,

    /// Precision list to interpret names with, instead of the repository's precisions.json or the
    /// built-in list
    #[arg(long, value_name = "FILE")]
    precisions: Option<PathBuf>,

    /// Print the configs and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Rewrite existing configs. Fields that only an author knows are kept unless given: size,
    /// family, capabilities, licence, tokenizers, tensor names, dynamic dimensions
    #[arg(long)]
    force: bool,

    /// Ask no questions and accept the proposed values
    #[arg(long, short)]
    yes: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t = InitFormatArg::Human)]
    format: InitFormatArg,

    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InitFormatArg {
    /// A table for each config
    Human,
    /// One JSON document with the texts of the configs
    Json,
}

impl InitArgs {
    pub(super) fn options(&self) -> InitOptions {
        let with_file = self.precision.iter().filter_map(|(file, token)| {
            let file = file.clone()?;
            Some((file, token.clone()))
        });
        let mut without = self.precision.iter().filter(|(file, _)| file.is_none());
        InitOptions {
            directory: self.directory.clone(),
            force: self.force,
            accept_guesses: self.yes,
            precisions: self.precisions.clone(),
            given: Given {
                model: self.model.clone(),
                family: self.family.clone(),
                size: self.size.clone(),
                capabilities: self.capabilities.clone(),
                license: self.license.clone(),
                backend: self.backend,
                precisions: with_file.collect(),
                precision: without.next_back().map(|(_, token)| token.clone()),
            },
        }
    }

    pub(super) fn policy(&self) -> Result<Policy, Failure> {
        self.settings.policy(Overrides::default())
    }

    /// Returns whether questions may be asked: standard input and standard error are terminals.
    pub(super) fn asks(&self) -> bool {
        let is_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        is_there && !self.yes && !self.is_json()
    }

    pub(super) fn is_json(&self) -> bool {
        self.format == InitFormatArg::Json
    }

    pub(super) fn dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn force(&self) -> bool {
        self.force
    }
}

/// Parses a token of the config format.
pub(super) fn token(text: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(text.to_owned());
    }
    Err("expected lower-case letters, digits and `_`, for example `whisper_tiny`".to_owned())
}

/// Parses a capability of the config format.
pub(super) fn capability(text: &str) -> Result<String, String> {
    let known = pkgtool_check::author::init::CAPABILITIES;
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let meant = pkgtool_base::source::suggest::nearest(text, known.into_iter());
    let hint = meant.map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
    Err(format!("{hint}expected one of {}", known.join(", ")))
}

/// Parses a backend of the config format.
pub(super) fn backend(text: &str) -> Result<Backend, String> {
    let names = Backend::ALL.map(Backend::name);
    Backend::from_name(text).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn precision(text: &str) -> Result<(Option<String>, String), String> {
    match text.rsplit_once('=') {
        Some(("", _)) => Err("expected a file's name before `=`".to_owned()),
        Some((file, text)) => Ok((Some(file.to_owned()), token(text)?)),
        None => Ok((None, token(text)?)),
    }
}
