//! The place of a session: this machine, or a device that takes the backend of its model.
//!
//! Invariant: while a device that runs the backend by an engine of its own is connected, no other one is used.

use std::sync::Arc;

use super::devices::{Absence, DeviceConnection, Devices};
use super::ledger::Ledger;
use crate::service::{RunOn, ServiceSettings, WithoutDevice};
use pkgtool_base::package::Backend;

/// The place of a session.
#[derive(Debug, Clone)]
pub(super) enum SessionPlace {
    /// On this machine.
    Here,
    /// On a device.
    Device(Arc<DeviceConnection>),
}

/// The place of an endpoint's next session.
#[derive(Debug)]
pub(super) enum Placing {
    At(SessionPlace),
    /// Nowhere, because its devices are away.
    Nowhere(Absence),
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
        let (mut connected, mut absences) = (Vec::new(), Vec::new());
        for device in self.for_backend(backend) {
            match device.connection() {
                Ok(connection) => connected.push(connection),
                Err(absence) => absences.push(absence),
            }
        }
        if connected.iter().any(|it| it.is_native(backend)) {
            connected.retain(|it| it.is_native(backend));
        }
        if !connected.is_empty() {
            return Ok(connected);
        }
        if absences.is_empty() || settings.without_device == WithoutDevice::Here {
            return Err(here());
        }
        let is_expected = absences.iter().any(|it| it.is_expected);
        let reasons: Vec<String> = absences.into_iter().map(|it| it.reason).collect();
        Err(Placing::Nowhere(Absence {
            reason: reasons.join("; "),
            is_expected,
        }))
    }

    /// Returns why models of a backend cannot run now, if it is that their devices are away.
    pub(super) fn absence(
        &self,
        backend: Option<Backend>,
        settings: &ServiceSettings,
    ) -> Option<Absence> {
        match self.wanted(backend, settings) {
            Err(Placing::Nowhere(absence)) => Some(absence),
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
            // Most likely another session alone lost its connection.
            (_, SessionPlace::Device(own)) if self.is_suspected(own) => true,
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
