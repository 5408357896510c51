//! The load of the last hour: what `sampler.rs` measured.

use std::collections::VecDeque;

use serde::Serialize;
use tokio::sync::watch;

/// Number of samples in an hour, one every five seconds.
const MAX_SAMPLES: usize = 720;

/// The samples of the last hour, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recorder(watch::Sender<VecDeque<Sample>>);

/// The state of the server at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sample {
    /// Unix timestamp in milliseconds.
    pub(super) at: i64,
    /// Use of all processors, in percent.
    pub(super) cpu: f32,
    /// Memory of all loaded models, in bytes.
    pub(super) models: u64,
    /// Memory of the services whose models are the largest, in bytes.
    pub(super) largest: Vec<(String, u64)>,
    /// Memory that all programs of the machine use, in bytes.
    pub(super) memory: u64,
    /// Waiting tasks of all accounts.
    pub(super) waiting: u64,
    /// Running tasks of all accounts.
    pub(super) running: u64,
    /// Answered requests per second since the sample before.
    pub(super) requests: f64,
    /// The highest temperature that a sensor reports, in degrees Celsius.
    pub(super) temperature: Option<f32>,
}

impl Recorder {
    /// Returns the samples of the last hour, oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.0.borrow().iter().cloned().collect()
    }

    /// Returns a channel that changes with every sample.
    pub(super) fn follow(&self) -> watch::Receiver<VecDeque<Sample>> {
        self.0.subscribe()
    }

    /// Adds a sample.
    pub(super) fn add(&self, sample: Sample) {
        self.0.send_modify(|samples| {
            if samples.len() == MAX_SAMPLES {
                samples.pop_front();
            }
            samples.push_back(sample);
        });
    }
}
