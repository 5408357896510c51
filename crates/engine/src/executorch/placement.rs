//! Computes on which backend each part of a method runs and how long it takes.
//!
//! The program's instructions name the backends. The first observed run measures the times.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Placement;
use pkgtool_model::Method;
use pkgtool_model::executorch::body::{Instruction, MethodBody};

/// The name of the provider for everything that is not delegated.
const CPU_PROVIDER: &str = "cpu";

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallTarget {
    /// Runs an operator's kernel.
    Kernel,
    /// Runs a delegated part on the backend of this name.
    Delegate(String),
    /// Moves or frees a value.
    Other,
}

/// Returns the instructions of a method in the order in which they run. `None` if some of them
/// jump, because the order in the file differs then.
pub(super) fn calls(method: &MethodBody) -> Option<Vec<CallTarget>> {
    let calls = method
        .instructions
        .iter()
        .map(|instruction| match instruction {
            Instruction::Kernel { .. } => Some(CallTarget::Kernel),
            Instruction::Delegate { delegate, .. } => {
                Some(CallTarget::Delegate(method.delegates[*delegate].id.clone()))
            }
            Instruction::JumpFalse { .. } => None,
            Instruction::Move { .. } | Instruction::Free { .. } => Some(CallTarget::Other),
        });
    calls.collect()
}

/// The number of nodes of one provider, and their total time.
#[derive(Debug, Default)]
struct ProviderWork {
    nodes: u64,
    time: Duration,
}

/// Computes the placement of a method whose instructions run in the order of the file. `times` are
/// the instructions' times in the first run. Without them each node gets the same share of time.
pub(super) fn of_call_targets(calls: &[CallTarget], times: &[Duration]) -> Placement {
    let mut all: BTreeMap<&str, ProviderWork> = BTreeMap::new();
    // Times are unusable if a run skipped instructions or repeated some.
    let complete = times.len() == calls.len();
    let times = times
        .iter()
        .copied()
        .chain(std::iter::repeat(Duration::ZERO));
    for (call, time) in calls.iter().zip(times) {
        let provider = match call {
            CallTarget::Kernel => CPU_PROVIDER,
            CallTarget::Delegate(id) => id,
            CallTarget::Other => continue,
        };
        let work = all.entry(provider).or_default();
        work.nodes += 1;
        work.time += if complete { time } else { Duration::ZERO };
    }
    shares(all)
}

/// Computes the placement of a method from the counts in its header only.
pub(super) fn of_method(method: &Method) -> Placement {
    let mut all: BTreeMap<&str, ProviderWork> = BTreeMap::new();
    for delegate in &method.delegates {
        all.entry(&delegate.id).or_default().nodes += 1;
    }
    for count in method.operators.values() {
        all.entry(CPU_PROVIDER).or_default().nodes += count;
    }
    shares(all)
}

fn shares(all: BTreeMap<&str, ProviderWork>) -> Placement {
    let work = all.into_iter();
    Placement::of_work(work.map(|(provider, work)| {
        let time = work.time.as_secs_f64();
        (provider.to_owned(), work.nodes, time)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_time_are_shared_out() {
        let delegate = CallTarget::Delegate("XnnpackBackend".to_owned());
        let calls = [
            CallTarget::Kernel,
            CallTarget::Other,
            delegate,
            CallTarget::Kernel,
        ];
        let placed = |times: &[u64]| {
            let times: Vec<Duration> = times.iter().copied().map(Duration::from_nanos).collect();
            let shares = of_call_targets(&calls, &times).shares.into_iter();
            let shares = shares.map(|it| (it.provider, it.nodes, it.time_share));
            shares.collect::<Vec<_>>()
        };
        let expected = |xnnpack: f64| {
            [
                ("cpu".to_owned(), 2, 1.0 - xnnpack),
                ("XnnpackBackend".to_owned(), 1, xnnpack),
            ]
        };
        assert_eq!(placed(&[1, 50, 6, 1]), expected(0.75));
        let by_nodes = placed(&[1, 2]);
        assert_eq!(by_nodes[1].0, "XnnpackBackend");
        assert!((by_nodes[1].2 - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(
            of_call_targets(&[CallTarget::Other], &[]),
            Placement::default()
        );
    }
}
