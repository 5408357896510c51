//! Asynchronous tasks: predict requests that are accepted now and answered later, and the stores
//! that keep them.
//!
//! The gateway enqueues a task through [`TaskStore`]. The [`TaskQueue`] claims it, calls its
//! service and stores the outcome.
//!
//! Invariant: a task that [`TaskStore::enqueue`] accepted is on disk and reaches exactly one final
//! state. A task returns from running to waiting only when its run is released, for example after a
//! crash.

mod answered;
mod backup;
mod blob_error;
mod blobs;
mod bucket_record;
mod cleaning;
mod failure;
mod files;
mod hold;
mod id;
mod limits;
mod names;
mod postgres;
mod queue;
mod rate;
mod record;
mod recorded;
mod sqlite;
mod store;
mod stored;
mod stores;
mod sweep;
mod times;
mod transfer;
mod transfer_objects;
mod transferred;
mod turns;
mod upload;
mod waiters;

pub use answered::StoredAnswer;
pub use backup::{Backup, BackupError, backup};
pub use blob_error::BlobError;
pub use blobs::Blobs;
pub use bucket_record::BucketRecord;
pub use cleaning::remove_in_batches;
pub use failure::{BAD_REQUEST, SERVICE_UNAVAILABLE};
pub use files::FileKind;
pub use id::{TaskId, TaskIds};
pub use limits::{Caps, Limit, Quota, TaskLimits};
pub use postgres::{ServerInfo, SharedServers};
pub use queue::{AbsentServices, FindNamedService, PausedServices, QueueOptions, TaskQueue};
pub use record::{
    ClaimedTask, Deletion, Idempotency, Lease, NamedBlob, NewTask, OnCrash, RemovedTasks,
    Statistics, Status, StoredContent, Task, TaskFailure, TaskOutcome,
};
pub use store::{EnqueueError, TaskEvent, TaskStore};
pub use stores::Stores;
pub use sweep::SweepCursor;
pub use times::StoreTimes;
pub use transfer::transfer;
pub use transferred::{TransferError, Transferred};
pub use turns::AccountTurns;
pub use upload::Upload;
pub use waiters::{Waiter, Waiters};
