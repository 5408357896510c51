//! The connections of an instance: one to each gate of its cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::connection::{self, ConnectionEnd, ConnectionOrder, PoolNews, SharedParts};
use super::retry::Pauses;
use super::{Handler, InstanceSettings};
use crate::address::GateAddress;
use crate::protocol::{ClusterUpdateProto, code};

/// Maximum number of gates in a cluster.
const MAX_GATES: usize = 64;
/// Least pause if the gate does not know the token. It may learn it later.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// Number of news that wait for the pool.
const WAITING_NEWS: usize = 64;

/// Keeps connections to all gates until `stop` becomes true. Requests in flight are then finished, as far as the
/// settings give them time.
pub async fn serve<H: Handler>(
    settings: InstanceSettings,
    handler: Arc<H>,
    mut stop: watch::Receiver<bool>,
) {
    let (news, mut received) = mpsc::channel(WAITING_NEWS);
    let (accepted, to_connections) = watch::channel((Vec::new(), false));
    let first = settings.gates.clone();
    let mut pool = GatePool {
        shared: Arc::new(SharedParts {
            settings,
            handler,
            news,
            accepted: to_connections,
        }),
        orders: BTreeMap::new(),
        accepted: BTreeSet::new(),
        report: accepted,
        tasks: JoinSet::new(),
    };
    pool.connect_to(&first);
    let mut stopping = false;
    loop {
        tokio::select! {
            news = received.recv() => match news {
                Some(PoolNews::Accepted(gate)) => pool.accepted(gate),
                Some(PoolNews::Lost(gate)) => pool.lost(&gate),
                Some(PoolNews::Cluster(gate, update)) if !stopping => pool.follow(&gate, &update),
                _ => {}
            },
            Some(ended) = pool.tasks.join_next() => {
                // A task returns the gate that it left; it does not panic.
                if let Ok(gate) = ended {
                    pool.left(&gate);
                }
                if stopping && pool.tasks.is_empty() {
                    return;
                }
                if pool.orders.is_empty() && !stopping {
                    // A cluster that names no gate is a mistake.
                    pool.connect_to(&first);
                }
            }
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                for order in pool.orders.values() {
                    order.send_replace(ConnectionOrder::Leave);
                }
                if pool.tasks.is_empty() {
                    return;
                }
            }
        }
    }
}

struct GatePool<H> {
    shared: Arc<SharedParts<H>>,
    /// The order to each connection.
    orders: BTreeMap<GateAddress, watch::Sender<ConnectionOrder>>,
    /// The gates that accepted the service.
    accepted: BTreeSet<GateAddress>,
    report: watch::Sender<(Vec<GateAddress>, bool)>,
    tasks: JoinSet<GateAddress>,
}

impl<H: Handler> GatePool<H> {
    fn connect_to<'a>(&mut self, gates: impl IntoIterator<Item = &'a GateAddress>) {
        for gate in gates {
            self.connect(gate);
        }
    }

    fn connect(&mut self, gate: &GateAddress) {
        if self.orders.contains_key(gate) || self.orders.len() >= MAX_GATES {
            return;
        }
        let (order, orders) = watch::channel(ConnectionOrder::Serve);
        self.orders.insert(gate.clone(), order);
        self.tasks
            .spawn(stay(Arc::clone(&self.shared), gate.clone(), orders));
        self.tell();
    }

    fn accepted(&mut self, gate: GateAddress) {
        if self.orders.contains_key(&gate) {
            tracing::info!(%gate, "attached");
            self.accepted.insert(gate);
            self.tell();
        }
    }

    fn lost(&mut self, gate: &GateAddress) {
        self.accepted.remove(gate);
        self.tell();
    }

    fn left(&mut self, gate: &GateAddress) {
        self.accepted.remove(gate);
        self.orders.remove(gate);
        self.tell();
    }

    /// Connects to the gates of a cluster, and leaves others. A gate may call itself by another name than the
    /// instance does.
    fn follow(&mut self, from: &GateAddress, update: &ClusterUpdateProto) {
        let named: BTreeSet<GateAddress> = update
            .servers
            .iter()
            .filter_map(|server| server.parse().ok())
            .take(MAX_GATES)
            .collect();
        if named.is_empty() {
            tracing::warn!(gate = %from, "the gate names no gate of its cluster");
            return;
        }
        let current: Option<GateAddress> = update.current_server.parse().ok();
        let others = named.iter().filter(|gate| Some(*gate) != current.as_ref());
        self.connect_to(others);
        for (gate, order) in &self.orders {
            if gate != from && !named.contains(gate) {
                order.send_replace(ConnectionOrder::Leave);
            }
        }
    }

    fn tell(&self) {
        let accepted: Vec<GateAddress> = self.accepted.iter().cloned().collect();
        let all = accepted.len() == self.orders.len();
        self.report.send_replace((accepted, all));
    }
}

/// Connects to a gate again and again until it is ordered to leave.
async fn stay<H: Handler>(
    shared: Arc<SharedParts<H>>,
    gate: GateAddress,
    mut orders: watch::Receiver<ConnectionOrder>,
) -> GateAddress {
    let mut pauses = Pauses::new();
    loop {
        let (end, accepted) = connection::run(&shared, &gate, orders.clone()).await;
        if let ConnectionEnd::Left = end {
            tracing::info!(%gate, "left the gate");
            return gate;
        }
        let _ = shared.news.send(PoolNews::Lost(gate.clone())).await;
        if accepted {
            pauses.reset();
        }
        let mut pause = pauses.next();
        if let ConnectionEnd::Refused(error) = &end
            && error.code == code::TOKEN_NOT_FOUND
        {
            pause = pause.max(TOKEN_PAUSE);
        }
        tracing::warn!(%gate, reason = %end, pause_ms = pause.as_millis(), "not attached");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            left = orders.wait_for(|order| *order == ConnectionOrder::Leave) => {
                drop(left);
                return gate;
            }
        }
    }
}
