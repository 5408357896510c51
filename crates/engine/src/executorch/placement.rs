//! Computes on which backend each part of a method runs and how long it takes.
//!
//! The program's instructions name the backends. The first observed run measures the times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::profile::nanoseconds;
use crate::tensor::byte_size;
use crate::{NodeSpan, Placement, ProfiledNode, ProfiledRun};
use pkgtool_model::executorch::body::{Instruction, MethodBody, TensorBody};
use pkgtool_model::{Dynamism, Method};

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

/// Returns the nodes among the instructions of a method, in order.
pub(super) fn nodes(method: &MethodBody) -> Vec<ProfiledNode> {
    let instructions = method.instructions.iter().enumerate();
    let nodes = instructions.filter_map(|(index, instruction)| {
        let (operator, provider, args) = match instruction {
            Instruction::Kernel { operator, args } => {
                (&method.operators[*operator], CPU_PROVIDER, args)
            }
            Instruction::Delegate { delegate, args } => {
                let id = &method.delegates[*delegate].id;
                (id, id.as_str(), args)
            }
            _ => return None,
        };
        let tensor = |value: &usize| method.values.get(*value)?.tensor();
        // An output is listed once more as a returned value.
        let values: BTreeSet<usize> = args.iter().copied().collect();
        let sizes = values.iter().filter_map(tensor).map(static_bytes);
        Some(ProfiledNode {
            name: format!("{operator} #{index}"),
            operator: operator.clone(),
            provider: provider.to_owned(),
            dtype: args
                .last()
                .and_then(tensor)
                .and_then(|it| it.element.dtype()),
            bytes: sizes.sum(),
        })
    });
    nodes.collect()
}

/// Returns the size of a tensor in bytes. `None` if a dimension is only a bound.
fn static_bytes(tensor: &TensorBody) -> Option<u64> {
    if tensor.dynamism != Dynamism::Static {
        return None;
    }
    byte_size(tensor.element.dtype()?, &tensor.sizes).ok()
}

/// Converts the times of a run's instructions to a recorded run. `None` if the run skipped
/// instructions or repeated some.
pub(super) fn recorded_run(
    calls: &[CallTarget],
    times: &[Duration],
    whole: Duration,
) -> Option<ProfiledRun> {
    if times.len() != calls.len() {
        return None;
    }
    let mut run = ProfiledRun {
        nanoseconds: nanoseconds(whole),
        spans: Vec::new(),
    };
    let (mut start, mut node) = (0, 0);
    for (call, time) in calls.iter().zip(times) {
        let nanoseconds = nanoseconds(*time);
        if *call != CallTarget::Other {
            run.spans.push(NodeSpan {
                node,
                start,
                nanoseconds,
            });
            node += 1;
        }
        start += nanoseconds;
    }
    Some(run)
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
