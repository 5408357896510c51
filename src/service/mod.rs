//! What packages offer a caller: services, their predict configs, and the sessions that answer.
//!
//! Invariant: a service that is listed belongs to a valid package; a request that a service accepted
//! is answered once, whatever the model does. Knows nothing of HTTP routes and of tasks.

mod adapter;
mod away;
mod bodies;
mod call;
mod catalog;
mod description;
mod device;
pub mod engine;
pub(crate) mod json;
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
pub use bodies::{BodyMemory, Buffer, Holding, NoRoom};
pub use call::{Answer, Body, CallError, Chunks, Refusal, Request, Spent, Tokens};
pub use catalog::{Catalog, CatalogOptions, Numbering, PackageDirectory, SettingsOf, Unserved};
pub use description::{Description, MethodDescription};
pub use device::{
    Device, DeviceParts, Embedded, Embedding, EncoderFiles, Holds, LABELS_FILE, PackageConfig,
    Takes, TakesInput, TakesTexts,
};
pub use settings::{Isolation, Listed, ServiceSettings};
pub use upstream::{Address, AddressState, Forward, Upstream, UpstreamKey, UpstreamOptions};

pub(crate) use call::{relative, seconds};

use crate::account::AccountId;
use crate::database::Timestamp;
use meter::Meter;

/// A model service.
#[derive(Debug)]
pub struct Service {
    /// Its number, the same after every restart.
    pub id: i64,
    /// The account that owns it.
    pub owner: AccountId,
    /// That account's name.
    pub owner_name: String,
    /// Its name, unique in its account.
    pub name: String,
    /// How it runs.
    pub settings: ServiceSettings,
    /// What it did.
    pub meter: Arc<Meter>,
    /// What answers.
    pub kind: Kind,
}

/// What answers a service's requests.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A package's models, on this machine.
    Device(Arc<Device>),
    /// Another HTTP service.
    Proxy(Arc<Upstream>),
    /// A service that was derived from another and is not trained yet: nothing answers.
    Untrained(Arc<Untrained>),
}

/// What a service is derived from that is not trained yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrained {
    /// The account of the service that it is derived from.
    pub base_owner: AccountId,
    /// That service's number.
    pub base: i64,
    /// When it was derived.
    pub since: Timestamp,
}

/// A request that was checked, with all that it takes to answer it: what is left to do can fail, but
/// not for the client's fault.
#[derive(Debug)]
pub enum Prepared {
    /// Tensors or texts for a method of a package's model, and the part of the memory for bodies that they have.
    Device(device::Prepared, Option<Arc<Holding>>),
    /// A call of an upstream.
    Proxy(Forward),
}

impl Service {
    /// Its owner and name, as logs and metrics have them.
    pub fn label(&self) -> Label<'_> {
        Label(self)
    }

    /// Whether a request can be answered at all, as far as is known.
    pub fn is_active(&self) -> bool {
        self.inactive_reason().is_none()
    }

    /// Returns why no request can be answered, as far as is known.
    pub fn inactive_reason(&self) -> Option<String> {
        match &self.kind {
            Kind::Device(device) => device.inactive_reason(None),
            Kind::Proxy(upstream) => upstream.inactive_reason(),
            Kind::Untrained(_) => Some(self.not_trained()),
        }
    }

    /// Whether a request is worth an attempt: the service is active, or a pause after failures is over.
    pub fn may_answer(&self) -> bool {
        match &self.kind {
            Kind::Device(device) => device.may_answer(),
            // It says itself when an attempt is worth it, and how long that takes.
            Kind::Proxy(_) => true,
            Kind::Untrained(_) => false,
        }
    }

    /// Whether the service takes what an adapter asks, else what it takes. What adapters list and what
    /// they are refused is decided here alone.
    pub fn adapts(&self, method: AdapterMethod) -> Result<(), Refusal> {
        match &self.kind {
            Kind::Proxy(_) => Ok(()),
            Kind::Untrained(_) => Err(Refusal::at("$.model", self.not_trained())),
            Kind::Device(device) if device.adapts(method) => Ok(()),
            Kind::Device(device) => {
                let (name, asked) = (self.label(), method.label());
                let others = AdapterMethod::ALL.iter().filter(|it| device.adapts(**it));
                let mut taken: Vec<&str> = others.map(|method| method.label()).collect();
                taken.push("tensors");
                let taken = taken.join(", and ");
                let message = format!(
                    "`{name}` takes no {asked}; it takes {taken}, by predict: \
                     GET /openapi.json?service={name} says which"
                );
                Err(Refusal::at("$.model", message))
            }
        }
    }

    /// Checks a request against what the service takes: syntax, config, names, dtypes, shapes.
    pub async fn prepare(&self, request: &Request) -> Result<Prepared, CallError> {
        if let Some(asked) = request.data_type.as_deref().and_then(AdapterCall::of) {
            self.adapts(asked.method)?;
        }
        match &self.kind {
            Kind::Device(device) => Ok(Prepared::Device(
                device.prepare(request).await?,
                request.memory.clone(),
            )),
            Kind::Proxy(upstream) => Ok(Prepared::Proxy(upstream.prepare(request)?)),
            Kind::Untrained(_) => Err(CallError::NoInstances(self.not_trained())),
        }
    }

    fn not_trained(&self) -> String {
        let (owner, name) = (&self.owner_name, &self.name);
        format!(
            "`{}` is not trained yet: POST …/account/{owner}/model/{name}/fit does that",
            self.label()
        )
    }
}

/// A service's owner and name.
#[derive(Debug, Clone, Copy)]
pub struct Label<'s>(&'s Service);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.owner_name, self.0.name)
    }
}

impl Prepared {
    /// Answers. Dropping the future gives the request up: what waits is removed, what runs for nobody
    /// else is stopped.
    pub async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        match self {
            // The tensors are about as large as the body was: they keep its part of the memory.
            Self::Device(prepared, _memory) => prepared.predict(caller, timeout).await,
            Self::Proxy(forward) => forward.predict(timeout).await,
        }
    }
}
