//! The options `--profile` and `--trace` of `run` and `bench`.

mod report;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

use super::super::exit::Failure;
use super::super::output;
use pkgtool_engine::Profile;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Tensor;
pub(super) use report::ProfileReport;

/// Maximum number of recorded runs, and the time after which no further run is recorded.
const AMOUNT: (u64, Duration) = (50, Duration::from_secs(2));

/// Options for profiles.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Profile")]
pub(super) struct ProfileArgs {
    /// Record further runs, and show the time, memory and provider of each operator
    #[arg(long)]
    profile: bool,

    /// Write a recorded run to FILE in Chrome's trace format, which Perfetto reads, too. Implies
    /// `--profile`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// The recorded runs of one model, with its label.
pub(super) struct RecordedProfile {
    label: String,
    profile: Profile,
}

impl ProfileArgs {
    /// Returns whether runs are recorded.
    pub(super) fn is_on(&self) -> bool {
        self.profile || self.trace.is_some()
    }

    /// Records runs of a model if the options ask for it. Prints a note if the engine cannot.
    pub(super) fn record(
        &self,
        label: String,
        started: &Started,
        inputs: &[Tensor],
        launcher: &Launcher,
    ) -> Result<Option<RecordedProfile>, Failure> {
        if !self.is_on() {
            return Ok(None);
        }
        let profile = started.profile(inputs, launcher, AMOUNT);
        let profile =
            profile.map_err(|error| Failure::Other(format!("{label}: --profile: {error}")))?;
        let profile = profile.filter(|profile| !profile.runs.is_empty());
        if profile.is_none() {
            output::note(&format!(
                "{label}: no profile, because {} does not report the time of its operators",
                started.candidate
            ));
        }
        Ok(profile.map(|profile| RecordedProfile { label, profile }))
    }

    /// Writes the trace of these models if the options ask for it.
    pub(super) fn write_trace<'p>(
        &self,
        profiles: impl Iterator<Item = &'p RecordedProfile>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.trace else {
            return Ok(());
        };
        let pairs = profiles.map(|it| (it.label.as_str(), &it.profile));
        super::write_file(path, &trace::document(pairs))
    }
}

impl RecordedProfile {
    /// Returns the report of the profile.
    pub(super) fn report(&self, started: &Started) -> ProfileReport {
        ProfileReport::of(&self.profile, started.candidate.provider)
    }
}
