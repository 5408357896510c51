//! The shares of a model's work that providers did, for engines that report it node by node.

use super::provider::{Placement, Share};

impl Placement {
    /// Computes the shares from each provider's number of nodes and their time, in any unit. Without
    /// times each node gets the same share of time.
    #[expect(
        clippy::cast_precision_loss,
        reason = "models have fewer than 2^53 nodes"
    )]
    pub(crate) fn of_work(work: impl IntoIterator<Item = (String, u64, f64)>) -> Self {
        let work: Vec<_> = work.into_iter().collect();
        let all_nodes: u64 = work.iter().map(|(_, nodes, _)| nodes).sum();
        let all_time: f64 = work.iter().map(|(_, _, time)| time).sum();
        let share = |(provider, nodes, time): (String, u64, f64)| {
            let node_share = nodes as f64 / all_nodes as f64;
            // The times of a small model may all be 0, because a clock counts whole microseconds.
            let has_times = all_time > 0.0;
            Share {
                provider,
                nodes,
                node_share,
                time_share: if has_times {
                    time / all_time
                } else {
                    node_share
                },
            }
        };
        let mut shares: Vec<Share> = work.into_iter().map(share).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.nodes));
        Self {
            shares,
            ..Self::default()
        }
    }
}
