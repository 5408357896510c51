//! The retention clock: decides when data of limited retention may be deleted.
//!
//! Invariant: while the server runs, data is kept for at least its retention, even if the system
//! clock jumps ahead. A jump of up to a day is assumed to be time in which the server was off.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Day, Timestamp};

/// Name of the file in a data directory.
const CLOCK_FILE: &str = "retention.json";

/// Maximum jump of the clock that is trusted, in milliseconds.
const MAX_TRUSTED_JUMP_MS: i64 = 24 * 3600 * 1000;

/// Interval between writes of the file.
const WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of jumps that are tracked separately.
const MAX_JUMPS: usize = 256;

/// A clock for retention. It follows the system clock, but a jump ahead counts only after data was
/// kept for its full retention since the jump.
#[derive(Debug)]
pub struct RetentionClock {
    file: PathBuf,
    state: Mutex<RetentionState>,
}

#[derive(Debug)]
struct RetentionState {
    known: PersistentState,
    looked: Instant,
    written: Option<Instant>,
}

/// The persistent state.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
struct PersistentState {
    /// Last observed time of the system clock, in milliseconds.
    seen: i64,
    jumps: Vec<Jump>,
}

/// A jump of the system clock ahead of elapsed time.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Jump {
    /// Size of the jump, in milliseconds.
    ahead: i64,
    /// How long the server has run since, in milliseconds.
    age: i64,
}

impl RetentionClock {
    /// Opens the clock of a data directory. Without a stored state, the current time is compared
    /// with `newest`, the newest stored time.
    pub fn open(directory: &Path, newest: Option<Timestamp>) -> Self {
        let file = directory.join(CLOCK_FILE);
        let kept = fs::read(&file).ok();
        let kept = kept.and_then(|text| serde_json::from_slice::<PersistentState>(&text).ok());
        let known = kept.unwrap_or_else(|| PersistentState {
            seen: newest.unwrap_or_else(Timestamp::now).0,
            jumps: Vec::new(),
        });
        let clock = Self {
            file,
            state: Mutex::new(RetentionState {
                known,
                looked: Instant::now(),
                written: None,
            }),
        };
        drop(clock.look());
        clock
    }

    /// Returns the time before which data with this retention may be deleted.
    pub fn kept_since(&self, while_: Duration) -> Timestamp {
        self.present(while_).before(while_)
    }

    /// Returns the day before which data with a retention of `days` may be deleted.
    pub fn kept_since_day(&self, days: u32) -> Day {
        let while_ = Duration::from_hours(24).saturating_mul(days);
        self.present(while_).day().before(days)
    }

    /// Returns the current time for data with this retention.
    pub fn present(&self, while_: Duration) -> Timestamp {
        let state = self.look();
        Timestamp(state.known.seen).before(state.known.behind(while_))
    }

    fn look(&self) -> MutexGuard<'_, RetentionState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let passed = now.duration_since(state.looked);
        state.looked = now;
        let has_jumped = state.known.look(Timestamp::now(), passed);
        let is_due = |written: Instant| now.duration_since(written) >= WRITE_INTERVAL;
        if has_jumped || state.written.is_none_or(is_due) {
            state.written = Some(now);
            if let Err(error) = state.known.write(&self.file) {
                tracing::warn!(%error, "the retention clock could not be stored");
            }
        }
        state
    }
}

impl PersistentState {
    /// Follows the system clock after `passed`; returns `true` if it jumped ahead.
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
        if jumped <= MAX_TRUSTED_JUMP_MS {
            return false;
        }
        let days = jumped / MAX_TRUSTED_JUMP_MS;
        tracing::warn!(
            days,
            "the system clock is ahead of the last stored time: data is not deleted by age before that time \
             has passed; correct the clock if it is wrong"
        );
        self.jumps.push(Jump {
            ahead: jumped - MAX_TRUSTED_JUMP_MS,
            age: 0,
        });
        if self.jumps.len() > MAX_JUMPS {
            let first = self.jumps.remove(0);
            self.jumps[0].ahead = self.jumps[0].ahead.saturating_add(first.ahead);
        }
        true
    }

    /// Handles a clock that was set back: this undoes the last jumps.
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

    /// Returns how far this clock is behind the system clock for data with this retention. Jumps
    /// longer ago than the retention no longer count.
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

    const DAY: i64 = MAX_TRUSTED_JUMP_MS;
    const WEEK: Duration = Duration::from_hours(24 * 7);

    fn since(known: &PersistentState) -> i64 {
        Timestamp(known.seen)
            .before(known.behind(WEEK))
            .before(WEEK)
            .0
    }

    fn pass(known: &mut PersistentState, days: i64) {
        let passed = Duration::from_millis(u64::try_from(days * DAY).expect("a few"));
        known.look(Timestamp(known.seen + days * DAY), passed);
    }

    fn at(days: i64) -> PersistentState {
        PersistentState {
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
        // Data stored on day 100 is kept for a week, minus the trusted day.
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
        assert!(known.jumps.len() <= MAX_JUMPS);
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
