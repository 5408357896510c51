//! What clients saw of tasks, and what must hold of it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

/// A state that a task has, in the order in which it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TaskState {
    Waiting,
    Running,
    Completed,
    Canceled,
}

/// A state, and when it was asked for and reported.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    asked_at: Instant,
    told_at: Instant,
    state: TaskState,
}

/// What clients know of a task.
#[derive(Debug)]
pub(super) struct KnownTask {
    /// Of the account that created it.
    pub(super) account: usize,
    key: String,
    /// The right answer.
    answer: Value,
    seen: Vec<Sighting>,
    answers: Vec<Value>,
    is_deleted: bool,
}

/// All tasks that servers accepted, by their ids.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<HashMap<String, KnownTask>>);

impl TaskState {
    /// Reads a state of the API.
    pub(super) fn read(text: &str) -> Self {
        match text {
            "QUEUED" => Self::Waiting,
            "PROCESSING" => Self::Running,
            "COMPLETED" => Self::Completed,
            "CANCELED" => Self::Canceled,
            other => panic!("no state is called {other}"),
        }
    }
}

impl History {
    fn edit<T>(&self, change: impl FnOnce(&mut HashMap<String, KnownTask>) -> T) -> T {
        change(&mut self.0.lock().expect("no panic"))
    }

    /// A server accepted a task, or said that the request is that of an accepted one.
    pub(super) fn accepted(&self, task: &str, account: usize, key: &str, answer: &Value) {
        self.edit(|tasks| {
            let known = tasks.entry(task.to_owned()).or_insert_with(|| KnownTask {
                account,
                key: key.to_owned(),
                answer: answer.clone(),
                seen: Vec::new(),
                answers: Vec::new(),
                is_deleted: false,
            });
            assert_eq!(known.key, key, "{task} is the task of two requests");
        });
    }

    /// A server reported the state of a task.
    pub(super) fn saw(&self, task: &str, state: TaskState, asked_at: Instant) {
        let told_at = Instant::now();
        self.edit(|tasks| {
            let known = tasks.get_mut(task).expect("it was accepted");
            known.seen.push(Sighting {
                asked_at,
                told_at,
                state,
            });
        });
    }

    /// A server reported the answer of a task.
    pub(super) fn answered(&self, task: &str, answer: Value) {
        self.edit(|tasks| {
            let known = tasks.get_mut(task).expect("it was accepted");
            known.answers.push(answer);
        });
    }

    /// A client deletes a task.
    pub(super) fn deleted(&self, task: &str) {
        self.edit(|tasks| tasks.get_mut(task).expect("it was accepted").is_deleted = true);
    }

    /// Lists the tasks that were not seen at their end, by account and id.
    pub(super) fn open(&self) -> Vec<(usize, String)> {
        let is_open = |known: &KnownTask| !known.seen.iter().any(|it| it.state.is_final());
        self.edit(|tasks| {
            let open = tasks.iter().filter(|(_, known)| is_open(known));
            open.map(|(task, known)| (known.account, task.clone()))
                .collect()
        })
    }

    /// Lists the tasks that are kept, by account and id.
    pub(super) fn kept(&self) -> Vec<(usize, String)> {
        self.edit(|tasks| {
            let kept = tasks.iter().filter(|(_, known)| !known.is_deleted);
            kept.map(|(task, known)| (known.account, task.clone()))
                .collect()
        })
    }

    /// Counts the tasks.
    pub(super) fn len(&self) -> usize {
        self.edit(|tasks| tasks.len())
    }

    /// Returns what must not be, given how often each task was claimed.
    pub(super) fn violations(&self, claims: &HashMap<String, u64>) -> Vec<String> {
        let mut found = Vec::new();
        self.edit(|tasks| {
            let mut keys = HashSet::new();
            for (task, known) in tasks.iter_mut() {
                if !keys.insert((known.account, known.key.clone())) {
                    found.push(format!("{task} is a second task of {}", known.key));
                }
                known.check(task, claims.get(task).copied(), &mut found);
            }
        });
        found
    }
}

impl TaskState {
    fn is_final(self) -> bool {
        self >= Self::Completed
    }
}

impl KnownTask {
    fn check(&mut self, task: &str, claims: Option<u64>, found: &mut Vec<String>) {
        self.seen.sort_by_key(|sighting| sighting.asked_at);
        for (number, later) in self.seen.iter().enumerate() {
            // What was reported before this was asked for.
            let earlier = self.seen[..number].iter();
            let earlier = earlier.filter(|earlier| earlier.told_at < later.asked_at);
            for earlier in earlier {
                let went_back = (earlier.state, later.state);
                let is_put_back = went_back == (TaskState::Running, TaskState::Waiting)
                    && claims.is_none_or(|claims| claims > 1);
                let is_other_end = earlier.state.is_final() && earlier.state != later.state;
                if (later.state < earlier.state || is_other_end) && !is_put_back {
                    found.push(format!("{task} went from {went_back:?}"));
                }
            }
        }
        if !self.seen.iter().any(|it| it.state == TaskState::Completed) {
            found.push(format!("{task} never completed"));
        }
        if self.answers.is_empty() {
            found.push(format!("{task} was never answered"));
        }
        if let Some(wrong) = self.answers.iter().find(|answer| **answer != self.answer) {
            found.push(format!("{task} was answered with {wrong}"));
        }
    }
}

#[test]
fn the_checker_of_histories_finds_what_it_has_to_find() {
    use TaskState::{Canceled, Completed, Running, Waiting};
    let story = |states: &[TaskState], answers: &[i64], claims: u64| {
        let history = History::default();
        history.accepted("t", 0, "k", &Value::from(1));
        for state in states {
            history.saw("t", *state, Instant::now());
            std::thread::sleep(std::time::Duration::from_micros(10));
        }
        for answer in answers {
            history.answered("t", Value::from(*answer));
        }
        history.violations(&HashMap::from([("t".to_owned(), claims)]))
    };
    let good: &[(&[TaskState], &[i64], u64)] = &[
        (&[Waiting, Running, Completed, Completed], &[1, 1], 1),
        (&[Running, Waiting, Running, Completed], &[1], 2),
    ];
    for (states, answers, claims) in good {
        let found = story(states, answers, *claims);
        assert!(found.is_empty(), "{states:?}: {found:?}");
    }
    let bad: &[(&[TaskState], &[i64], u64)] = &[
        (&[Running, Waiting, Completed], &[1], 1),
        (&[Completed, Running], &[1], 2),
        (&[Completed, Waiting], &[1], 2),
        (&[Completed, Canceled], &[1], 1),
        (&[Running], &[1], 1),
        (&[Completed], &[], 1),
        (&[Completed], &[1, 2], 1),
    ];
    for (states, answers, claims) in bad {
        assert_eq!(story(states, answers, *claims).len(), 1, "{states:?}");
    }
    let history = History::default();
    for task in ["t", "u"] {
        history.accepted(task, 0, "k", &Value::from(1));
        history.saw(task, Completed, Instant::now());
        history.answered(task, Value::from(1));
    }
    assert_eq!(history.violations(&HashMap::new()).len(), 1);
}
