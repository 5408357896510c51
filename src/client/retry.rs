//! Which failures are tried again, and after which pause.

use std::time::Duration;

use super::ClientError;

/// How often a request is sent, at most.
const TRIES: u32 = 5;

/// The first pause; each is twice the one before, and a part of it is left to chance.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A longer wait is the user's decision.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safe {
    /// Always: a second time does nothing that the first did not.
    Always,
    /// If no answer came: an error that came is the answer.
    IfUnreachable,
    /// If it was certainly not accepted.
    BeforeItWasSent,
}

/// What was tried so far.
#[derive(Debug)]
pub(super) struct Tries {
    safe: Safe,
    made: u32,
}

impl Tries {
    pub(super) fn new(safe: Safe) -> Self {
        Self { safe, made: 0 }
    }

    /// The pause before the next try; `None` if there is none.
    pub(super) fn pause(&mut self, error: &ClientError) -> Option<Duration> {
        self.made += 1;
        if self.made >= TRIES || !self.helps(error) {
            return None;
        }
        let asked = match error {
            ClientError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        };
        let own = FIRST_PAUSE * 2_u32.pow(self.made - 1);
        let pause = asked
            .unwrap_or(Duration::ZERO)
            .max(own.mul_f64(0.5 + 0.5 * chance()));
        (pause <= LONGEST_PAUSE).then_some(pause)
    }

    fn helps(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Usage(_)
            | ClientError::Protocol(_)
            | ClientError::Refused { final_: true, .. } => false,
            ClientError::Unreachable { unsent, .. } => {
                *unsent || self.safe != Safe::BeforeItWasSent
            }
            ClientError::Refused { status, .. } => match self.safe {
                Safe::Always => *status == 429 || *status >= 500,
                Safe::IfUnreachable => *status == 429,
                Safe::BeforeItWasSent => matches!(*status, 429 | 503),
            },
        }
    }
}

/// From 0 to 1. Without randomness everybody waits the same time.
fn chance() -> f64 {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
