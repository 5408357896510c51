//! Renders the metrics page: every metric with its name, help and labels.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::process::ProcessMetrics;
use super::storage::StorageSizes;
use super::{GatewayMetrics, method};
use crate::metric::{Histogram, Page, PageFormat};
use crate::service::engine::{DeviceStatus, SessionState};
use crate::service::meter::{AnswerOutcome, Meter, ServiceOperation};
use crate::service::{Service, ServiceKind};
use crate::task::TaskStore;
use crate::worker::WorkerInfo;

/// A metric's name, its help, and the function that reads its value: times, a count, or current
/// activity.
type HistogramMetric = (&'static str, &'static str, fn(&Meter) -> &Histogram);
type CounterMetric = (&'static str, &'static str, fn(&Meter) -> &AtomicU64);
type MachineMetric = (&'static str, &'static str, fn(&MachineMetrics) -> usize);
type GaugeMetric = (&'static str, &'static str, fn(&Service) -> usize);

/// Maximum number of machines of workers with their own label; the rest are `other`.
const MAX_MACHINES: usize = 100;

/// State that is read when the page is requested.
pub(in crate::gateway) struct CurrentState {
    /// The services and accounts that may be named.
    pub(in crate::gateway) names: VisibleNames,
    /// Number of waiting and running tasks, if the store provides it.
    pub(in crate::gateway) tasks: Option<(u64, u64)>,
    /// How long the task that waits longest has waited, if the store provides it.
    pub(in crate::gateway) longest_wait: Option<Duration>,
    /// The store of tasks, for its times.
    pub(in crate::gateway) store: Arc<dyn TaskStore>,
    pub(in crate::gateway) services: Vec<Arc<Service>>,
    /// Packages that are not served.
    pub(in crate::gateway) unserved: usize,
    /// Memory of loaded sessions, and their shared budget, in bytes.
    pub(in crate::gateway) memory: (u64, u64),
    /// Waiting and running jobs of the processes that parse untrusted input.
    pub(in crate::gateway) parser_jobs: (usize, usize),
    /// Bytes of request bodies in memory.
    pub(in crate::gateway) body_bytes: usize,
    pub(in crate::gateway) meters: Vec<Arc<Meter>>,
    pub(in crate::gateway) sizes: StorageSizes,
    pub(in crate::gateway) accounts: Vec<AccountMetrics>,
    /// Attached workers.
    pub(in crate::gateway) workers: Vec<WorkerInfo>,
    /// Devices on which models run.
    pub(in crate::gateway) devices: Vec<DeviceStatus>,
}

/// An account's values on the page.
pub(in crate::gateway) struct AccountMetrics {
    pub(in crate::gateway) name: String,
    /// CPU time since the start.
    pub(in crate::gateway) cpu: Duration,
    /// Stored bytes, by kind.
    pub(in crate::gateway) stored: Vec<(&'static str, u64)>,
}

/// The services and accounts that a page may name.
pub(in crate::gateway) enum VisibleNames {
    None,
    All,
    /// One account, and the services with these labels.
    Of {
        account: String,
        services: HashSet<String>,
    },
}

impl VisibleNames {
    fn has_service(&self, label: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of { services, .. } => services.contains(label),
        }
    }

    fn has_account(&self, label: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of { account, .. } => account == label,
        }
    }
}

impl GatewayMetrics {
    /// Renders the page.
    pub(in crate::gateway) fn page(&self, present: &CurrentState, format: PageFormat) -> String {
        let sessions = present.services.iter().flat_map(|it| it.sessions());
        let workers: Vec<u32> = sessions.filter_map(|session| session.process).collect();
        let processes = ProcessMetrics::now(&workers);
        let mut page = Page::new(format);
        page.info("pkgtool_build", "Version of pkgtool.").add(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("os", std::env::consts::OS),
                ("architecture", std::env::consts::ARCH),
            ],
            1_u64,
        );
        self.requests(&mut page);
        let names = &present.names;
        if !matches!(names, VisibleNames::None) {
            let meters = present.meters.iter();
            let meters: Vec<_> = meters.filter(|it| names.has_service(&it.label)).collect();
            asked(&mut page, &meters, names);
            write_service_runs(&mut page, &meters);
            write_sessions_and_queues(&mut page, present, &processes);
            write_upstreams(&mut page, &present.services, names);
            write_workers(&mut page, &present.workers, names);
            write_accounts(&mut page, &present.accounts);
        }
        if matches!(names, VisibleNames::All) {
            write_devices(&mut page, &present.devices);
        }
        write_tasks(&mut page, present);
        write_session_totals(&mut page, present);
        let help = "Memory held for request bodies.";
        page.gauge("pkgtool_body_memory_bytes", help)
            .add(&[], present.body_bytes);
        let (waiting, running) = present.parser_jobs;
        let help = "Chat templates, images and texts that wait for a parser process.";
        page.gauge("pkgtool_parser_jobs_waiting", help)
            .add(&[], waiting);
        let help = "Chat templates, images and texts that parser processes read now.";
        page.gauge("pkgtool_parser_jobs_running", help)
            .add(&[], running);
        let created = self.tasks_created.load(Relaxed);
        page.counter("pkgtool_tasks_created", "Accepted tasks.")
            .add(&[], created);
        let mut reloads = page.counter("pkgtool_reloads", "Attempts to reload settings.");
        for (outcome, count) in ["failed", "done"].iter().zip(&self.reloads) {
            reloads.add(&[("outcome", outcome)], count.load(Relaxed));
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "f64 represents milliseconds of centuries exactly"
        )]
        let at = self.reloaded_at.load(Relaxed) as f64 / 1000.0;
        if at > 0.0 {
            let help = "Time of the last successful reload since unix epoch in seconds.";
            page.gauge("pkgtool_reload_time_seconds", help).add(&[], at);
        }
        present.sizes.write(&mut page);
        processes.write(&mut page);
        page.finish()
    }

    fn requests(&self, page: &mut Page) {
        let mut routes = self.routes.all();
        routes.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut counts = page.counter("pkgtool_requests", "Answered requests.");
        for (name, route) in &routes {
            let mut all = route.counts.all();
            all.sort_by_key(|(series, _)| *series);
            for ((place, status), count) in all {
                let status = status.to_string();
                let labels = [
                    ("method", method(place)),
                    ("route", name.as_str()),
                    ("status", status.as_str()),
                ];
                counts.add(&labels, count.load(Relaxed));
            }
        }
        let mut took = page.histogram("pkgtool_request_seconds", "Time until the response's head.");
        for (name, route) in &routes {
            took.add_histogram(&[("route", name)], &route.took);
        }
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        page.gauge("pkgtool_requests_in_flight", "Requests in flight.")
            .add(&[], count(self.in_flight.load(Relaxed)));
        page.gauge("pkgtool_connections_open", "Open client connections.")
            .add(&[], count(self.connections.open.load(Relaxed)));
        page.counter("pkgtool_connections", "Accepted client connections.")
            .add(&[], self.connections.accepted.load(Relaxed));
        let mut limits = page.counter(
            "pkgtool_limits_reached",
            "Requests and connections rejected by a limit of the server.",
        );
        let mut reached = self.limits_reached.all();
        reached.sort_unstable_by_key(|(limit, _)| *limit);
        for (limit, count) in reached {
            limits.add(&[("limit", limit)], count.load(Relaxed));
        }
        let help = "Time that one poll of a request occupied a server thread.";
        page.histogram("pkgtool_runtime_blocked_seconds", help)
            .add_histogram(&[], &self.polls.0);
    }
}

/// Writes the requests to services, by account, operation and outcome.
fn asked(page: &mut Page, meters: &[&Arc<Meter>], names: &VisibleNames) {
    let help = "Requests to services (predict, create) and runs of tasks (task), by outcome.";
    let mut counts = page.counter("pkgtool_service_requests", help);
    for meter in meters {
        for account in meter.accounts() {
            if !names.has_account(&account.label) {
                continue;
            }
            for operation in ServiceOperation::ALL {
                for outcome in AnswerOutcome::ALL {
                    let count = account.count(operation, outcome);
                    if count == 0 {
                        continue;
                    }
                    let labels = [
                        ("service", meter.label.as_str()),
                        ("account", account.label.as_str()),
                        ("operation", operation.label()),
                        ("outcome", outcome.label()),
                    ];
                    counts.add(&labels, count);
                }
            }
        }
    }
}

/// Writes how services ran: times, batches, loads and crashes.
fn write_service_runs(page: &mut Page, meters: &[&Arc<Meter>]) {
    let times: [HistogramMetric; 6] = [
        (
            "pkgtool_predict_seconds",
            "Time of a synchronous predict, until the response's head.",
            |meter| &meter.predicts,
        ),
        (
            "pkgtool_task_wait_seconds",
            "Time from the creation of a task to its run.",
            |meter| &meter.task_waits,
        ),
        (
            "pkgtool_task_run_seconds",
            "Time of a task's run, including its wait in the engine's queue.",
            |meter| &meter.task_runs,
        ),
        (
            "pkgtool_queue_wait_seconds",
            "Time a request waited for a session.",
            |meter| &meter.waits,
        ),
        (
            "pkgtool_model_seconds",
            "Time of a run of the model.",
            |meter| &meter.runs,
        ),
        (
            "pkgtool_batch_size",
            "Requests batched into one run of the model.",
            |meter| &meter.batches,
        ),
    ];
    for (name, help, of) in times {
        let mut samples = page.histogram(name, help);
        for meter in meters {
            let histogram = of(meter);
            // Services that proxy another HTTP service have neither queue nor model.
            if !histogram.is_empty() {
                samples.add_histogram(&[("service", &meter.label)], histogram);
            }
        }
    }
    let counts: [CounterMetric; 3] = [
        ("pkgtool_worker_starts", "Loads of sessions.", |meter| {
            &meter.starts
        }),
        (
            "pkgtool_worker_restarts",
            "Sessions loaded to replace a crashed one.",
            |meter| &meter.restarts,
        ),
        (
            "pkgtool_worker_deaths",
            "Sessions that crashed in a run.",
            |meter| &meter.deaths,
        ),
    ];
    for (name, help, of) in counts {
        let mut samples = page.counter(name, help);
        for meter in meters {
            samples.add(&[("service", &meter.label)], of(meter).load(Relaxed));
        }
    }
}

/// Writes the upstream addresses of proxies, for operators and owners only.
fn write_upstreams(page: &mut Page, services: &[Arc<Service>], names: &VisibleNames) {
    let mut states: BTreeMap<(&str, String), (bool, usize)> = BTreeMap::new();
    for service in services {
        let ServiceKind::Proxy(upstream) = &service.kind else {
            continue;
        };
        if !names.has_account(&service.owner_name) {
            continue;
        }
        for address in upstream.addresses() {
            let key = (service.meter.label.as_str(), address.address);
            // Services and addresses may share labels.
            let (is_up, calls) = states.entry(key).or_insert((true, 0));
            *is_up &= address.is_up;
            *calls += address.in_flight;
        }
    }
    let help = "1 if an upstream address of a proxy receives requests, else 0.";
    let mut samples = page.gauge("pkgtool_upstream_up", help);
    for ((service, address), (is_up, _)) in &states {
        let labels = [("service", *service), ("address", address.as_str())];
        samples.add(&labels, usize::from(*is_up));
    }
    let help = "Calls in flight to an upstream address of a proxy.";
    let mut samples = page.gauge("pkgtool_upstream_calls", help);
    for ((service, address), (_, calls)) in &states {
        let labels = [("service", *service), ("address", address.as_str())];
        samples.add(&labels, *calls);
    }
}

/// Writes the attached workers, for operators and owners only. Workers of a machine and a service share labels.
fn write_workers(page: &mut Page, workers: &[WorkerInfo], names: &VisibleNames) {
    let mut machines: BTreeMap<(String, &str), MachineMetrics> = BTreeMap::new();
    for worker in workers {
        if !names.has_account(&worker.account_name) {
            continue;
        }
        let service = format!("{}/{}", worker.account_name, worker.service);
        let mut key = (service, worker.machine());
        if machines.len() >= MAX_MACHINES && !machines.contains_key(&key) {
            key.1 = "other";
        }
        let machine = machines.entry(key).or_default();
        machine.workers += 1;
        machine.in_flight += worker.activity.in_flight;
        machine.capacity += worker.activity.capacity;
    }
    let gauges: [MachineMetric; 3] = [
        (
            "pkgtool_attached_workers",
            "Workers that are attached.",
            |it| it.workers,
        ),
        (
            "pkgtool_attached_requests",
            "Requests in flight of attached workers.",
            |it| it.in_flight,
        ),
        (
            "pkgtool_attached_capacity",
            "Maximum number of requests in flight of attached workers.",
            |it| it.capacity,
        ),
    ];
    for (name, help, of) in gauges {
        let mut samples = page.gauge(name, help);
        for ((service, machine), metrics) in &machines {
            samples.add(&[("service", service), ("machine", machine)], of(metrics));
        }
    }
}

/// Writes the devices, which belong to operators.
fn write_devices(page: &mut Page, devices: &[DeviceStatus]) {
    let help = "1 if the device is connected, 0 if it is away.";
    let mut samples = page.gauge("pkgtool_device_connected", help);
    for device in devices {
        let is_connected = u64::from(device.away.is_none());
        samples.add(&[("device", &device.name)], is_connected);
    }
}

/// The workers of a service on one machine.
#[derive(Debug, Default)]
struct MachineMetrics {
    workers: usize,
    in_flight: usize,
    capacity: usize,
}

/// Writes CPU time and stored bytes of accounts.
fn write_accounts(page: &mut Page, accounts: &[AccountMetrics]) {
    let help = "CPU time of the models that ran an account's requests.";
    let mut samples = page.counter("pkgtool_account_cpu_seconds", help);
    for account in accounts {
        samples.add(&[("account", &account.name)], account.cpu.as_secs_f64());
    }
    let help = "Stored bytes of an account, counted periodically.";
    let mut samples = page.gauge("pkgtool_account_stored_bytes", help);
    for account in accounts {
        for (kind, bytes) in &account.stored {
            let labels = [("account", account.name.as_str()), ("kind", *kind)];
            samples.add(&labels, *bytes);
        }
    }
}

fn write_tasks(page: &mut Page, present: &CurrentState) {
    if let Some((waiting, running)) = present.tasks {
        page.gauge("pkgtool_tasks_waiting", "Waiting tasks.")
            .add(&[], waiting);
        page.gauge("pkgtool_tasks_running", "Running tasks.")
            .add(&[], running);
    }
    if let Some(wait) = present.longest_wait {
        let help = "How long the task that waits longest has waited; 0 if none waits.";
        page.gauge("pkgtool_tasks_longest_wait_seconds", help)
            .add(&[], wait.as_secs_f64());
    }
    let times = present.store.times();
    for (name, help, histogram) in [
        (
            "pkgtool_store_commit_seconds",
            "Time to store a group of changes of tasks.",
            &times.commits,
        ),
        (
            "pkgtool_store_claim_seconds",
            "Time to claim tasks, of any number.",
            &times.claims,
        ),
    ] {
        page.histogram(name, help).add_histogram(&[], histogram);
    }
}

/// Writes totals of services and their sessions.
fn write_session_totals(page: &mut Page, present: &CurrentState) {
    let services = &present.services;
    page.gauge("pkgtool_services", "Services.")
        .add(&[], services.len());
    page.gauge("pkgtool_packages_unserved", "Packages that are not served.")
        .add(&[], present.unserved);
    let count: usize = services.iter().map(|it| it.sessions().len()).sum();
    page.gauge("pkgtool_sessions", "Loaded sessions.")
        .add(&[], count);
    page.gauge(
        "pkgtool_session_bytes",
        "Memory of loaded sessions, as the budget counts it.",
    )
    .add(&[], present.memory.0);
    page.gauge(
        "pkgtool_session_budget_bytes",
        "Memory budget of all sessions.",
    )
    .add(&[], present.memory.1);
}

/// Writes sessions and queues, by service.
fn write_sessions_and_queues(page: &mut Page, present: &CurrentState, processes: &ProcessMetrics) {
    let services = present.services.iter();
    let services = services.filter(|it| present.names.has_service(&it.meter.label));
    let services: Vec<Arc<Service>> = services.cloned().collect();
    let numbered = NumberedSessions::of(&services);
    let help = "Memory of a loaded session, as the budget counts it.";
    let mut samples = page.gauge("pkgtool_session_memory_bytes", help);
    for (service, number, session) in &numbered.0 {
        let labels = [("service", *service), ("session", number.as_str())];
        samples.add(&labels, session.bytes);
    }
    let help = "Resident memory of a session's process.";
    let mut samples = page.gauge("pkgtool_session_resident_bytes", help);
    for (service, number, session) in &numbered.0 {
        let process = session.process;
        let Some(bytes) = process.and_then(|process| processes.resident(process)) else {
            continue;
        };
        let labels = [("service", *service), ("session", number.as_str())];
        samples.add(&labels, bytes);
    }
    let doing: [GaugeMetric; 2] = [
        (
            "pkgtool_queue_waiting",
            "Requests that wait for a session or a worker.",
            |service| activity(service).0,
        ),
        (
            "pkgtool_queue_running",
            "Requests that a session or a worker runs.",
            |service| activity(service).1,
        ),
    ];
    for (name, help, of) in doing {
        let mut samples = page.gauge(name, help);
        for (label, services) in by_label(&services) {
            let sum: usize = services.iter().map(|service| of(service)).sum();
            samples.add(&[("service", label)], sum);
        }
    }
}

/// Sessions, numbered among those with the same label.
struct NumberedSessions<'s>(Vec<(&'s str, String, SessionState)>);

impl<'s> NumberedSessions<'s> {
    fn of(services: &'s [Arc<Service>]) -> Self {
        let mut all = Vec::new();
        for (label, services) in by_label(services) {
            let of_label = services.iter().flat_map(|it| it.sessions());
            for (number, session) in of_label.enumerate() {
                all.push((label, (number + 1).to_string(), session));
            }
        }
        Self(all)
    }
}

/// Groups services by their label. Services beyond the maximum number of labels share one.
fn by_label(services: &[Arc<Service>]) -> BTreeMap<&str, Vec<&Service>> {
    let mut labels: BTreeMap<&str, Vec<&Service>> = BTreeMap::new();
    for service in services {
        if matches!(
            service.kind,
            ServiceKind::Device(_) | ServiceKind::Attached(_)
        ) {
            let same = labels.entry(&service.meter.label).or_default();
            same.push(service);
        }
    }
    labels
}

/// Returns the number of waiting and running requests of a service.
fn activity(service: &Service) -> (usize, usize) {
    match &service.kind {
        ServiceKind::Device(device) => {
            let activity = device.activity();
            (activity.waiting, activity.running)
        }
        ServiceKind::Attached(attached) => attached.activity(),
        ServiceKind::Proxy(_) | ServiceKind::Untrained(_) => (0, 0),
    }
}
