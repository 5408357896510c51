//! Exact rate limit: at most N requests of an account in any window of one second.

use std::collections::{HashMap, VecDeque};

use crate::account::{AccountId, UNLIMITED};
use crate::database::Timestamp;

/// Length of the window, in milliseconds.
const WINDOW_MS: i64 = 1000;

/// Bytes of an encoded run of requests of the same millisecond: the time and their number.
const RUN_BYTES: usize = 12;

/// Times of each account's requests within the last second.
#[derive(Debug, Default)]
pub(super) struct Rates {
    windows: HashMap<AccountId, RateWindow>,
}

/// Times of an account's requests within the last second.
#[derive(Debug, Default)]
pub(super) struct RateWindow(VecDeque<i64>);

impl Rates {
    /// Counts a request, or returns the milliseconds until one will be accepted.
    pub(super) fn admit(
        &mut self,
        account: AccountId,
        limit: u32,
        now: Timestamp,
    ) -> Result<(), u64> {
        if limit == UNLIMITED {
            self.windows.remove(&account);
            return Ok(());
        }
        self.windows.entry(account).or_default().admit(limit, now)
    }
}

impl RateWindow {
    /// Counts a request, or returns the milliseconds until one will be accepted.
    pub(super) fn admit(&mut self, limit: u32, now: Timestamp) -> Result<(), u64> {
        let window = &mut self.0;
        // After the clock jumps back, requests must not wait for it to catch up.
        for made in window.iter_mut().rev().take_while(|made| **made > now.0) {
            *made = now.0;
        }
        while window
            .front()
            .is_some_and(|made| now.0 - *made >= WINDOW_MS)
        {
            window.pop_front();
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if window.len() < limit {
            window.push_back(now.0);
            return Ok(());
        }
        // The oldest request that must leave the window before the next is accepted.
        let leaves = window.get(window.len() - limit).copied();
        let after = leaves.map_or(WINDOW_MS, |made| made + WINDOW_MS - now.0);
        Err(u64::try_from(after).unwrap_or(0).max(1))
    }

    /// Returns the requests as bytes: at most a thousand runs.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut times = self.0.iter().peekable();
        while let Some(time) = times.next() {
            let mut count = 1_u32;
            while times.next_if_eq(&time).is_some() {
                count += 1;
            }
            bytes.extend(time.to_be_bytes());
            bytes.extend(count.to_be_bytes());
        }
        bytes
    }

    /// Reads what [`RateWindow::encode`] returned. `limit` bounds the number of requests.
    pub(super) fn decode(bytes: &[u8], limit: u32) -> Self {
        let mut window = VecDeque::new();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        for run in bytes.chunks_exact(RUN_BYTES) {
            let (time, count) = run.split_at(size_of::<i64>());
            let (Ok(time), Ok(count)) = (time.try_into(), count.try_into()) else {
                break;
            };
            let count = usize::try_from(u32::from_be_bytes(count)).unwrap_or(usize::MAX);
            window.extend(std::iter::repeat_n(
                i64::from_be_bytes(time),
                count.min(limit),
            ));
        }
        Self(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AccountId = AccountId(1);

    #[test]
    fn no_second_has_more_than_the_limit() {
        let mut rates = Rates::default();
        let mut accepted = Vec::new();
        for now in (0..5000).step_by(7) {
            if rates.admit(ONE, 10, Timestamp(now)).is_ok() {
                accepted.push(now);
            }
        }
        assert!(
            accepted
                .windows(11)
                .all(|ten| ten[10] - ten[0] >= WINDOW_MS)
        );
        assert!(accepted.len() >= 50, "{}", accepted.len());
    }

    #[test]
    fn a_refusal_says_when_to_come_again() {
        let mut rates = Rates::default();
        assert_eq!(rates.admit(ONE, 1, Timestamp(100)), Ok(()));
        assert_eq!(rates.admit(ONE, 1, Timestamp(300)), Err(800));
        assert_eq!(rates.admit(AccountId(2), 1, Timestamp(300)), Ok(()));
        assert_eq!(rates.admit(ONE, 1, Timestamp(1099)), Err(1));
        assert_eq!(rates.admit(ONE, 1, Timestamp(1100)), Ok(()));
        assert_eq!(rates.admit(ONE, 0, Timestamp(9000)), Err(1000));
        assert_eq!(rates.admit(ONE, UNLIMITED, Timestamp(9000)), Ok(()));
        assert_eq!(rates.admit(ONE, 1, Timestamp(9000)), Ok(()));
    }

    #[test]
    fn an_unlimited_rate_costs_no_memory() {
        let mut rates = Rates::default();
        assert_eq!(rates.admit(ONE, 1, Timestamp(100)), Ok(()));
        for _ in 0..10_000 {
            assert_eq!(rates.admit(ONE, UNLIMITED, Timestamp(100)), Ok(()));
        }
        assert!(rates.windows.is_empty());
        assert_eq!(rates.admit(ONE, 1, Timestamp(100)), Ok(()));
        assert_eq!(rates.admit(ONE, 1, Timestamp(300)), Err(800));
    }

    #[test]
    fn a_window_survives_its_encoding() {
        let mut window = RateWindow::default();
        for now in [5, 5, 5, 7, 900] {
            assert_eq!(window.admit(9, Timestamp(now)), Ok(()));
        }
        let encoded = window.encode();
        assert_eq!(encoded.len(), 3 * RUN_BYTES);
        assert_eq!(RateWindow::decode(&encoded, 9).0, window.0);
        assert!(RateWindow::decode(&encoded[1..], 9).0.len() <= 18);
    }

    #[test]
    fn a_clock_that_jumps_back_locks_nobody_out() {
        let mut rates = Rates::default();
        assert_eq!(rates.admit(ONE, 2, Timestamp(1_000_000)), Ok(()));
        assert_eq!(rates.admit(ONE, 2, Timestamp(1_000_001)), Ok(()));
        assert_eq!(rates.admit(ONE, 2, Timestamp(5)), Err(1000));
        assert_eq!(rates.admit(ONE, 2, Timestamp(1005)), Ok(()));
    }
}
