//! The devices of a server: phones and boards on which sessions live.
//!
//! A thread of each device connects with it, and checks that it is still there.
//!
//! Invariant: a session lives on a device only as long as the connection in which it was loaded. Locks are held for
//! bookkeeping only.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::ledger::Ledger;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::device::{DeviceAddress, DeviceError, DeviceOptions, RemoteDevice};

/// Pause between two checks of a connected device.
const CHECK_PAUSE: Duration = Duration::from_secs(5);
/// First and longest pause between two attempts to connect with a device.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Time that requests wait for a device that left: one that restarts its connection comes back by then.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// A device of the server's settings.
#[derive(Debug, Clone)]
pub struct DeviceParameters {
    /// Its name for clients, logs and metrics.
    pub name: String,
    /// Its address.
    pub address: DeviceAddress,
    /// How it is used.
    pub options: DeviceOptions,
    /// The backends whose models run there; empty: all.
    pub backends: Vec<Backend>,
    /// Maximum memory of all sessions there, in bytes; 0: half of its memory.
    pub memory_budget: u64,
}

impl DeviceParameters {
    /// Returns a text with the name of the device instead of its address, which clients must not see.
    pub(super) fn without_address(&self, text: &str) -> String {
        text.replace(&self.address.to_string(), &self.name)
    }
}

/// A device, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// The reason why it cannot be used; `None` if it is connected.
    pub away: Option<String>,
}

/// The devices of a server. Dropping it ends the connections.
#[derive(Debug)]
pub(super) struct Devices {
    all: Vec<Arc<ServedDevice>>,
    followers: Arc<Followers>,
}

type Followers = Mutex<Vec<Weak<dyn DeviceFollower>>>;

/// A device with its current state.
#[derive(Debug)]
pub(super) struct ServedDevice {
    number: usize,
    parameters: Arc<DeviceParameters>,
    state: Mutex<DeviceState>,
    /// Wakes its thread.
    wake: Condvar,
    stopped: AtomicBool,
    followers: Arc<Followers>,
}

/// Follows the devices of a server.
pub trait DeviceFollower: fmt::Debug + Send + Sync {
    /// Is called after a device was connected, or left.
    fn devices_changed(&self);
}

#[derive(Debug, Default)]
struct DeviceState {
    link: Link,
    /// The device, once it was connected.
    known: Option<KnownDevice>,
}

/// Whether a device can be used.
#[derive(Debug, Default)]
enum Link {
    /// It is being connected for the first time.
    #[default]
    New,
    /// The connection is being checked.
    Suspected(Arc<DeviceConnection>),
    Connected(Arc<DeviceConnection>),
    Away {
        reason: String,
        since: Instant,
    },
}

/// Why a device, or all devices of a model, are away.
#[derive(Debug)]
pub(in super::super) struct Absence {
    /// The reason, for clients.
    pub(in super::super) reason: String,
    /// Whether one is most likely back in a moment.
    pub(in super::super) is_expected: bool,
}

/// A device that was connected once.
#[derive(Debug, Clone)]
struct KnownDevice {
    remote: Arc<RemoteDevice>,
    ledger: Arc<Ledger>,
    /// The backends that it runs by engines of their own.
    native: Vec<Backend>,
}

/// A connection with a device, from one connect to its end.
#[derive(Debug)]
pub(super) struct DeviceConnection {
    /// The number of its device.
    pub(super) number: usize,
    pub(super) remote: Arc<RemoteDevice>,
    /// The memory of its sessions.
    pub(super) ledger: Arc<Ledger>,
    pub(super) parameters: Arc<DeviceParameters>,
    native: Vec<Backend>,
}

impl DeviceConnection {
    /// Returns whether it runs a backend by an engine of its own.
    pub(super) fn is_native(&self, backend: Option<Backend>) -> bool {
        backend.is_some_and(|backend| self.native.contains(&backend))
    }
}

impl Devices {
    /// Connects with the devices in the background.
    pub(super) fn start(all: Vec<DeviceParameters>) -> Self {
        let followers = Arc::<Followers>::default();
        let all = all.into_iter().enumerate().map(|(number, parameters)| {
            let device = Arc::new(ServedDevice {
                number,
                parameters: Arc::new(parameters),
                state: Mutex::default(),
                wake: Condvar::new(),
                stopped: AtomicBool::new(false),
                followers: Arc::clone(&followers),
            });
            if let Err(error) = device.start() {
                device.set(Link::Away {
                    reason: format!("cannot start a thread: {error}"),
                    since: Instant::now(),
                });
            }
            device
        });
        Self {
            all: all.collect(),
            followers,
        }
    }

    /// Returns the devices on which models of a backend may run.
    pub(super) fn for_backend(
        &self,
        backend: Option<Backend>,
    ) -> impl Iterator<Item = &Arc<ServedDevice>> {
        self.all.iter().filter(move |device| {
            let backends = &device.parameters.backends;
            backends.is_empty() || backend.is_some_and(|backend| backends.contains(&backend))
        })
    }

    /// Calls a follower after each change, as long as it lives.
    pub(super) fn follow(&self, follower: Weak<dyn DeviceFollower>) {
        if self.all.is_empty() {
            return;
        }
        let mut followers = lock(&self.followers);
        followers.retain(|known| known.strong_count() > 0);
        followers.push(follower);
    }

    /// Checks a device whose connection seems to be lost. Sessions wait for the result.
    pub(super) fn suspect(&self, connection: &Arc<DeviceConnection>) {
        if let Some(device) = self.all.get(connection.number) {
            device.suspect(connection);
        }
    }

    /// Returns whether a connection is being checked.
    pub(super) fn is_suspected(&self, connection: &Arc<DeviceConnection>) -> bool {
        let device = self.all.get(connection.number);
        device.is_some_and(|device| {
            matches!(&device.state().link, Link::Suspected(now) if Arc::ptr_eq(now, connection))
        })
    }

    /// Makes those who wait for memory check again.
    pub(super) fn wake_ledgers(&self) {
        for device in &self.all {
            let ledger = device
                .state()
                .known
                .as_ref()
                .map(|it| Arc::clone(&it.ledger));
            if let Some(ledger) = ledger {
                ledger.wake();
            }
        }
    }

    /// Returns the state of all devices.
    pub(super) fn status(&self) -> Vec<DeviceStatus> {
        let status = self.all.iter().map(|device| DeviceStatus {
            name: device.name().to_owned(),
            away: match &device.state().link {
                Link::Connected(_) => None,
                Link::New | Link::Suspected(_) => Some("it is being connected".to_owned()),
                Link::Away { reason, .. } => Some(reason.clone()),
            },
        });
        status.collect()
    }

    /// Ends all connections.
    pub(super) fn stop(&self) {
        for device in &self.all {
            device.stop();
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServedDevice {
    fn name(&self) -> &str {
        &self.parameters.name
    }

    /// Returns the reason why it is away. Clients see its name, not its address.
    fn away(&self, error: &DeviceError) -> Link {
        Link::Away {
            reason: self.parameters.without_address(&error.to_string()),
            since: Instant::now(),
        }
    }

    /// Returns the connection, or why there is none.
    pub(super) fn connection(&self) -> Result<Arc<DeviceConnection>, Absence> {
        match &self.state().link {
            Link::Connected(connection) => Ok(Arc::clone(connection)),
            Link::New | Link::Suspected(_) => Err(Absence {
                reason: "its device is being connected".to_owned(),
                is_expected: true,
            }),
            Link::Away { reason, since } => Err(Absence {
                reason: format!("its device is away: {reason}"),
                is_expected: since.elapsed() < RETURN_TIME,
            }),
        }
    }

    fn suspect(&self, connection: &Arc<DeviceConnection>) {
        let mut state = self.state();
        if matches!(&state.link, Link::Connected(now) if Arc::ptr_eq(now, connection)) {
            state.link = Link::Suspected(Arc::clone(connection));
            drop(state);
            self.wake.notify_all();
        }
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let device = Arc::clone(self);
        let thread = Builder::new().name("device".to_owned());
        thread.spawn(move || device.keep_connected()).map(drop)
    }

    /// Connects, and checks the connection, until the server stops.
    fn keep_connected(&self) {
        let mut retry = FIRST_RETRY_PAUSE;
        loop {
            if self.stopped.load(Relaxed) {
                return;
            }
            let pause = match self.look() {
                Ok(link) => {
                    retry = FIRST_RETRY_PAUSE;
                    if let Some(link) = link {
                        self.set(link);
                    }
                    CHECK_PAUSE
                }
                Err(error) => {
                    self.set(self.away(&error));
                    let pause = retry;
                    retry = (retry * 2).min(MAX_RETRY_PAUSE);
                    pause
                }
            };
            let state = self.state();
            let waits = |state: &mut DeviceState| {
                let is_certain = matches!(state.link, Link::Connected(_) | Link::Away { .. });
                is_certain && !self.stopped.load(Relaxed)
            };
            let waited = self.wake.wait_timeout_while(state, pause, waits);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Connects, or checks the connection. Returns the new state, if it changed.
    fn look(&self) -> Result<Option<Link>, DeviceError> {
        let known = self.state().known.clone();
        let (known, is_new) = match known {
            Some(known) => {
                let is_new = known.remote.check()?;
                (known, is_new)
            }
            None => (self.connect()?, true),
        };
        match &self.state().link {
            Link::Connected(_) if !is_new => return Ok(None),
            // Only one session lost its connection. Others keep theirs.
            Link::Suspected(connection) if !is_new => {
                return Ok(Some(Link::Connected(Arc::clone(connection))));
            }
            _ => {}
        }
        Ok(Some(Link::Connected(Arc::new(DeviceConnection {
            number: self.number,
            remote: known.remote,
            ledger: known.ledger,
            parameters: Arc::clone(&self.parameters),
            native: known.native,
        }))))
    }

    /// Connects for the first time.
    fn connect(&self) -> Result<KnownDevice, DeviceError> {
        let DeviceParameters {
            address, options, ..
        } = &*self.parameters;
        let remote = RemoteDevice::open(address, options.clone())?;
        let report = remote.describe()?;
        let budget = match self.parameters.memory_budget {
            0 => report.machine.memory_bytes / 2,
            bytes => bytes,
        };
        let backends = remote.backends()?;
        let own = backends.iter().filter(|one| !one.fallback);
        let known = KnownDevice {
            native: own
                .filter_map(|one| Backend::from_name(&one.backend))
                .collect(),
            ledger: Ledger::new(budget),
            remote,
        };
        self.state().known = Some(known.clone());
        Ok(known)
    }

    /// Sets the state, and calls those who follow it.
    fn set(&self, mut link: Link) {
        let device = self.name();
        let mut state = self.state();
        match (&state.link, &mut link) {
            (Link::Away { reason: before, .. }, Link::Away { reason, .. }) if before == reason => {
                return;
            }
            (before, Link::Away { reason, since }) => {
                if let Link::Away { since: first, .. } = before {
                    *since = *first;
                }
                tracing::warn!(device, reason, "a device cannot be used");
            }
            (_, Link::Connected(connection)) => {
                let native: Vec<_> = connection.native.iter().map(|it| it.name()).collect();
                tracing::info!(
                    device,
                    backends = native.join(", "),
                    "a device is connected"
                );
            }
            (_, Link::New | Link::Suspected(_)) => {}
        }
        state.link = link;
        drop(state);
        // A follower may be dropped here, which must find the list unlocked.
        let followers = lock(&self.followers).clone();
        for follower in followers.iter().filter_map(Weak::upgrade) {
            follower.devices_changed();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Relaxed);
        let known = self.state().known.clone();
        if let Some(known) = known {
            known.remote.close();
        }
        self.wake.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
