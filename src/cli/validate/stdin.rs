//! Validates a config from standard input: `pkgtool validate - --stdin-path PATH`.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::cli::exit::Failure;
use pkgtool_base::package::{config, load};
use pkgtool_check::policy::{Policy, PolicyOutcome};
use pkgtool_check::validate::ValidationOptions;

/// The path that stands for standard input.
const STDIN: &str = "-";

/// Options for standard input.
#[derive(Debug, clap::Args)]
pub(super) struct StdinArgs {
    /// Path of the config that is read from standard input (with `-` as PATH). Files that it names
    /// are searched beside this path, which need not exist [default: config.json in the working
    /// directory]
    #[arg(long, value_name = "FILE")]
    stdin_path: Option<PathBuf>,
}

impl StdinArgs {
    /// Returns whether a config is to be read from standard input.
    pub(super) fn is_asked(&self, paths: &[PathBuf]) -> Result<bool, Failure> {
        let is_stdin = |path: &PathBuf| path.as_os_str() == STDIN;
        match (paths.iter().any(is_stdin), paths.len()) {
            (true, 1) => Ok(true),
            (true, _) => Err(Failure::Other(
                "`-` reads one config from standard input and cannot be combined with other paths"
                    .to_owned(),
            )),
            (false, _) if self.stdin_path.is_some() => Err(Failure::Other(
                "--stdin-path needs a config from standard input: give `-` as the path".to_owned(),
            )),
            (false, _) => Ok(false),
        }
    }

    /// Reads and validates the config.
    pub(super) fn validate(
        &self,
        policy: &Policy,
        options: &ValidationOptions,
    ) -> Result<PolicyOutcome, Failure> {
        let path = self.stdin_path.as_deref();
        let path = path.unwrap_or(Path::new(config::FILE_NAME));
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(load::MAX_SIZE + 1);
        input
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
        if bytes.len() as u64 > load::MAX_SIZE {
            return Err(Failure::Other(format!(
                "config from standard input too large: at most {} bytes are supported",
                load::MAX_SIZE
            )));
        }
        policy
            .validate_bytes(path, bytes, options)
            .map_err(|error| Failure::Other(error.to_string()))
    }
}
