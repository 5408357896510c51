//! Metrics of the gateway: counters of requests and connections, and the Prometheus page that shows
//! them.
//!
//! The page also shows the state of services, the store and the process, which is read when the
//! page is requested.
//!
//! Invariant: counting a request takes no lock on its usual path.

mod page;
mod process;
mod storage;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::http::Method;

use crate::database::Timestamp;
use crate::metric::{Family, Histogram, OTHER_LABEL};
pub(super) use page::{AccountMetrics, CurrentState, VisibleNames};
use storage::{StorageCount, StorageSizes};

/// Methods with their own label. All others share one, since clients choose methods freely.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::PUT,
    Method::PATCH,
];

/// The counters of the gateway.
#[derive(Debug, Default)]
pub(super) struct GatewayMetrics {
    routes: Family<String, Route>,
    in_flight: AtomicI64,
    ended: AtomicU64,
    /// Rejected requests and connections, by the limit they reached.
    limits_reached: Family<&'static str, AtomicU64>,
    tasks_created: AtomicU64,
    connections: Arc<ConnectionCounts>,
    reloads: [AtomicU64; 2],
    /// Time of the last successful reload, in seconds since the Unix epoch; 0 if none happened.
    reloaded_at: AtomicI64,
    storage: Arc<StorageCount>,
    polls: PollTimes,
}

/// How long single polls of request futures occupied a thread.
#[derive(Debug)]
struct PollTimes(Histogram);

impl Default for PollTimes {
    fn default() -> Self {
        Self(Histogram::seconds())
    }
}

/// Requests of one route.
#[derive(Debug)]
struct Route {
    took: Histogram,
    /// By method, as an index into [`METHODS`], and status.
    counts: Family<(usize, u16), AtomicU64>,
}

/// Connections of clients.
#[derive(Debug, Default)]
struct ConnectionCounts {
    open: AtomicI64,
    accepted: AtomicU64,
}

/// An open connection, until it is dropped.
pub(super) struct OpenConnectionGuard(Arc<ConnectionCounts>);

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl GatewayMetrics {
    /// Counts a request as in flight, until `request_ended`.
    pub(super) fn request_started(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Records how long one poll of a request occupied a thread.
    pub(super) fn polled(&self, took: Duration) {
        self.polls.0.time(took);
    }

    /// Counts a connection as open until the returned guard is dropped.
    pub(super) fn connection_opened(&self) -> OpenConnectionGuard {
        self.connections.open.fetch_add(1, Relaxed);
        self.connections.accepted.fetch_add(1, Relaxed);
        OpenConnectionGuard(Arc::clone(&self.connections))
    }

    /// Counts a request that was answered, or whose client disconnected.
    pub(super) fn request_ended(&self, method: &Method, route: &str, status: u16, took: Duration) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.ended.fetch_add(1, Relaxed);
        let known = METHODS.iter().position(|known| known == method);
        let series = (known.unwrap_or(METHODS.len()), status);
        self.routes.with(route, Route::new, |route| {
            route.took.time(took);
            route.counts.with(&series, AtomicU64::default, one_more);
        });
    }

    /// Returns the number of requests that were answered, or whose client disconnected.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// Counts a request whose head could not be read.
    pub(super) fn unreadable_request(&self, status: u16) {
        let series = (METHODS.len(), status);
        self.routes.with("unmatched", Route::new, |route| {
            route.counts.with(&series, AtomicU64::default, one_more);
        });
    }

    pub(super) fn limit_reached(&self, limit: &'static str) {
        self.limits_reached
            .with(&limit, AtomicU64::default, one_more);
    }

    pub(super) fn task_created(&self) {
        self.tasks_created.fetch_add(1, Relaxed);
    }

    /// Returns the sizes of the data directory.
    pub(super) async fn sizes(&self, directory: &Path) -> StorageSizes {
        self.storage.sizes(directory).await
    }

    /// Counts a reload.
    pub(super) fn reloaded(&self, succeeded: bool) {
        self.reloads[usize::from(succeeded)].fetch_add(1, Relaxed);
        if succeeded {
            self.reloaded_at.store(Timestamp::now().0, Relaxed);
        }
    }
}

impl Route {
    fn new() -> Self {
        Self {
            took: Histogram::seconds(),
            counts: Family::default(),
        }
    }
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// Returns the label of an index into [`METHODS`].
fn method(place: usize) -> &'static str {
    match place {
        0 => "GET",
        1 => "POST",
        2 => "DELETE",
        3 => "HEAD",
        4 => "OPTIONS",
        5 => "PUT",
        6 => "PATCH",
        _ => OTHER_LABEL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_named_by_their_place() {
        for (place, known) in METHODS.iter().enumerate() {
            assert_eq!(method(place), known.as_str());
        }
        assert_eq!(method(METHODS.len()), "other");
    }
}
