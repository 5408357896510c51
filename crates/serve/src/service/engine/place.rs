//! Where the sessions of an endpoint live: on this machine, or on a device that takes the backend of its model.
//!
//! Invariant: while a device that runs the backend by an engine of its own is connected, no other one is used.

use std::sync::Arc;

use super::devices::{DeviceConnection, Devices};
use super::ledger::Ledger;
use crate::service::{RunOn, ServiceSettings, WithoutDevice};
use pkgtool_base::package::Backend;

/// Where a session lives.
#[derive(Debug, Clone)]
pub(super) enum SessionPlace {
    /// On this machine.
    Here,
    /// On a device.
    Device(Arc<DeviceConnection>),
}

/// Where the next session of an endpoint can live.
#[derive(Debug)]
pub(super) enum Placing {
    At(SessionPlace),
    /// This is being found out, for this reason.
    Uncertain(String),
    /// Nowhere, for this reason.
    Nowhere(String),
}

/// Why the devices of a model are away.
#[derive(Debug)]
pub(in super::super) struct Absence {
    /// The reason, for clients.
    pub(in super::super) reason: String,
    /// Whether one is most likely back in a moment.
    pub(in super::super) is_expected: bool,
}

impl SessionPlace {
    /// Returns the number of the device; `None` for this machine.
    pub(super) fn number(&self) -> Option<usize> {
        match self {
            Self::Here => None,
            Self::Device(connection) => Some(connection.number),
        }
    }

    /// Returns the ledger of the memory there. `here` is that of this machine.
    pub(super) fn ledger<'l>(&'l self, here: &'l Arc<Ledger>) -> &'l Arc<Ledger> {
        match self {
            Self::Here => here,
            Self::Device(connection) => &connection.ledger,
        }
    }
}

impl Devices {
    /// Returns the connections on which models of a backend should run now: those with an engine of their own for it,
    /// otherwise all. If there are none, returns where the models run instead.
    pub(super) fn wanted(
        &self,
        backend: Option<Backend>,
        settings: &ServiceSettings,
    ) -> Result<Vec<Arc<DeviceConnection>>, Placing> {
        let here = || Placing::At(SessionPlace::Here);
        if settings.run_on == RunOn::Here {
            return Err(here());
        }
        let (mut connected, mut disconnected) = (Vec::new(), Vec::new());
        for device in self.for_backend(backend) {
            match device.connection() {
                Ok(connection) => connected.push(connection),
                Err(reason) => disconnected.push(reason),
            }
        }
        if connected.iter().any(|it| it.is_native(backend)) {
            connected.retain(|it| it.is_native(backend));
        }
        if !connected.is_empty() {
            return Ok(connected);
        }
        let is_expected = disconnected.iter().any(|it| it.is_expected);
        let reasons: Vec<String> = disconnected.into_iter().map(|it| it.reason).collect();
        if reasons.is_empty() || settings.without_device == WithoutDevice::Here {
            Err(here())
        } else if is_expected {
            Err(Placing::Uncertain(reasons.join("; ")))
        } else {
            Err(Placing::Nowhere(reasons.join("; ")))
        }
    }

    /// Returns why models of a backend cannot run now, if it is that their devices are away.
    pub(super) fn absence(
        &self,
        backend: Option<Backend>,
        settings: &ServiceSettings,
    ) -> Option<Absence> {
        match self.wanted(backend, settings) {
            Err(Placing::Nowhere(reason)) => Some(Absence {
                reason,
                is_expected: false,
            }),
            Err(Placing::Uncertain(reason)) => Some(Absence {
                reason,
                is_expected: true,
            }),
            Ok(_) | Err(Placing::At(_)) => None,
        }
    }

    /// Returns whether a session may stay where it lives. It leaves a device that has two more sessions than another.
    pub(super) fn may_stay(
        &self,
        place: &SessionPlace,
        (backend, settings): (Option<Backend>, &ServiceSettings),
        sessions_at: impl Fn(usize) -> usize,
    ) -> bool {
        match (self.wanted(backend, settings), place) {
            (Ok(wanted), SessionPlace::Device(own)) => {
                let few = wanted.iter().map(|it| sessions_at(it.number)).min();
                let is_even = sessions_at(own.number) <= few.unwrap_or(0) + 1;
                is_even && wanted.iter().any(|it| Arc::ptr_eq(it, own))
            }
            (Err(Placing::At(_)), SessionPlace::Here) => true,
            _ => false,
        }
    }
}
