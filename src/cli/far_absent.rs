//! Rejects addresses given as paths, in builds without the feature `remote`. Replaces the module
//! `far` there.

use std::path::PathBuf;

use super::exit::Failure;
use pkgtool_base::diagnostic::Report;

/// Takes no arguments.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FarArgs {}

/// The paths from the command line.
pub(super) struct Far {
    paths: Vec<PathBuf>,
}

/// Returns the paths, or an error if one of them is an address.
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
            "`{address}`: this build of pkgtool cannot access servers; build it with the feature `remote`, or download the \
             package and name its directory"
        ))),
        None => Ok(Far {
            paths: paths.to_vec(),
        }),
    }
}

impl Far {
    /// Returns the paths to work on.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the text unchanged.
    #[expect(
        clippy::unused_self,
        reason = "with the feature `remote` it uses the opened mirrors"
    )]
    pub(super) fn shown(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Always succeeds.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with the feature `remote` it can fail"
    )]
    pub(super) fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Prints nothing, since nothing was fetched.
    #[expect(
        clippy::unused_self,
        reason = "with the feature `remote` it uses the opened mirrors"
    )]
    pub(super) fn tell_traffic(&self) {}

    /// Leaves the report unchanged.
    #[expect(
        clippy::unused_self,
        reason = "with the feature `remote` it uses the opened mirrors"
    )]
    pub(super) fn show(&self, _report: &mut Report) {}
}
