//! Wakes requests that wait for the end of a task.
//!
//! Invariant: the end of a task wakes its own waiters only, however many there are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::futures::Notified;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{TaskEvent, TaskId, TaskStore};

/// All waiters, and the background tasks that wake them.
#[derive(Debug)]
pub struct Waiters {
    waiting: Arc<WaitersByTask>,
    _followers: JoinSet<()>,
}

/// Waits for the end of one task.
#[derive(Debug)]
pub struct Waiter {
    waiting: Arc<WaitersByTask>,
    task: TaskId,
    end: Arc<Notify>,
}

/// The waiters by task.
#[derive(Debug, Default)]
struct WaitersByTask(Mutex<HashMap<TaskId, TaskWaiters>>);

/// The waiters of one task.
#[derive(Debug, Default)]
struct TaskWaiters {
    end: Arc<Notify>,
    waiters: usize,
}

impl Waiters {
    /// Starts to follow the events of a store. Must be called on a tokio runtime.
    pub fn start(store: Arc<dyn TaskStore>) -> Self {
        let waiting = Arc::<WaitersByTask>::default();
        let mut followers = JoinSet::new();
        followers.spawn(follow(store.events(), Arc::clone(&waiting)));
        if let Some(news) = store.news() {
            followers.spawn(follow_others(store, news, Arc::clone(&waiting)));
        }
        Self {
            waiting,
            _followers: followers,
        }
    }

    /// Registers a waiter for a task.
    pub fn wait_for(&self, task: TaskId) -> Waiter {
        let mut all = self.waiting.all();
        let ends = all.entry(task).or_default();
        ends.waiters += 1;
        Waiter {
            waiting: Arc::clone(&self.waiting),
            task,
            end: Arc::clone(&ends.end),
        }
    }
}

impl Waiter {
    /// Resolves when the task ends after this call. It may also resolve early, so the caller must
    /// check the state.
    pub fn end(&self) -> Notified<'_> {
        self.end.notified()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut all = self.waiting.all();
        if let Some(ends) = all.get_mut(&self.task) {
            ends.waiters -= 1;
            if ends.waiters == 0 {
                all.remove(&self.task);
            }
        }
    }
}

impl WaitersByTask {
    fn wake(&self, task: TaskId) {
        if let Some(ends) = self.all().get(&task) {
            ends.end.notify_waiters();
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<TaskId, TaskWaiters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(mut events: Receiver<TaskEvent>, waiting: Arc<WaitersByTask>) {
    loop {
        match events.recv().await {
            Ok(event) => waiting.wake(event.task),
            // Some events were missed: wake every waiter, so that each checks its task.
            Err(RecvError::Lagged(_)) => {
                for ends in waiting.all().values() {
                    ends.end.notify_waiters();
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Wakes the waiters of tasks that other processes end.
async fn follow_others(
    store: Arc<dyn TaskStore>,
    mut news: watch::Receiver<u64>,
    waiting: Arc<WaitersByTask>,
) {
    while news.changed().await.is_ok() {
        let tasks: Vec<TaskId> = waiting.all().keys().copied().collect();
        if tasks.is_empty() {
            continue;
        }
        match store.ended(&tasks).await {
            Ok(ended) => ended.iter().for_each(|event| waiting.wake(event.task)),
            Err(error) => tracing::debug!(%error, "cannot look for tasks that other servers ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::broadcast;

    use super::*;
    use crate::task::Status;

    fn task(number: u8) -> TaskId {
        TaskId::from_bytes([number; 16])
    }

    fn waiters(events: &broadcast::Sender<TaskEvent>) -> Waiters {
        let waiting = Arc::<WaitersByTask>::default();
        let mut followers = JoinSet::new();
        followers.spawn(follow(events.subscribe(), Arc::clone(&waiting)));
        Waiters {
            waiting,
            _followers: followers,
        }
    }

    fn is_over(end: std::pin::Pin<&mut Notified<'_>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        end.poll(&mut context) == Poll::Ready(())
    }

    #[tokio::test]
    async fn the_end_of_a_task_wakes_its_waiters_only() {
        let events = broadcast::Sender::new(4);
        let all = waiters(&events);
        let (first, second, other) = (
            all.wait_for(task(1)),
            all.wait_for(task(1)),
            all.wait_for(task(2)),
        );
        let (mut first_end, mut second_end, mut other_end) =
            (pin!(first.end()), pin!(second.end()), pin!(other.end()));
        let status = Status::Completed;
        for number in [9, 1] {
            let task = task(number);
            events
                .send(TaskEvent { task, status })
                .expect("it is followed");
        }
        (&mut first_end).await;
        assert!(is_over(second_end.as_mut()) && !is_over(other_end.as_mut()));
        // Overflow the event channel: everybody checks.
        for _ in 0..20 {
            let task = task(9);
            events
                .send(TaskEvent { task, status })
                .expect("it is followed");
        }
        (&mut other_end).await;
        assert_eq!(all.waiting.all().len(), 2);
    }

    #[tokio::test]
    async fn nothing_is_left_of_who_waited() {
        let all = waiters(&broadcast::Sender::new(4));
        let (first, second) = (all.wait_for(task(1)), all.wait_for(task(1)));
        drop(first);
        assert_eq!(all.waiting.all().len(), 1);
        drop(second);
        assert!(all.waiting.all().is_empty());
    }
}
