//! Pauses between attempts to connect.

use std::time::Duration;

/// The first pause, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// The pauses of one gate. Each is twice the one before.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { next: PAUSES[0] }
    }

    /// Returns the next pause.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSES[1]);
        pause
    }

    /// Begins anew, after a connection that worked.
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let mut pauses = Pauses::new();
        let first: Vec<u128> = (0..9).map(|_| pauses.next().as_millis()).collect();
        assert_eq!(
            first,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        pauses.reset();
        assert_eq!(pauses.next(), PAUSES[0]);
    }
}
