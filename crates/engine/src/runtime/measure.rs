//! Measures the run times of several sessions against each other: warm-up, then rounds in which
//! each session has its turn.
//!
//! The speed of a machine changes during a measurement. So the sessions take turns in short slices,
//! each round in another order, and ratios are computed within a round. Times are the engines' own
//! ([`Answer::time`](crate::RunAnswer::time)), measured in the worker without using the
//! channel between two runs of a slice.

use std::time::{Duration, Instant};

use super::worker::Worker;
use crate::EngineError;

/// The amount and order of runs in a measurement.
#[derive(Debug, Clone, Copy)]
pub struct MeasurePlan {
    /// Runs of each session that are discarded as warm-up.
    pub warm_up: u64,
    /// Measured amount per session.
    pub amount: Amount,
    /// Number of rounds into which the amount is divided.
    pub rounds: u32,
}

/// The amount of runs per session.
#[derive(Debug, Clone, Copy)]
pub enum Amount {
    /// Number of runs of each session.
    Runs(u64),
    /// Total time of each session; at least one run per round.
    Time(Duration),
}

/// The times of one session.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The runs of each round, in order.
    pub rounds: Vec<Vec<Duration>>,
}

impl Series {
    /// Returns the times of all runs.
    pub fn times(&self) -> impl Iterator<Item = Duration> + '_ {
        self.rounds.iter().flatten().copied()
    }
}

/// Measures sessions whose inputs are set. `progress` is called after each round.
///
/// Stops at the first error, and returns it with the index of the session that failed.
pub fn measure_interleaved(
    workers: &mut [&mut Worker],
    plan: &MeasurePlan,
    mut progress: impl FnMut(u32),
) -> Result<Vec<Series>, (usize, EngineError)> {
    for (place, worker) in workers.iter_mut().enumerate() {
        warm_up(worker, plan).map_err(|error| (place, error))?;
    }
    let count = workers.len();
    let mut series = vec![Series::default(); count];
    for round in 0..plan.rounds {
        let (runs, time) = slice(plan, round);
        if runs == 0 {
            break;
        }
        for turn in 0..count {
            // Each round starts with another session, so that none is always first or last.
            let place = (turn + round as usize) % count;
            let times = workers[place].repeat(runs, time);
            let times = times.map_err(|error| (place, error))?;
            series[place].rounds.push(times);
        }
        progress(round + 1);
    }
    Ok(series)
}

/// Runs until the warm-up is done, but not longer than the measurement itself.
fn warm_up(worker: &mut Worker, plan: &MeasurePlan) -> Result<(), EngineError> {
    let limit = match plan.amount {
        Amount::Runs(_) => Duration::MAX,
        Amount::Time(time) => time,
    };
    let start = Instant::now();
    let mut left = plan.warm_up;
    while left > 0 && start.elapsed() < limit {
        let done = worker.repeat(left, limit.saturating_sub(start.elapsed()))?;
        left = left.saturating_sub(done.len() as u64);
    }
    Ok(())
}

/// Returns the number of runs and the time of one session's slice in a round.
fn slice(plan: &MeasurePlan, round: u32) -> (u64, Duration) {
    match plan.amount {
        Amount::Time(time) => (u64::MAX, time / plan.rounds.max(1)),
        Amount::Runs(runs) => {
            let rounds = u64::from(plan.rounds.max(1));
            let extra = u64::from(u64::from(round) < runs % rounds);
            (runs / rounds + extra, Duration::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_add_up_to_the_runs() {
        for runs in [1, 7, 20, 1003] {
            let plan = MeasurePlan {
                warm_up: 0,
                amount: Amount::Runs(runs),
                rounds: 20,
            };
            let sum: u64 = (0..plan.rounds).map(|round| slice(&plan, round).0).sum();
            assert_eq!(sum, runs);
        }
    }
}
