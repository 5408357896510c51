//! Measures the load of the server every few seconds: processors, memory, tasks, requests.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sysinfo::{Component, Components, CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::Gateway;
use super::recorder::Sample;
use crate::database::Timestamp;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of services with their memory in a sample.
const MAX_LARGEST: usize = 6;

/// Starts to measure, until the gateway is dropped.
pub(super) fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(measure(Arc::downgrade(gateway)));
}

async fn measure(gateway: Weak<Gateway>) {
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
            largest: largest(&gateway),
            memory: system.used_memory(),
            waiting,
            running,
            requests: f64::from(u32::try_from(ended - before).unwrap_or(u32::MAX)) / seconds,
            temperature: temperature(),
        });
        before = ended;
    }
}

/// Returns the services whose loaded models are the largest, with their memory.
fn largest(gateway: &Gateway) -> Vec<(String, u64)> {
    let mut largest = Vec::new();
    for service in gateway.services.all() {
        let bytes: u64 = service.sessions().iter().map(|it| it.bytes).sum();
        if bytes > 0 {
            largest.push((service.label().to_string(), bytes));
        }
    }
    largest.sort_by_key(|(_, bytes)| Reverse(*bytes));
    largest.truncate(MAX_LARGEST);
    largest
}

/// Returns the highest temperature that a sensor reports.
fn temperature() -> Option<f32> {
    let sensors = Components::new_with_refreshed_list();
    let all = sensors.iter().filter_map(Component::temperature);
    all.filter(|degrees| degrees.is_finite()).reduce(f32::max)
}
