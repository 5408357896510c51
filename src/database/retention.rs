//! The clock of what is kept for a limited time.
//!
//! Invariant: what is to be kept for a while is kept at least as long while the server runs, though the system's
//! clock jumps ahead. A jump of up to a day is taken for time in which the server was off.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Day, Timestamp};

/// The file in a data directory.
const FILE: &str = "retention.json";

/// Longest jump of the clock that is believed, in milliseconds.
const BELIEVED: i64 = 24 * 3600 * 1000;

/// How often the file is written.
const BETWEEN_WRITES: Duration = Duration::from_mins(1);

/// Most jumps that are told apart.
const MOST_JUMPS: usize = 256;

/// Says since when things are kept. It follows the system's clock, but a jump of that ahead counts only once
/// things were kept for their time after it.
#[derive(Debug)]
pub struct RetentionClock {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: Known,
    looked: Instant,
    written: Option<Instant>,
}

/// What outlives the process.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    /// The system's time when it was looked at last, in milliseconds.
    seen: i64,
    jumps: Vec<Jump>,
}

/// The clock went ahead by more than passed.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Jump {
    /// By how much, in milliseconds.
    ahead: i64,
    /// How long the server ran since, in milliseconds.
    age: i64,
}

impl RetentionClock {
    /// The clock of a data directory. `newest` is the newest moment that is stored there: it is what the present
    /// is compared with where no clock was kept yet.
    pub fn open(directory: &Path, newest: Option<Timestamp>) -> Self {
        let file = directory.join(FILE);
        let kept = fs::read(&file).ok();
        let kept = kept.and_then(|text| serde_json::from_slice::<Known>(&text).ok());
        let known = kept.unwrap_or_else(|| Known {
            seen: newest.unwrap_or_else(Timestamp::now).0,
            jumps: Vec::new(),
        });
        let clock = Self {
            file,
            state: Mutex::new(State {
                known,
                looked: Instant::now(),
                written: None,
            }),
        };
        drop(clock.look());
        clock
    }

    /// The moment before which everything may go that is kept for a while.
    pub fn kept_since(&self, while_: Duration) -> Timestamp {
        self.present(while_).before(while_)
    }

    /// The day before which everything may go that is kept for so many days.
    pub fn kept_since_day(&self, days: u32) -> Day {
        let while_ = Duration::from_hours(24).saturating_mul(days);
        self.present(while_).day().before(days)
    }

    /// The present for what is kept for a while.
    pub fn present(&self, while_: Duration) -> Timestamp {
        let state = self.look();
        Timestamp(state.known.seen).before(state.known.behind(while_))
    }

    fn look(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let passed = now.duration_since(state.looked);
        state.looked = now;
        let has_jumped = state.known.look(Timestamp::now(), passed);
        let is_due = |written: Instant| now.duration_since(written) >= BETWEEN_WRITES;
        if has_jumped || state.written.is_none_or(is_due) {
            state.written = Some(now);
            if let Err(error) = state.known.write(&self.file) {
                tracing::warn!(%error, "the retention clock cannot be stored");
            }
        }
        state
    }
}

impl Known {
    /// Follows the system's clock after some time; whether that jumped ahead.
    fn look(&mut self, wall: Timestamp, passed: Duration) -> bool {
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        for jump in &mut self.jumps {
            jump.age = jump.age.saturating_add(passed);
        }
        let jumped = wall.0.saturating_sub(self.seen.saturating_add(passed));
        self.seen = wall.0;
        if jumped < 0 {
            self.back(-jumped);
        }
        if jumped <= BELIEVED {
            return false;
        }
        let days = jumped / BELIEVED;
        tracing::warn!(
            days,
            "the clock is ahead of what was stored last: nothing is deleted for its age before that time \
             has passed; correct the clock if it is wrong"
        );
        self.jumps.push(Jump {
            ahead: jumped - BELIEVED,
            age: 0,
        });
        if self.jumps.len() > MOST_JUMPS {
            let first = self.jumps.remove(0);
            self.jumps[0].ahead = self.jumps[0].ahead.saturating_add(first.ahead);
        }
        true
    }

    /// The clock was set back: that undoes the last jumps.
    fn back(&mut self, mut by: i64) {
        while by > 0
            && let Some(last) = self.jumps.last_mut()
        {
            let undone = by.min(last.ahead);
            last.ahead -= undone;
            by -= undone;
            if last.ahead == 0 {
                self.jumps.pop();
            }
        }
    }

    /// How far the clock is behind the system's for what is kept for a while: whatever was stored before a
    /// jump has been kept for its time once the jump is that long ago.
    fn behind(&self, while_: Duration) -> Duration {
        let while_ = i64::try_from(while_.as_millis()).unwrap_or(i64::MAX);
        let recent = self.jumps.iter().filter(|jump| jump.age < while_);
        let ahead = recent.fold(0_i64, |sum, jump| sum.saturating_add(jump.ahead));
        Duration::from_millis(u64::try_from(ahead).unwrap_or(0))
    }

    fn write(&self, file: &Path) -> std::io::Result<()> {
        let temporary = file.with_extension("json.new");
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(temporary, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = BELIEVED;
    const WEEK: Duration = Duration::from_hours(24 * 7);

    fn since(known: &Known) -> i64 {
        Timestamp(known.seen)
            .before(known.behind(WEEK))
            .before(WEEK)
            .0
    }

    fn pass(known: &mut Known, days: i64) {
        let passed = Duration::from_millis(u64::try_from(days * DAY).expect("a few"));
        known.look(Timestamp(known.seen + days * DAY), passed);
    }

    fn at(days: i64) -> Known {
        Known {
            seen: days * DAY,
            jumps: Vec::new(),
        }
    }

    #[test]
    fn time_that_passes_is_believed() {
        let mut known = at(100);
        pass(&mut known, 3);
        assert_eq!(since(&known), 96 * DAY);
        // Off for a night.
        assert!(!known.look(Timestamp(known.seen + DAY / 2), Duration::ZERO));
        assert_eq!(since(&known), 96 * DAY + DAY / 2);
    }

    #[test]
    fn a_jump_ahead_counts_once_that_long_has_passed() {
        let mut known = at(100);
        assert!(known.look(Timestamp(1100 * DAY), Duration::ZERO));
        // What was stored on day 100 is kept for its week, less the day that is believed.
        assert_eq!(since(&known), 94 * DAY);
        pass(&mut known, 6);
        assert_eq!(since(&known), 100 * DAY);
        pass(&mut known, 1);
        assert_eq!(since(&known), 1100 * DAY);
    }

    #[test]
    fn a_jump_that_is_corrected_is_forgotten() {
        let mut known = at(100);
        known.look(Timestamp(1100 * DAY), Duration::ZERO);
        known.look(Timestamp(101 * DAY), Duration::ZERO);
        assert!(known.jumps.is_empty());
        assert_eq!(since(&known), 94 * DAY);
    }

    #[test]
    fn a_server_that_is_off_every_weekend_forgets_in_the_end() {
        let mut known = at(0);
        for _ in 0..400 {
            pass(&mut known, 5);
            known.look(Timestamp(known.seen + 2 * DAY + DAY / 2), Duration::ZERO);
        }
        assert!(since(&known) > known.seen - 12 * DAY);
        assert!(known.jumps.len() <= MOST_JUMPS);
    }

    #[test]
    fn the_clock_outlives_the_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let stored = Timestamp::now().before(Duration::from_hours(24 * 1000));
        let first = RetentionClock::open(directory.path(), Some(stored)).kept_since(WEEK);
        let again = RetentionClock::open(directory.path(), Some(Timestamp::now()));
        let again = again.kept_since(WEEK);
        assert!(first.0 < stored.0 && (again.0 - first.0).abs() < 60_000);
    }
}
