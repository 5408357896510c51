//! A config from standard input: `pkgtool validate - --stdin-path PATH`.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::cli::exit::Failure;
use crate::package::{config, load};
use crate::policy::{Policy, Ruled};
use crate::validate::Options;

/// The path that means standard input.
const STDIN: &str = "-";

/// Options about standard input.
#[derive(Debug, clap::Args)]
pub(super) struct StdinArgs {
    /// Where the config that comes from standard input (PATH is `-`) stands: what it refers to is looked
    /// for beside that file, which need not exist. Without it config.json in the working directory
    #[arg(long, value_name = "FILE")]
    stdin_path: Option<PathBuf>,
}

impl StdinArgs {
    /// Whether a config comes from standard input.
    pub(super) fn is_asked(&self, paths: &[PathBuf]) -> Result<bool, Failure> {
        let is_stdin = |path: &PathBuf| path.as_os_str() == STDIN;
        match (paths.iter().any(is_stdin), paths.len()) {
            (true, 1) => Ok(true),
            (true, _) => Err(Failure::Other(
                "`-` reads one config from standard input; name no other paths beside it"
                    .to_owned(),
            )),
            (false, _) if self.stdin_path.is_some() => Err(Failure::Other(
                "--stdin-path says where a config from standard input stands; name `-` as the path"
                    .to_owned(),
            )),
            (false, _) => Ok(false),
        }
    }

    /// Reads and validates it.
    pub(super) fn validate(&self, policy: &Policy, options: &Options) -> Result<Ruled, Failure> {
        let path = self.stdin_path.as_deref();
        let path = path.unwrap_or(Path::new(config::FILE_NAME));
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(load::MAX_SIZE + 1);
        input
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
        if bytes.len() as u64 > load::MAX_SIZE {
            return Err(Failure::Other(format!(
                "standard input has more than {} bytes, the most that are read of a config",
                load::MAX_SIZE
            )));
        }
        policy
            .validate_bytes(path, bytes, options)
            .map_err(|error| Failure::Other(error.to_string()))
    }
}
