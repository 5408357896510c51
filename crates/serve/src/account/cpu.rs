//! Counts the CPU time of the models that ran each account's requests.
//!
//! Invariant: counting takes one short lock. The time of today includes what is not stored yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::record::AccountId;
use crate::database::{Day, Timestamp};

/// CPU time of an account on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuUsed {
    /// The account.
    pub account: AccountId,
    /// The day.
    pub day: Day,
    /// CPU time, in microseconds.
    pub micros: u64,
}

/// Counts CPU time by account.
#[derive(Debug, Default)]
pub struct CpuCounts(Mutex<CpuState>);

#[derive(Debug, Default)]
struct CpuState {
    /// The day of `today`.
    day: Option<Day>,
    today: HashMap<AccountId, u64>,
    /// Totals since the start of the process.
    total: HashMap<AccountId, u64>,
    pending: HashMap<(AccountId, Day), u64>,
}

impl CpuCounts {
    /// Adds CPU time.
    pub fn add(&self, account: AccountId, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let day = Timestamp::now().day();
        let mut state = self.state();
        state.start_day(day);
        let CpuState {
            today,
            total,
            pending,
            ..
        } = &mut *state;
        for sum in [
            today.entry(account).or_default(),
            total.entry(account).or_default(),
            pending.entry((account, day)).or_default(),
        ] {
            *sum = sum.saturating_add(micros);
        }
    }

    /// Returns the CPU time of an account today.
    pub fn today(&self, account: AccountId) -> Duration {
        let mut state = self.state();
        state.start_day(Timestamp::now().day());
        Duration::from_micros(state.today.get(&account).copied().unwrap_or(0))
    }

    /// Returns the CPU time of each account since the start of the process, in microseconds.
    pub fn totals(&self) -> Vec<(AccountId, u64)> {
        let state = self.state();
        let mut totals: Vec<_> = state.total.iter().map(|(id, sum)| (*id, *sum)).collect();
        totals.sort_unstable();
        totals
    }

    /// Adds the stored time of today, from before the process started.
    pub(super) fn restore(&self, used: &[CpuUsed]) {
        let today = Timestamp::now().day();
        let mut state = self.state();
        state.start_day(today);
        for used in used.iter().filter(|used| used.day == today) {
            let sum = state.today.entry(used.account).or_default();
            *sum = sum.saturating_add(used.micros);
        }
    }

    /// Takes the time that is not stored yet.
    pub(super) fn take(&self) -> Vec<CpuUsed> {
        let pending = std::mem::take(&mut self.state().pending);
        let pending = pending.into_iter();
        pending
            .map(|((account, day), micros)| CpuUsed {
                account,
                day,
                micros,
            })
            .collect()
    }

    /// Returns time that could not be stored.
    pub(super) fn put_back(&self, used: Vec<CpuUsed>) {
        let mut state = self.state();
        for used in used {
            let sum = state.pending.entry((used.account, used.day)).or_default();
            *sum = sum.saturating_add(used.micros);
        }
    }

    fn state(&self) -> MutexGuard<'_, CpuState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CpuState {
    /// Resets the time of today if the day has changed.
    fn start_day(&mut self, day: Day) {
        if self.day != Some(day) {
            self.day = Some(day);
            self.today.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_stored_is_stored_later() {
        let counts = CpuCounts::default();
        let account = AccountId(1);
        let day = Timestamp::now().day();
        counts.restore(&[CpuUsed {
            account,
            day,
            micros: 500,
        }]);
        counts.add(account, Duration::from_micros(100));
        let taken = counts.take();
        counts.add(account, Duration::from_micros(20));
        counts.put_back(taken);
        let micros = counts.take().iter().map(|used| used.micros).sum::<u64>();
        assert_eq!(micros, 120);
        assert_eq!(counts.today(account), Duration::from_micros(620));
        assert_eq!(counts.totals(), [(account, 120)]);
    }

    #[test]
    fn every_day_starts_at_nothing() {
        let mut state = CpuState::default();
        state.start_day(Day(1));
        state.today.insert(AccountId(1), 7);
        state.start_day(Day(1));
        assert_eq!(state.today.len(), 1);
        state.start_day(Day(2));
        assert!(state.today.is_empty());
    }
}
