//! The metrics page: requests, tasks, services, storage.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper ends of the histogram's buckets, in seconds.
const BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// All metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    in_flight: Gauge,
    limits_reached: Family<LimitLabels, Counter>,
    tasks_created: Counter,
    tasks_waiting: Gauge,
    tasks_running: Gauge,
    services: Gauge,
    packages_unserved: Gauge,
    sessions: Gauge,
    session_bytes: Gauge<f64, AtomicU64>,
    body_memory_bytes: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// What is read when the page is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Present {
    pub(super) tasks: Option<(u64, u64)>,
    pub(super) services: usize,
    pub(super) unserved: usize,
    pub(super) sessions: usize,
    pub(super) session_bytes: u64,
    pub(super) body_bytes: usize,
}

/// A request that is being answered.
pub(super) struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        let mut metrics = Self {
            registry: Registry::with_prefix("pkgtool"),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram as fn() -> Histogram),
            in_flight: Gauge::default(),
            limits_reached: Family::default(),
            tasks_created: Counter::default(),
            tasks_waiting: Gauge::default(),
            tasks_running: Gauge::default(),
            services: Gauge::default(),
            packages_unserved: Gauge::default(),
            sessions: Gauge::default(),
            session_bytes: Gauge::default(),
            body_memory_bytes: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        let requests = self.requests.clone();
        all.register("requests", "Requests that were answered", requests);
        let durations = self.durations.clone();
        all.register("request_seconds", "Time to the response's head", durations);
        let in_flight = self.in_flight.clone();
        all.register("requests_in_flight", "Requests being answered", in_flight);
        let limits = self.limits_reached.clone();
        all.register(
            "limits_reached",
            "Requests and connections that a limit of the server refused",
            limits,
        );
        let created = self.tasks_created.clone();
        all.register("tasks_created", "Tasks that were accepted", created);
        let waiting = self.tasks_waiting.clone();
        all.register("tasks_waiting", "Tasks that wait", waiting);
        let running = self.tasks_running.clone();
        all.register("tasks_running", "Tasks that run", running);
        all.register("services", "Services", self.services.clone());
        let unserved = self.packages_unserved.clone();
        all.register(
            "packages_unserved",
            "Packages that are not served",
            unserved,
        );
        all.register("sessions", "Loaded sessions", self.sessions.clone());
        let bytes = self.session_bytes.clone();
        all.register("session_bytes", "Memory of loaded sessions", bytes);
        let bodies = self.body_memory_bytes.clone();
        all.register(
            "body_memory_bytes",
            "Memory held for request bodies",
            bodies,
        );
    }

    pub(super) fn enter(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    pub(super) fn answered(&self, method: &Method, route: &str, status: u16, took: Duration) {
        // Methods are the client's to choose: an unknown one gets no label of its own.
        let known = [
            Method::GET,
            Method::POST,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
            Method::PUT,
            Method::PATCH,
        ];
        let method = if known.contains(method) {
            method.as_str()
        } else {
            "other"
        };
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
        let route = RouteLabels {
            route: labels.route,
        };
        let histogram = self.durations.get_or_create(&route);
        histogram.observe(took.as_secs_f64());
    }

    /// A request of which not even the head could be read.
    pub(super) fn unread(&self, status: u16) {
        let labels = RequestLabels {
            method: "other".to_owned(),
            route: "unmatched".to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
    }

    pub(super) fn limit_reached(&self, limit: &'static str) {
        self.limits_reached
            .get_or_create(&LimitLabels { limit })
            .inc();
    }

    pub(super) fn created(&self) {
        self.tasks_created.inc();
    }

    /// The page.
    #[expect(clippy::cast_precision_loss, reason = "a gauge shows bytes as a float")]
    pub(super) fn page(&self, present: Present) -> String {
        let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        if let Some((waiting, running)) = present.tasks {
            self.tasks_waiting
                .set(i64::try_from(waiting).unwrap_or(i64::MAX));
            self.tasks_running
                .set(i64::try_from(running).unwrap_or(i64::MAX));
        }
        self.services.set(number(present.services));
        self.packages_unserved.set(number(present.unserved));
        self.sessions.set(number(present.sessions));
        self.session_bytes.set(present.session_bytes as f64);
        self.body_memory_bytes.set(number(present.body_bytes));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
