//! The runtime that drives connections to PostgreSQL.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::MAX_WORK_TIME;
use super::error::ErrorPlace;
use crate::database::DatabaseResult;
use crate::database::blocking::off_runtime;

/// The runtime of the connections to a database.
pub(super) struct Driver {
    pub(super) place: ErrorPlace,
    /// It is there until the end.
    runtime: Option<Runtime>,
}

impl Driver {
    pub(super) fn start(place: ErrorPlace) -> DatabaseResult<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => Ok(Self {
                place,
                runtime: Some(runtime),
            }),
            Err(error) => Err(place.other(format!("cannot start a runtime: {error}"))),
        }
    }

    /// Runs work in the background.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime().spawn(work)
    }

    /// Waits for the database.
    pub(super) fn wait<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        off_runtime(|| self.runtime().handle().block_on(work))
    }

    /// Waits for a statement, for a bounded time.
    pub(super) fn wait_for_statement<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> DatabaseResult<T> {
        let done = self.wait(async { tokio::time::timeout(MAX_WORK_TIME, work).await });
        done.map_err(|_| self.place.no_answer(MAX_WORK_TIME))
    }

    fn runtime(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("the runtime is there until the end"),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
