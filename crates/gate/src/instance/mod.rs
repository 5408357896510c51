//! The end of a service: an instance that dials out to gates and answers their requests.
//!
//! [`serve`] keeps a connection to each gate of a cluster ([`pool`]). A connection announces the service, sends
//! heartbeats, and gives each request to a [`Handler`] ([`connection`]).
//!
//! Invariant: a request gets exactly one last answer on the connection that it came from, unless that connection is
//! lost or the gate cancels the request.

mod connection;
mod content;
mod pool;
mod retry;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::address::GateAddress;
use crate::protocol::service_to_gate_proto::Body;
use crate::protocol::{
    AssignmentProto, BatchRequestProto, ExtendedRequestProto, FitRequestProto,
    PartialPredictRequestProto, PredictRequestProto, ServiceDescriptorProto, ServiceToGateProto,
    WorkerProto,
};

pub use content::{FetchError, FetchedContent, fetch};
pub use pool::serve;

/// How an instance attaches to its gates.
#[derive(Debug, Clone)]
pub struct InstanceSettings {
    /// The gates to connect to at first. A gate names the others of its cluster.
    pub gates: Vec<GateAddress>,
    /// The token of the instance.
    pub token: InstanceToken,
    /// The methods of the service.
    pub descriptor: ServiceDescriptorProto,
    /// The name of this machine, for the gate's operators.
    pub hostname: Option<String>,
    /// The version of the program, for the gate's operators.
    pub image: Option<String>,
    /// The backends and the memory of a machine that has no package of its own and gets some from the gates.
    pub worker: Option<WorkerProto>,
    /// How connections are protected.
    pub security: Security,
    /// Maximum number of requests in flight on a connection.
    pub in_flight: usize,
    /// How long requests in flight may take after the instance was asked to stop.
    pub grace: Duration,
}

/// The secret of an instance, which also names its account and its service.
#[derive(Clone, PartialEq, Eq)]
pub struct InstanceToken(String);

impl InstanceToken {
    /// Keeps a secret.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// Returns the secret, for the gate.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for InstanceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstanceToken")
    }
}

/// How connections are protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// Not at all.
    Plain,
    /// By TLS. Certificates are checked against those of the system, or against this one, in the format PEM.
    Tls(Option<Vec<u8>>),
}

/// A request of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateRequest {
    /// Its content.
    pub asks: Asks,
    /// Its headers.
    pub headers: HashMap<String, String>,
}

/// The content of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Asks {
    /// One answer.
    Predict(PredictRequestProto),
    /// An answer in parts.
    PartialPredict(PartialPredictRequestProto),
    /// An answer to each of several requests.
    Batch(BatchRequestProto),
    /// Training.
    Fit(Box<FitRequestProto>),
    /// A method of the service's own.
    Ext(ExtendedRequestProto),
}

/// The last answer to a request, with its headers.
#[derive(Debug, Clone, PartialEq)]
pub struct LastAnswer {
    /// The answer.
    pub body: Body,
    /// Its headers.
    pub headers: HashMap<String, String>,
}

/// The additions to the protocol that both ends know.
#[derive(Debug, Clone, Copy, Default)]
struct Additions {
    credits: bool,
    training: bool,
}

/// Sends parts of an answer before the last one.
#[derive(Debug, Clone)]
pub struct AnswerParts {
    request_id: i64,
    additions: Additions,
    to_gate: mpsc::Sender<ServiceToGateProto>,
}

impl AnswerParts {
    /// Returns whether the last part may be without data. Then no part has to wait for the next one.
    #[must_use]
    pub fn may_end_without_data(&self) -> bool {
        self.additions.credits
    }

    /// Returns whether the service attaches as what it trained.
    #[must_use]
    pub fn may_attach_trained(&self) -> bool {
        self.additions.training
    }

    /// Sends a part: an answer in parts, or the progress of training. Waits while the gate reads slowly. Returns
    /// `false` if the connection is lost.
    pub async fn send(&self, body: Body) -> bool {
        let part = ServiceToGateProto {
            request_id: self.request_id,
            body: Some(body),
            headers: HashMap::new(),
        };
        self.to_gate.send(part).await.is_ok()
    }
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request. The future is dropped if the request is cancelled or its connection ends.
    fn answer(
        &self,
        request: GateRequest,
        parts: AnswerParts,
    ) -> impl Future<Output = LastAnswer> + Send;

    /// Learns that a gate accepted the instance.
    fn attached(&self, _gate: &GateAddress) {}

    /// Takes the packages that a gate assigns. They replace those that it assigned before.
    fn assigned(&self, _gate: &GateAddress, _assignment: AssignmentProto) {}
}
