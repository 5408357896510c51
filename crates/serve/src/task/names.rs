//! Names of blobs below the blob directory, or below the prefix of a bucket.
//!
//! Invariant: names in a directory never change, because existing data directories use them. Names
//! in a bucket contain the day of the task, so that a sweep can list single days.

use object_store::path::Path as Name;

use super::{Lease, NamedBlob, TaskId};

/// Folders of the blobs of tasks.
pub(super) const BODIES: &str = "body";
pub(super) const ANSWERS: &str = "answer";

/// How the names of blobs begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobNames {
    /// `body/01/ID`, in a directory.
    ByShard,
    /// `body/2026-11-30/01/ID`, in a bucket.
    ByDay,
}

impl BlobNames {
    /// Returns the name of a body.
    pub(super) fn body(self, task: TaskId) -> Name {
        Name::from(format!("{BODIES}/{}/{task}", self.folder(task)))
    }

    /// Returns the name of an answer.
    pub(super) fn answer(self, lease: Lease) -> Name {
        let (task, attempt) = (lease.task, lease.attempt);
        Name::from(format!("{ANSWERS}/{}/{task}.{attempt}", self.folder(task)))
    }

    /// Returns the name of a blob that a task needs.
    pub(super) fn blob(self, blob: &NamedBlob) -> Name {
        let task = blob.task;
        match blob.attempt {
            None => self.body(task),
            Some(attempt) => self.answer(Lease { task, attempt }),
        }
    }

    /// Returns the name of a file. The prefix `d-` differs from all task names, so the sweep of
    /// orphaned task blobs skips files.
    pub(super) fn file(self, kind: &str, id: TaskId) -> String {
        format!("{kind}/{}/d-{id}", self.folder(id))
    }

    /// Returns the folder of a task's blobs. The last characters of an id are random, which spreads
    /// blobs evenly.
    fn folder(self, task: TaskId) -> String {
        let text = task.to_string();
        let shard = &text[text.len() - 2..];
        match self {
            Self::ByShard => shard.to_owned(),
            Self::ByDay => format!("{}/{shard}", task.made_at().day().to_iso()),
        }
    }
}

/// Returns the task of a blob, and the attempt if it is an answer; `None` if the name does not
/// belong to a task.
pub(super) fn task_of(name: &Name) -> Option<(TaskId, Option<u32>)> {
    let text = name.filename()?;
    let (id, attempt) = match text.split_once('.') {
        Some((id, attempt)) => (id, attempt.parse().ok()),
        None => (text, None),
    };
    Some((id.parse().ok()?, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_task_and_its_day() {
        let id = "019ad2c4-7c00-7000-8000-0000000000ab";
        let task: TaskId = id.parse().expect("it is one");
        let day = task.made_at().day().to_iso();
        let lease = Lease { task, attempt: 3 };
        let names = BlobNames::ByDay;
        assert_eq!(names.body(task).as_ref(), format!("body/{day}/ab/{id}"));
        assert_eq!(
            names.answer(lease).as_ref(),
            format!("answer/{day}/ab/{id}.3")
        );
        assert_eq!(names.file("file", task), format!("file/{day}/ab/d-{id}"));
        let names = BlobNames::ByShard;
        assert_eq!(names.body(task).as_ref(), format!("body/ab/{id}"));
        assert_eq!(task_of(&names.body(task)), Some((task, None)));
        assert_eq!(task_of(&names.answer(lease)), Some((task, Some(3))));
        let file = Name::from(names.file("file", task));
        assert_eq!(task_of(&file), None);
    }
}
