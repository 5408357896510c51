//! The metrics: what is counted of requests and connections, and the page with it, the services, the
//! store and the process.
//!
//! Invariant: counting a request takes no lock; what a page needs beyond counts is looked up when it is
//! asked for.

mod page;
mod process;
mod storage;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::http::Method;

use crate::database::Timestamp;
use crate::metric::{Family, Histogram, OTHER};
pub(super) use page::{Names, OfAccount, Present};
use storage::{Sizes, Storage};

/// Methods with a label of their own: methods are the client's to choose.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::PUT,
    Method::PATCH,
];

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    routes: Family<String, Route>,
    in_flight: AtomicI64,
    /// What a limit of the server refused, by the limit.
    limits_reached: Family<&'static str, AtomicU64>,
    tasks_created: AtomicU64,
    connections: Arc<Connections>,
    reloads: [AtomicU64; 2],
    /// When settings were taken over last; 0 is never.
    reloaded_at: AtomicI64,
    storage: Arc<Storage>,
    polls: Polls,
}

/// How long single steps of requests kept a thread of the server.
#[derive(Debug)]
struct Polls(Histogram);

impl Default for Polls {
    fn default() -> Self {
        Self(Histogram::seconds())
    }
}

/// Requests of one route.
#[derive(Debug)]
struct Route {
    took: Histogram,
    /// By method, as a place in [`METHODS`], and status.
    counts: Family<(usize, u16), AtomicU64>,
}

/// Connections of clients.
#[derive(Debug, Default)]
struct Connections {
    open: AtomicI64,
    accepted: AtomicU64,
}

/// A connection that is open.
pub(super) struct Open(Arc<Connections>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    /// Counts a request that came, until [`Self::answered`].
    pub(super) fn came(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Counts a step of a request that kept a thread of the server for so long.
    pub(super) fn polled(&self, took: Duration) {
        self.polls.0.time(took);
    }

    /// Counts a connection until the answer is dropped.
    pub(super) fn connected(&self) -> Open {
        self.connections.open.fetch_add(1, Relaxed);
        self.connections.accepted.fetch_add(1, Relaxed);
        Open(Arc::clone(&self.connections))
    }

    /// Counts a request that is answered, or whose client did not wait.
    pub(super) fn answered(&self, method: &Method, route: &str, status: u16, took: Duration) {
        self.in_flight.fetch_sub(1, Relaxed);
        let known = METHODS.iter().position(|known| known == method);
        let series = (known.unwrap_or(METHODS.len()), status);
        self.routes.with(route, Route::new, |route| {
            route.took.time(took);
            route.counts.with(&series, AtomicU64::default, one_more);
        });
    }

    /// Counts a request of which not even the head could be read.
    pub(super) fn unread(&self, status: u16) {
        let series = (METHODS.len(), status);
        self.routes.with("unmatched", Route::new, |route| {
            route.counts.with(&series, AtomicU64::default, one_more);
        });
    }

    pub(super) fn limit_reached(&self, limit: &'static str) {
        self.limits_reached
            .with(&limit, AtomicU64::default, one_more);
    }

    pub(super) fn created(&self) {
        self.tasks_created.fetch_add(1, Relaxed);
    }

    /// What a data directory holds.
    pub(super) async fn sizes(&self, directory: &Path) -> Sizes {
        self.storage.sizes(directory).await
    }

    /// Counts an attempt to take over settings.
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

/// The label of a place in [`METHODS`].
fn method(place: usize) -> &'static str {
    match place {
        0 => "GET",
        1 => "POST",
        2 => "DELETE",
        3 => "HEAD",
        4 => "OPTIONS",
        5 => "PUT",
        6 => "PATCH",
        _ => OTHER,
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
