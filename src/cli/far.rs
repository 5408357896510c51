//! Addresses where a command takes paths: sources on servers as directories, for as long as it works.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::exit::Failure;
use super::output;
use crate::diagnostic::{Diagnostic, Report, SourceText};
use crate::remote::{Address, Limits, Mirror, Settings};

/// How servers are asked.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packages on servers")]
pub(super) struct FarArgs {
    /// The hub that `hf:OWNER/REPOSITORY` is at. The environment's `HF_TOKEN` is sent to it, and to no
    /// other origin
    #[arg(
        long,
        value_name = "URL",
        env = "HF_ENDPOINT",
        default_value = "https://huggingface.co"
    )]
    hub_endpoint: String,

    /// Follow redirects to addresses of private networks even from a public server
    #[arg(long)]
    allow_private: bool,

    /// How long reading from servers may take; for `pull` and `serve` how long a server may be silent
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: Option<u64>,
}

/// Paths, those that were addresses being mirrors now.
pub(super) struct Far {
    paths: Vec<PathBuf>,
    mirrors: Vec<Mirror>,
}

impl FarArgs {
    /// Settings of a check, which is bounded in time as a whole.
    fn settings(&self, opens_models: bool) -> Settings {
        let mut limits = Limits::default();
        if let Some(seconds) = self.timeout {
            limits.total = Some(Duration::from_secs(seconds));
        }
        Settings {
            hub_endpoint: self.hub_endpoint.clone(),
            token: std::env::var("HF_TOKEN").ok(),
            allow_private: self.allow_private,
            opens_models,
            limits,
        }
    }

    /// Settings of a download, in which a server may be silent for so long.
    pub(super) fn download(&self) -> Settings {
        // What is fetched whole is read where it is then.
        let mut settings = self.settings(false);
        settings.limits = Limits::default();
        if let Some(seconds) = self.timeout {
            settings.limits.idle = Duration::from_secs(seconds);
        }
        settings
    }
}

/// Opens what is an address among the paths. Without `opens_models` no model will be read: only sizes are asked
/// for then.
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
        let address = Address::parse(text).map_err(failure)?;
        let mirror = Mirror::open(&address, &args.settings(opens_models)).map_err(failure)?;
        far.paths.push(mirror.path());
        far.mirrors.push(mirror);
    }
    Ok(far)
}

impl Far {
    /// The paths to work on.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// A text with addresses where it has paths of mirrors.
    pub(super) fn shown(&self, text: &str) -> String {
        let mirrors = self.mirrors.iter();
        mirrors.fold(text.to_owned(), |text, mirror| mirror.shown(&text))
    }

    /// An error if something could not be fetched: then nothing that was found is certain.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut faults = self.mirrors.iter().filter_map(Mirror::fault);
        faults.next().map_or(Ok(()), |fault| Err(failure(fault)))
    }

    /// Tells what was fetched.
    pub(super) fn tell_traffic(&self) {
        for mirror in &self.mirrors {
            let traffic = mirror.traffic();
            let path = mirror.path();
            let source = mirror.shown(&path.to_string_lossy());
            let listed = if mirror.is_listed() {
                ""
            } else {
                "; the server gives no listing: only what configs name was looked at"
            };
            output::note(&format!(
                "{source}: {} requests, {} bytes{listed}",
                traffic.requests, traffic.bytes
            ));
        }
    }

    /// Puts addresses in place of the paths of mirrors, and takes out what only a listing could tell.
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

/// Whether a finding says that something is not beside a file, and not at a path that a file names.
fn needs_listing(one: &Diagnostic) -> bool {
    one.rule.name == "external-data" && one.message.contains("there is none in its directory")
}

/// A failure of a server as one of the command.
pub(super) fn failure(error: crate::remote::RemoteError) -> Failure {
    match error {
        nothing @ crate::remote::RemoteError::Nothing { .. } => {
            Failure::Nothing(nothing.to_string())
        }
        other => Failure::Other(other.to_string()),
    }
}
