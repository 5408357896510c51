//! Measures the load of the server every few seconds: processors, memory, tasks, requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sysinfo::{Component, Components, CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use super::Gateway;
use super::recorder::Sample;
use crate::database::Timestamp;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(5);

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
            memory: system.used_memory(),
            waiting,
            running,
            requests: f64::from(u32::try_from(ended - before).unwrap_or(u32::MAX)) / seconds,
            temperature: temperature(),
        });
        before = ended;
    }
}

/// Returns the highest temperature that a sensor reports.
fn temperature() -> Option<f32> {
    let sensors = Components::new_with_refreshed_list();
    let all = sensors.iter().filter_map(Component::temperature);
    all.filter(|degrees| degrees.is_finite()).reduce(f32::max)
}
