//! Services: the models of packages and upstream HTTP services that callers can send requests to.
//!
//! The gateway and the task queue find a [`Service`] in the [`Catalog`], check a request with
//! [`Service::prepare`] and run it with [`Prepared::predict`]. Invariant: a listed service belongs
//! to a valid package, and an accepted request gets exactly one answer, whatever the model does.
//! This module knows nothing of HTTP routes and tasks.

mod adapter;
pub(crate) mod attached;
mod away;
mod bodies;
mod call;
mod catalog;
mod deadline;
mod description;
mod device;
pub mod engine;
pub(crate) mod events;
pub(crate) mod json;
mod media;
pub mod meter;
mod settings;
pub mod tensors;
mod text;
pub mod texts;
mod turns;
mod upstream;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use adapter::{AdapterCall, AdapterMethod, AdapterMode};
pub use attached::{Attached, AttachedServices, FittedAway};
pub use bodies::{BodyBuffer, BodyMemory, BodyReservation, OutOfBodyMemory};
pub use call::{
    Answer, Body, CallError, Chunks, Refusal, Request, SERVICE_UNAVAILABLE, TokenCounts, TokenUsage,
};
pub use catalog::{
    Catalog, CatalogOptions, Numbering, PackageDirectory, SettingsOf, Unserved, check_packages,
};
pub use description::{Description, MethodDescription};
pub use device::{
    ContentKind, Device, DeviceParts, Embedded, Embedding, EncoderFiles, InputDescription,
    MethodTakes, PackageConfig, TextLimits,
};
pub use media::FormFields;
pub use settings::{Isolation, Listed, RunOn, ServiceSettings, WithoutDevice};
pub use upstream::client as upstream_client;
pub use upstream::{
    AddressState, Forward, Upstream, UpstreamAddress, UpstreamKey, UpstreamOptions,
};

pub(crate) use call::{seconds, strip_directories};

use crate::account::AccountId;
use crate::database::Timestamp;
use attached::AttachedCall;
use engine::{DeviceFollower, ForegroundRequest, SessionState};
use futures_util::StreamExt as _;
use meter::Meter;

/// A model service.
#[derive(Debug)]
pub struct Service {
    /// Its permanent number, which survives restarts.
    pub id: i64,
    /// The account that owns it.
    pub owner: AccountId,
    /// That account's name.
    pub owner_name: String,
    /// Its name, unique in its account.
    pub name: String,
    /// Its settings.
    pub settings: ServiceSettings,
    /// Its metrics.
    pub meter: Arc<Meter>,
    /// The backend that answers requests.
    pub kind: ServiceKind,
}

/// The backend of a service.
#[derive(Debug, Clone)]
pub enum ServiceKind {
    /// A package's models on this machine.
    Device(Arc<Device>),
    /// An upstream HTTP service.
    Proxy(Arc<Upstream>),
    /// Instances that attached from other processes.
    Attached(Arc<Attached>),
    /// A derived service that is not trained yet and cannot answer.
    Untrained(Arc<Untrained>),
}

/// The base of a derived service that is not trained yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrained {
    /// The account that owns the base service.
    pub base_owner: AccountId,
    /// The number of the base service.
    pub base: i64,
    /// Time of the derivation.
    pub since: Timestamp,
}

/// A checked request with everything needed to answer it. Later failures are not the client's
/// fault.
#[derive(Debug)]
pub enum Prepared {
    /// Tensors or texts for a package's model.
    Device(PreparedCall),
    /// A call of an upstream.
    Proxy(Forward),
    /// A request for an attached instance.
    Attached(AttachedCall),
}

/// A checked request for a package's model.
#[derive(Debug)]
pub struct PreparedCall {
    inputs: device::PreparedInputs,
    /// The tensors are about as large as the body was, so they keep its share of the body memory.
    _memory: Option<Arc<BodyReservation>>,
    /// Requests that give way wait for its end, unless it gives way itself.
    foreground: Option<ForegroundRequest>,
}

impl Service {
    /// Returns owner and name, as shown in logs and metrics.
    pub fn label(&self) -> ServiceLabel<'_> {
        ServiceLabel(self)
    }

    /// Returns whether the service can answer requests, as far as known.
    pub fn is_active(&self) -> bool {
        self.inactive_reason().is_none()
    }

    /// Returns the reason why the service cannot answer requests, as far as known.
    pub fn inactive_reason(&self) -> Option<String> {
        match &self.kind {
            ServiceKind::Device(device) => device.inactive_reason(None),
            ServiceKind::Proxy(upstream) => upstream.inactive_reason(),
            ServiceKind::Attached(attached) => attached.inactive_reason(),
            ServiceKind::Untrained(_) => Some(self.not_trained()),
        }
    }

    /// Returns whether other processes attach to answer its requests.
    pub fn is_attached(&self) -> bool {
        self.workers().is_some()
    }

    /// Returns the instances in other processes that answer its requests, if others do.
    pub fn workers(&self) -> Option<&Arc<Attached>> {
        match &self.kind {
            ServiceKind::Attached(attached) => Some(attached),
            ServiceKind::Device(device) => device.workers(),
            ServiceKind::Proxy(_) | ServiceKind::Untrained(_) => None,
        }
    }

    /// Returns whether services can be derived from it and trained.
    pub fn is_trainable(&self) -> bool {
        match &self.kind {
            ServiceKind::Device(device) => device.is_trainable(),
            ServiceKind::Attached(attached) => attached.is_fittable(),
            ServiceKind::Proxy(_) | ServiceKind::Untrained(_) => false,
        }
    }

    /// Returns whether instances of the platform's SDKs train it, or those that are derived from it.
    pub fn trains_like_platform(&self) -> bool {
        match &self.kind {
            ServiceKind::Attached(attached) => attached.fits_like_platform(),
            _ => false,
        }
    }

    /// Returns the loaded sessions.
    pub fn sessions(&self) -> Vec<SessionState> {
        match &self.kind {
            ServiceKind::Device(device) => {
                let endpoints = device.endpoints();
                endpoints.flat_map(|endpoint| endpoint.sessions()).collect()
            }
            ServiceKind::Proxy(_) | ServiceKind::Attached(_) | ServiceKind::Untrained(_) => {
                Vec::new()
            }
        }
    }

    /// Returns whether a request is worth an attempt: the service is active, or its pause after
    /// failures is over.
    pub fn may_answer(&self) -> bool {
        match &self.kind {
            ServiceKind::Device(device) => device.may_answer(),
            // The upstream itself decides when an attempt is worthwhile and reports the delay.
            ServiceKind::Proxy(_) => true,
            ServiceKind::Attached(attached) => attached.may_answer(),
            ServiceKind::Untrained(_) => false,
        }
    }

    /// Returns whether the devices or workers that answer its requests are away, and may come back.
    pub fn is_away(&self) -> bool {
        match (&self.kind, self.workers()) {
            (_, Some(workers)) => !workers.can_answer(),
            (ServiceKind::Device(device), None) => device.waits_for_devices(),
            _ => false,
        }
    }

    /// Checks that the service supports a method of chat adapters; the refusal lists the supported
    /// ones. Both the adapters' model list and their requests use this check.
    pub fn check_adapter_method(&self, method: AdapterMethod) -> Result<(), Refusal> {
        match &self.kind {
            // An instance itself refuses what it does not support.
            ServiceKind::Proxy(_) | ServiceKind::Attached(_) => Ok(()),
            ServiceKind::Untrained(_) => Err(Refusal::at("$.model", self.not_trained())),
            ServiceKind::Device(device) if device.adapts(method) => Ok(()),
            ServiceKind::Device(device) => {
                let (name, asked) = (self.label(), method.label());
                let others = AdapterMethod::ALL.iter().filter(|it| device.adapts(**it));
                let mut taken: Vec<&str> = others.map(|method| method.label()).collect();
                taken.push("tensors");
                let taken = taken.join(", and ");
                let message = format!(
                    "`{name}` does not support {asked}; it supports {taken}, by predict: \
                     see GET /openapi.json?service={name}"
                );
                Err(Refusal::at("$.model", message))
            }
        }
    }

    /// Checks a request against the service's interface: syntax, config, names, dtypes and shapes.
    pub async fn prepare(&self, request: &Request) -> Result<Prepared, CallError> {
        if let Some(asked) = request.data_type.as_deref().and_then(AdapterCall::of) {
            self.check_adapter_method(asked.method)?;
        }
        match &self.kind {
            ServiceKind::Device(device) => {
                if let Some(workers) = device.workers() {
                    let call = AttachedCall::new(workers, request, self.settings.queue);
                    return Ok(Prepared::Attached(call.await?));
                }
                let (foreground, inputs) = if request.in_background {
                    let device = device.in_background().await?;
                    (None, device.prepare(request).await?)
                } else {
                    (Some(device.begin_request()), device.prepare(request).await?)
                };
                Ok(Prepared::Device(PreparedCall {
                    inputs,
                    _memory: request.memory.clone(),
                    foreground,
                }))
            }
            ServiceKind::Proxy(upstream) => Ok(Prepared::Proxy(upstream.prepare(request)?)),
            ServiceKind::Attached(attached) => {
                let call = AttachedCall::new(attached, request, self.settings.queue);
                Ok(Prepared::Attached(call.await?))
            }
            ServiceKind::Untrained(_) => Err(CallError::NoInstances(self.not_trained())),
        }
    }

    /// Checks a request that will be answered later, as far as it can be checked here.
    pub async fn check(&self, request: &Request) -> Result<(), CallError> {
        let prepared = self.prepare(request).await?;
        if let (Prepared::Attached(_), ServiceKind::Device(device)) = (prepared, &self.kind) {
            return match device.prepare(request).await {
                // An engine of the worker may run what none here does.
                Ok(_) | Err(CallError::NoInstances(_)) => Ok(()),
                Err(error) => Err(error),
            };
        }
        Ok(())
    }

    fn not_trained(&self) -> String {
        let (owner, name) = (&self.owner_name, &self.name);
        format!(
            "`{}` is not trained yet; train it with POST …/account/{owner}/model/{name}/fit",
            self.label()
        )
    }
}

/// Tasks that wait for a device wait like those that wait for a worker.
impl DeviceFollower for AttachedServices {
    fn devices_changed(&self) {
        self.resume();
    }
}

/// A service's owner and name, for display.
#[derive(Debug, Clone, Copy)]
pub struct ServiceLabel<'s>(&'s Service);

impl fmt::Display for ServiceLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.owner_name, self.0.name)
    }
}

impl Prepared {
    /// Answers the request. Dropping the future cancels it: a waiting request is removed, and a run
    /// without other callers is stopped.
    pub async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        match self {
            Self::Device(call) => {
                let mut answer = call.inputs.predict(caller, timeout).await?;
                if let Body::Stream(chunks) = answer.body {
                    let foreground = call.foreground;
                    // The request is in progress as long as its stream.
                    let chunks = chunks.inspect(move |_| {
                        let _held = &foreground;
                    });
                    answer.body = Body::Stream(Box::pin(chunks));
                }
                Ok(answer)
            }
            Self::Proxy(forward) => forward.predict(timeout).await,
            Self::Attached(call) => call.predict(caller, timeout).await,
        }
    }
}
