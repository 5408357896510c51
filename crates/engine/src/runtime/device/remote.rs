//! A device as this program uses it: files are placed there, and workers are started there.
//!
//! Invariant: what fails because the connection broke is tried again, and goes on where it broke off.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use super::address::DeviceAddress;
use super::describe::SensorReading;
use super::error::DeviceError;
use super::files::{SentModel, stored};
use super::hashes::KnownHashes;
use super::install::Installed;
use super::options::DeviceOptions;
use super::protocol::{
    AgentReply, AgentRequest, DeviceBackend, DeviceFile, DeviceReport, MAX_PART_BYTES, Removed,
};
use crate::LoadOptions;
use crate::runtime::process::{Process, Stopper, frame};
use crate::surroundings::Surroundings;

/// Number of attempts of a request, and the pause before each further one.
const ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long an agent may take for an answer: it reads whole files to check them.
const ANSWER_PATIENCE: Duration = Duration::from_mins(5);
/// Pause before a file is offered again that another caller is sending.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// A device that is connected.
#[derive(Debug)]
pub struct RemoteDevice {
    address: DeviceAddress,
    options: DeviceOptions,
    hashes: KnownHashes,
    installed: Mutex<Installed>,
    /// The agent that places files. Its folders stay as long as it lives.
    agent: Mutex<Option<Agent>>,
    surroundings: Mutex<Surroundings>,
    /// Ends the agent from another thread.
    stopper: Mutex<Option<Stopper>>,
    closed: AtomicBool,
}

/// The output of `pkgtool backends --json`, as far as it is used.
#[derive(Deserialize)]
struct PrintedBackends {
    backends: Vec<PrintedBackend>,
}

/// A backend and the engine that runs it, if one does.
#[derive(Deserialize)]
struct PrintedBackend {
    backend: Option<String>,
    engine: Option<String>,
    provider: Option<String>,
    fallback: Option<bool>,
}

/// A connected agent.
#[derive(Debug)]
struct Agent {
    process: Process,
    /// Places of files and models on the device.
    placed: HashMap<PathBuf, PathBuf>,
}

/// Why a request got no answer.
enum AskError {
    /// The connection ended; the reason.
    Lost(String),
    Other(DeviceError),
}

impl RemoteDevice {
    /// Connects with a device. The tool's binary is sent if it is not there.
    pub fn open(address: &DeviceAddress, options: DeviceOptions) -> Result<Arc<Self>, DeviceError> {
        let hashes = KnownHashes::read(options.hashes.clone());
        let installed = Installed::on(address, (&options, &hashes))?;
        let device = Self {
            address: address.clone(),
            options,
            hashes,
            installed: Mutex::new(installed),
            agent: Mutex::default(),
            surroundings: Mutex::default(),
            stopper: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        let agent = device.connect()?;
        *lock(&device.agent) = Some(agent);
        Ok(Arc::new(device))
    }

    /// Returns its address.
    pub fn address(&self) -> &DeviceAddress {
        &self.address
    }

    /// Returns what its processes find there.
    pub(in crate::runtime) fn surroundings(&self) -> Surroundings {
        lock(&self.surroundings).clone()
    }

    /// Describes the device.
    pub fn describe(&self) -> Result<DeviceReport, DeviceError> {
        self.with_agent("describing the device", |agent| {
            match agent.ask(&AgentRequest::Describe)? {
                AgentReply::Report(report) => Ok(*report),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Returns what its sensors say now.
    pub fn sense(&self) -> Result<SensorReading, DeviceError> {
        self.with_agent("reading its sensors", |agent| {
            match agent.ask(&AgentRequest::Sense)? {
                AgentReply::Sensed(reading) => Ok(reading),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Runs a command of the tool there. Returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> Result<String, DeviceError> {
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        let request = AgentRequest::Command(arguments);
        self.with_agent("running a command", |agent| match agent.ask(&request)? {
            AgentReply::Printed { output, errors } if output.is_empty() => {
                Err(refused(errors.trim().to_owned()))
            }
            AgentReply::Printed { output, .. } => Ok(output),
            other => Err(unexpected(&other)),
        })
    }

    /// Returns the backends that run a small model there.
    pub fn backends(&self) -> Result<Vec<DeviceBackend>, DeviceError> {
        let library = self.library()?;
        let library = library.as_deref().and_then(Path::to_str);
        let mut arguments = vec!["backends", "--on", "local", "--json"];
        if let Some(library) = library {
            arguments.extend(["--ort-lib", library]);
        }
        let printed = self.run(&arguments)?;
        let tested: PrintedBackends =
            serde_json::from_str(&printed).map_err(|error| DeviceError::Refused {
                device: self.address.to_string(),
                reason: format!("unexpected list of backends: {error}"),
            })?;
        let run = tested.backends.into_iter().filter_map(|one| {
            Some(DeviceBackend {
                backend: one.backend?,
                engine: one.engine?,
                provider: one.provider?,
                fallback: one.fallback.unwrap_or(false),
            })
        });
        Ok(run.collect())
    }

    /// Checks that the device answers, by one attempt. Returns whether it had to connect again.
    pub fn check(&self) -> Result<bool, DeviceError> {
        // The thread that holds the agent is using it.
        let Ok(mut held) = self.agent.try_lock() else {
            return Ok(false);
        };
        let is_new = held.is_none();
        let hello = AgentRequest::Hello { hash: false };
        self.attempt(&mut held, "checking the connection", |agent| {
            agent.ask(&hello).map(drop)
        })?;
        Ok(is_new)
    }

    /// Ends the connection for good.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Some(stopper) = lock(&self.stopper).take() {
            stopper.stop();
        }
    }

    /// Returns the place of the first library that the user named, which is put on the device.
    pub fn library(&self) -> Result<Option<PathBuf>, DeviceError> {
        let first = self.options.libraries.first();
        first.map(|library| self.place_library(library)).transpose()
    }

    /// Removes all files of the tool from the device.
    pub fn clean(&self) -> Result<Removed, DeviceError> {
        self.with_agent("removing its files", |agent| {
            match agent.ask(&AgentRequest::Clean)? {
                AgentReply::Cleaned(removed) => Ok(removed),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Puts a model on the device, with the libraries for it. Returns their places there.
    pub(in crate::runtime) fn localized(
        &self,
        model: &Path,
        options: &LoadOptions,
    ) -> Result<(PathBuf, LoadOptions), DeviceError> {
        let model = self.place_model(model)?;
        let mut options = options.clone();
        // A path of this machine says nothing there.
        options.library = self.library()?;
        Ok((model, options))
    }

    fn place_library(&self, library: &Path) -> Result<PathBuf, DeviceError> {
        self.place(library, || {
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            let all = self.options.libraries.iter().map(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Ok((stored(name.into_owned(), path, &self.hashes)?, path.clone()))
            });
            Ok(SentModel {
                model: name.into_owned(),
                files: all.collect::<Result<_, DeviceError>>()?,
            })
        })
    }

    fn place_model(&self, model: &Path) -> Result<PathBuf, DeviceError> {
        self.place(model, || SentModel::of(model, &self.hashes))
    }

    /// Puts files on the device, unless they are there. Returns the place of the one that is named.
    fn place(
        &self,
        path: &Path,
        read: impl Fn() -> Result<SentModel, DeviceError>,
    ) -> Result<PathBuf, DeviceError> {
        self.with_agent("sending files", |agent| {
            if let Some(place) = agent.placed.get(path) {
                return Ok(place.clone());
            }
            let files = read().map_err(AskError::Other)?;
            let folder = agent.place(&files, &self.options)?;
            let place = Path::new(&folder).join(&files.model);
            agent.placed.insert(path.to_owned(), place.clone());
            Ok(place)
        })
    }

    /// Starts a worker process on the device.
    pub(in crate::runtime) fn work(
        &self,
        variables: Vec<(String, String)>,
    ) -> Result<Process, DeviceError> {
        let mut process = self.start_agent()?;
        let request = AgentRequest::Work { variables };
        let sent = process.channel(Some(ANSWER_PATIENCE));
        let sent = sent.and_then(|channel| frame::send(channel.get_mut(), &request));
        match sent {
            Ok(()) => Ok(process),
            Err(error) => Err(DeviceError::Lost {
                device: self.address.to_string(),
                doing: "starting a worker",
                reason: process.end_after(&error).unwrap_or_default(),
            }),
        }
    }

    /// Starts an agent. The binary is sent again if it is gone.
    fn start_agent(&self) -> Result<Process, DeviceError> {
        let known = lock(&self.installed).clone();
        match known.start(&self.address, self.options.version) {
            Err(DeviceError::Program { .. }) => {
                let installed = Installed::on(&self.address, (&self.options, &self.hashes))?;
                let started = installed.start(&self.address, self.options.version)?;
                *lock(&self.installed) = installed;
                Ok(started)
            }
            started => started,
        }
    }

    /// Starts an agent for files, and checks a binary that was sent just now.
    fn connect(&self) -> Result<Agent, DeviceError> {
        let mut agent = Agent {
            process: self.start_agent()?,
            placed: HashMap::new(),
        };
        *lock(&self.stopper) = Some(agent.process.stopper());
        let installed = lock(&self.installed).clone();
        let hello = AgentRequest::Hello {
            hash: installed.is_new,
        };
        match agent.ask(&hello) {
            Ok(AgentReply::Hello {
                sha256,
                surroundings,
            }) => {
                if sha256.is_some_and(|found| found != installed.sha256) {
                    installed.remove(&self.address)?;
                    return Err(DeviceError::Refused {
                        device: self.address.to_string(),
                        reason: "the binary arrived with other bytes: run it again".to_owned(),
                    });
                }
                lock(&self.installed).is_new = false;
                *lock(&self.surroundings) = surroundings;
                Ok(agent)
            }
            Ok(other) => Err(self.named(DeviceError::Refused {
                device: String::new(),
                reason: format!("unexpected answer: {other:?}"),
            })),
            Err(AskError::Other(error)) => Err(self.named(error)),
            Err(AskError::Lost(reason)) => Err(DeviceError::Lost {
                device: self.address.to_string(),
                doing: "greeting it",
                reason,
            }),
        }
    }

    /// Works with the agent. After a broken connection it connects again, and begins the work anew.
    fn with_agent<T>(
        &self,
        doing: &'static str,
        mut work: impl FnMut(&mut Agent) -> Result<T, AskError>,
    ) -> Result<T, DeviceError> {
        let mut held = lock(&self.agent);
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.attempt(&mut held, doing, &mut work) {
                Ok(done) => return Ok(done),
                Err(error) if attempt >= ATTEMPTS || !error.is_lost() => return Err(error),
                Err(_) => std::thread::sleep(RETRY_PAUSE * attempt),
            }
        }
    }

    /// Works with the agent once. Connects first if there is no connection.
    fn attempt<T>(
        &self,
        held: &mut Option<Agent>,
        doing: &'static str,
        work: impl FnOnce(&mut Agent) -> Result<T, AskError>,
    ) -> Result<T, DeviceError> {
        if self.closed.load(Relaxed) {
            return Err(DeviceError::Refused {
                device: self.address.to_string(),
                reason: "the connection was closed".to_owned(),
            });
        }
        let mut agent = match held.take() {
            Some(agent) => agent,
            None => self.connect()?,
        };
        match work(&mut agent) {
            Ok(done) => {
                *held = Some(agent);
                Ok(done)
            }
            Err(AskError::Lost(reason)) => Err(DeviceError::Lost {
                device: self.address.to_string(),
                doing,
                reason,
            }),
            Err(AskError::Other(error)) => {
                *held = Some(agent);
                Err(self.named(error))
            }
        }
    }

    /// Names this device in an error of its agent.
    fn named(&self, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::Refused { reason, .. } => DeviceError::Refused {
                device: self.address.to_string(),
                reason,
            },
            other => other,
        }
    }
}

impl Agent {
    fn ask(&mut self, request: &AgentRequest) -> Result<AgentReply, AskError> {
        let answered = self.exchange(request);
        match answered {
            Ok(AgentReply::Failed(reason)) => Err(refused(reason)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn exchange(&mut self, request: &AgentRequest) -> io::Result<AgentReply> {
        let channel = self.process.channel(Some(ANSWER_PATIENCE))?;
        frame::send(channel.get_mut(), request)?;
        frame::receive(channel)
    }

    fn lost(&mut self, error: &io::Error) -> AskError {
        let reason = self.process.end_after(error);
        AskError::Lost(reason.unwrap_or_else(|| "it does not answer".to_owned()))
    }

    /// Puts files on the device, unless they are there. Returns a folder of them.
    fn place(&mut self, files: &SentModel, options: &DeviceOptions) -> Result<String, AskError> {
        let described: Vec<DeviceFile> = files.files.iter().map(|(file, _)| file.clone()).collect();
        let missing = AgentRequest::Missing {
            files: described.clone(),
            most: options.most_bytes,
        };
        let missing = match self.ask(&missing)? {
            AgentReply::Missing(missing) => missing,
            other => return Err(unexpected(&other)),
        };
        for position in missing {
            if let Some((file, place)) = files.files.get(position) {
                self.put(file, place, options)?;
            }
        }
        match self.ask(&AgentRequest::Folder(described))? {
            AgentReply::Folder(folder) => Ok(folder),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a file, from where an earlier attempt broke off.
    fn put(
        &mut self,
        file: &DeviceFile,
        place: &Path,
        options: &DeviceOptions,
    ) -> Result<(), AskError> {
        let offset = loop {
            match self.ask(&AgentRequest::Put(file.clone()))? {
                AgentReply::Stored => return Ok(()),
                AgentReply::Busy => std::thread::sleep(BUSY_PAUSE),
                AgentReply::SendFrom(offset) => break offset.min(file.size),
                other => return Err(unexpected(&other)),
            }
        };
        let fault = |error: io::Error| {
            AskError::Other(DeviceError::File {
                path: place.to_owned(),
                error,
            })
        };
        let mut source = File::open(place).map_err(fault)?;
        source.seek(SeekFrom::Start(offset)).map_err(fault)?;
        let mut buffer = vec![0; MAX_PART_BYTES];
        let mut sent = offset;
        while sent < file.size {
            let left = usize::try_from(file.size - sent).unwrap_or(usize::MAX);
            let part = &mut buffer[..left.min(MAX_PART_BYTES)];
            source.read_exact(part).map_err(fault)?;
            let channel = self.process.channel(Some(ANSWER_PATIENCE));
            let written = channel.and_then(|channel| channel.get_mut().write_all(part));
            if let Err(error) = written {
                return Err(self.lost(&error));
            }
            sent += part.len() as u64;
            (options.sent)(&file.path, sent, file.size);
        }
        let reply = self
            .process
            .channel(Some(ANSWER_PATIENCE))
            .and_then(frame::receive);
        match reply {
            Ok(AgentReply::Stored) => Ok(()),
            Ok(AgentReply::Failed(reason)) => Err(refused(reason)),
            Ok(other) => Err(unexpected(&other)),
            Err(error) => Err(self.lost(&error)),
        }
    }
}

fn unexpected(reply: &AgentReply) -> AskError {
    refused(format!("unexpected answer: {reply:?}"))
}

/// Returns an error of an agent, which does not know the device's name.
fn refused(reason: String) -> AskError {
    AskError::Other(DeviceError::Refused {
        device: String::new(),
        reason,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
