//! The last hour of the server: load, memory and requests, one sample every few seconds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use sysinfo::{Components, CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use tokio::sync::watch;

use super::Gateway;
use crate::database::Timestamp;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(5);

/// Number of samples in an hour.
const MAX_SAMPLES: usize = 720;

/// The samples of the last hour.
#[derive(Debug)]
pub(super) struct Recorder {
    samples: Mutex<VecDeque<Sample>>,
    latest: watch::Sender<Option<Sample>>,
}

/// The state of the server at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sample {
    /// Unix timestamp in milliseconds.
    pub(super) at: i64,
    /// Use of all processors, in percent.
    pub(super) cpu: f32,
    /// Memory of all loaded models, in bytes.
    pub(super) models: u64,
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

impl Default for Recorder {
    fn default() -> Self {
        Self {
            samples: Mutex::default(),
            latest: watch::Sender::new(None),
        }
    }
}

impl Recorder {
    /// Returns the samples of the last hour, oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().copied().collect()
    }

    /// Returns a channel of new samples.
    pub(super) fn follow(&self) -> watch::Receiver<Option<Sample>> {
        self.latest.subscribe()
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
        drop(samples);
        self.latest.send_replace(Some(sample));
    }
}

/// Records until the gateway is dropped.
pub(super) async fn record(gateway: Weak<Gateway>) {
    let kinds = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing().with_cpu_usage())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let mut system = System::new_with_specifics(kinds);
    let mut before = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(gateway) = gateway.upgrade() else {
            return;
        };
        system.refresh_specifics(kinds);
        let ended = gateway.metrics.ended();
        let (waiting, running) = gateway.store.load().await.unwrap_or_default();
        let seconds = INTERVAL.as_secs_f64();
        gateway.recorder.add(Sample {
            at: Timestamp::now().0,
            cpu: system.global_cpu_usage(),
            models: gateway.engines.memory(),
            memory: system.used_memory(),
            waiting,
            running,
            requests: (ended - before) as f64 / seconds,
            temperature: temperature(),
        });
        before = ended;
    }
}

/// Starts to record.
pub(super) fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(record(Arc::downgrade(gateway)));
}

/// Returns the highest temperature that a sensor reports.
fn temperature() -> Option<f32> {
    let sensors = Components::new_with_refreshed_list();
    let all = sensors.iter().filter_map(|sensor| sensor.temperature());
    all.filter(|degrees| degrees.is_finite()).reduce(f32::max)
}
