//! Lets commands take addresses of packages on servers wherever they take paths.
//!
//! Each address is opened as a [`Mirror`], a local directory that is filled from the server on
//! demand and that exists as long as the command runs. Reports show the address in place of the
//! directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::exit::Failure;
use super::output;
use pkgtool_base::diagnostic::{Diagnostic, Report, SourceText};
use pkgtool_remote::{Address, Mirror, PullLimits, RemoteSettings};

/// Options for access to servers.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packages on servers")]
pub(super) struct FarArgs {
    /// URL of the hub for `hf:OWNER/REPOSITORY`. The token in `HF_TOKEN` is sent only to this
    /// origin
    #[arg(
        long,
        value_name = "URL",
        env = "HF_ENDPOINT",
        default_value = "https://huggingface.co"
    )]
    hub_endpoint: String,

    /// Follow redirects from public servers to addresses in private networks
    #[arg(long)]
    allow_private: bool,

    /// Time limit for reading from servers, in seconds. For `pull` and `serve`, the limit for a
    /// server's silence
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: Option<u64>,
}

/// Paths to work on; addresses are replaced by the directories of their mirrors.
pub(super) struct Far {
    paths: Vec<PathBuf>,
    mirrors: Vec<Mirror>,
}

impl FarArgs {
    /// Returns the settings of a check, which has a time limit as a whole.
    fn settings(&self, opens_models: bool) -> RemoteSettings {
        let mut limits = PullLimits::default();
        if let Some(seconds) = self.timeout {
            limits.total = Some(Duration::from_secs(seconds));
        }
        RemoteSettings {
            hub_endpoint: self.hub_endpoint.clone(),
            token: std::env::var("HF_TOKEN").ok(),
            allow_private: self.allow_private,
            opens_models,
            limits,
        }
    }

    /// Returns the settings of a download, which limits only the time that a server may be silent.
    pub(super) fn download(&self) -> RemoteSettings {
        // Downloaded models are opened locally afterwards.
        let mut settings = self.settings(false);
        settings.limits = PullLimits::default();
        if let Some(seconds) = self.timeout {
            settings.limits.idle = Duration::from_secs(seconds);
        }
        settings
    }
}

/// Opens a mirror for each address among the paths. Without `opens_models`, only the sizes of
/// models are requested.
pub(super) fn open(paths: &[PathBuf], args: &FarArgs, opens_models: bool) -> Result<Far, Failure> {
    let mut far = Far {
        paths: Vec::with_capacity(paths.len()),
        mirrors: Vec::new(),
    };
    for path in paths {
        let Some(text) = path.to_str().filter(|text| Address::is_one(text)) else {
            far.paths.push(path.clone());
            continue;
        };
        let address = Address::parse(text).map_err(remote_failure)?;
        let mirror =
            Mirror::open(&address, &args.settings(opens_models)).map_err(remote_failure)?;
        far.paths.push(mirror.path());
        far.mirrors.push(mirror);
    }
    Ok(far)
}

impl Far {
    /// Returns the paths to work on.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Replaces the paths of mirrors by their addresses in a text.
    pub(super) fn shown(&self, text: &str) -> String {
        let mirrors = self.mirrors.iter();
        mirrors.fold(text.to_owned(), |text, mirror| mirror.shown(&text))
    }

    /// Returns an error if something could not be fetched, since the findings are unreliable then.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut faults = self.mirrors.iter().filter_map(Mirror::fault);
        faults
            .next()
            .map_or(Ok(()), |fault| Err(remote_failure(fault)))
    }

    /// Prints a note about the requests and bytes of each mirror.
    pub(super) fn tell_traffic(&self) {
        for mirror in &self.mirrors {
            let traffic = mirror.traffic();
            let path = mirror.path();
            let source = mirror.shown(&path.to_string_lossy());
            let listed = if mirror.is_listed() {
                ""
            } else {
                "; the server gives no listing, so only files named by configs were checked"
            };
            output::note(&format!(
                "{source}: {} requests, {} bytes{listed}",
                traffic.requests, traffic.bytes
            ));
        }
    }

    /// Replaces the paths of mirrors by addresses, and removes findings that need a directory
    /// listing if a server gave none.
    pub(super) fn show(&self, report: &mut Report) {
        if self.mirrors.is_empty() {
            return;
        }
        if !self.mirrors.iter().all(Mirror::is_listed) {
            report.diagnostics.retain(|one| !needs_listing(one));
        }
        for file in &mut report.files {
            *file = self.shown(file);
        }
        let mut renamed: Vec<(Arc<SourceText>, Arc<SourceText>)> = Vec::new();
        for one in &mut report.diagnostics {
            one.message = self.shown(&one.message);
            one.help = one.help.as_deref().map(|help| self.shown(help));
            let known = renamed
                .iter()
                .find(|(old, _)| Arc::ptr_eq(old, &one.source));
            one.source = if let Some((_, new)) = known {
                Arc::clone(new)
            } else {
                let path = self.shown(&one.source.path);
                let new = Arc::new(SourceText::new(path, one.source.text.clone()));
                renamed.push((Arc::clone(&one.source), Arc::clone(&new)));
                new
            };
            let subject = one.subject.as_deref().and_then(Path::to_str);
            one.subject = subject
                .map(|subject| PathBuf::from(self.shown(subject)))
                .or(one.subject.take());
        }
        report.files.sort();
    }
}

/// Returns whether a finding reports that a directory lacks a file which no config names. Such a
/// finding is valid only with a directory listing.
fn needs_listing(one: &Diagnostic) -> bool {
    one.rule.name == "external-data" && one.message.contains("its directory has no such file")
}

/// Converts a failure of a server to one of the command.
pub(super) fn remote_failure(error: pkgtool_remote::RemoteError) -> Failure {
    match error {
        nothing @ pkgtool_remote::RemoteError::Nothing { .. } => {
            Failure::Nothing(nothing.to_string())
        }
        other => Failure::Other(other.to_string()),
    }
}
