//! The end of a gate: accepts instances, and sends them requests.
//!
//! [`serve`] answers the calls of instances. A [`GateHost`] decides who may attach. An instance that it admits is a
//! [`RemoteInstance`], which takes requests until it leaves ([`session`]).
//!
//! Invariant: an answer reaches only the call that it is for, once, and only from the instance that the call was sent
//! to. A call whose instance leaves ends with [`CallLost`].

mod remote;
mod server;
mod session;
mod socket;
mod strangers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::protocol::{ApiErrorProto, ContentRequestProto, ServiceInfoProto, StartServingProto};

pub use remote::{
    CallEvent, CallLost, InstanceActivity, InstanceCall, InstanceState, NoPlace, RemoteInstance,
};
pub use server::serve;
pub use socket::GateSocket;

/// Limits of a gate for its instances.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// Maximum number of requests in flight of an instance that does not say how many it accepts.
    pub in_flight: usize,
    /// Maximum number of connections that have not announced an instance with a valid token.
    pub strangers: usize,
    /// Maximum time for requests in flight after the gate was asked to stop.
    pub grace: Duration,
}

/// An instance that announces itself.
#[derive(Debug)]
pub struct Arrival {
    /// Its announcement.
    pub start: StartServingProto,
    /// The address that it calls from.
    pub peer: Option<SocketAddr>,
}

/// Decides who may attach, and keeps the attached instances.
pub trait GateHost: Send + Sync + 'static {
    /// The place of an instance that may attach.
    type Ticket: Send;

    /// Admits an instance: returns the information that it gets, and its place. An error says why it may not attach.
    fn admit(
        &self,
        arrival: &Arrival,
    ) -> impl Future<Output = Result<(ServiceInfoProto, Self::Ticket), ApiErrorProto>> + Send;

    /// Keeps an admitted instance, which takes requests from now on. The returned notifier wakes one waiter whenever the
    /// instance takes more requests, and all when it leaves.
    fn joined(
        &self,
        instance: &Arc<RemoteInstance>,
        ticket: Self::Ticket,
    ) -> Result<Arc<Notify>, ApiErrorProto>;

    /// Returns the file that holds the content of this hash, if it belongs to a package that was assigned with the
    /// token.
    fn content(
        &self,
        request: ContentRequestProto,
    ) -> impl Future<Output = Result<PathBuf, ApiErrorProto>> + Send;

    /// Forgets an instance, whose calls are lost.
    fn left(&self, instance: &Arc<RemoteInstance>, reason: &str);
}
