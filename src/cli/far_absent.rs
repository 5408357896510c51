//! Addresses where a command takes paths, in a build that asks no servers: told, not taken for paths.

use std::path::PathBuf;

use super::exit::Failure;
use crate::diagnostic::Report;

/// No arguments.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FarArgs {}

/// Paths as they were named.
pub(super) struct Far {
    paths: Vec<PathBuf>,
}

/// Fails if one of the paths is an address.
pub(super) fn open(
    paths: &[PathBuf],
    _args: &FarArgs,
    _opens_models: bool,
) -> Result<Far, Failure> {
    let mut texts = paths.iter().filter_map(|path| path.to_str());
    match texts.find(|text| {
        ["https://", "http://", "hf:"]
            .iter()
            .any(|start| text.starts_with(start))
    }) {
        Some(address) => Err(Failure::Other(format!(
            "`{address}`: this build of pkgtool asks no servers; build it with the feature `remote`, or fetch the \
             package and name its directory"
        ))),
        None => Ok(Far {
            paths: paths.to_vec(),
        }),
    }
}

impl Far {
    /// The paths to work on.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The text.
    #[expect(clippy::unused_self, reason = "with servers it needs what was opened")]
    pub(super) fn shown(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Nothing can have failed.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with servers something can fail"
    )]
    pub(super) fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Nothing was fetched.
    #[expect(clippy::unused_self, reason = "with servers it needs what was opened")]
    pub(super) fn tell_traffic(&self) {}

    /// Leaves the report as it is.
    #[expect(clippy::unused_self, reason = "with servers it needs what was opened")]
    pub(super) fn show(&self, _report: &mut Report) {}
}
