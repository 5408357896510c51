//! Life cycle of a device's sessions: availability, warm-up, activity and draining.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::super::away::NO_ACCOUNT;
use super::super::engine::{Absence, Activity, ForegroundRequest};
use super::super::{Attached, CallError, Isolation};
use super::variants::MethodEntry;
use super::{Device, DeviceParts, embedding, runnable};

impl Device {
    /// Returns the same models in processes of their own, which get the processor time that others
    /// leave. They are created at the first call.
    pub(in crate::service) async fn in_background(&self) -> Result<Arc<Self>, CallError> {
        let create = || async {
            let mut parts = self.parts.clone();
            parts.engines = parts.engines.in_background();
            parts.settings.isolation = Isolation::Process;
            parts.settings.instances = 1;
            let created = tokio::task::spawn_blocking(|| Self::new(parts)).await;
            match created {
                Ok(Ok(device)) => Ok(Arc::new(device)),
                Ok(Err(reason)) => Err(CallError::NoInstances(reason)),
                Err(error) => Err(CallError::Failed(error.to_string())),
            }
        };
        let device = self.in_background.get_or_try_init(create).await?;
        if self.drained.load(Ordering::Acquire) {
            return Err(CallError::Stopped);
        }
        Ok(Arc::clone(device))
    }

    /// Adds a request that others give way to.
    pub(in crate::service) fn begin_request(&self) -> ForegroundRequest {
        self.parts.engines.begin_request()
    }

    /// Returns the workers that run its models, if they do not run here.
    pub fn workers(&self) -> Option<&Arc<Attached>> {
        self.parts.workers.as_ref()
    }

    /// Returns the package's files, with those that its configs refer to.
    pub fn files(&self) -> &[PathBuf] {
        &self.parts.files
    }

    /// Returns the reason why no method can answer, optionally of one backend: the reason of the
    /// preferred method. Returns `None` if any method may answer.
    pub fn inactive_reason(&self, backend: Option<&str>) -> Option<String> {
        if let Some(workers) = self.workers() {
            return workers.inactive_reason();
        }
        let is_meant = |entry: &&MethodEntry| backend.is_none_or(|it| entry.backend.name() == it);
        let mut first = None;
        for entry in self.variants.entries.iter().filter(is_meant) {
            let absence = || Some(self.absence(entry)?.reason);
            let reason = entry.failure().or_else(absence)?;
            first.get_or_insert(reason);
        }
        first.or_else(|| Some("it lacks a model for this backend".to_owned()))
    }

    /// Returns whether a request is worth an attempt: a method may answer, or the pause after its
    /// failures is over.
    pub fn may_answer(&self) -> bool {
        if let Some(workers) = self.workers() {
            return workers.may_answer();
        }
        let mut entries = self.variants.entries.iter();
        let is_away = |it| self.absence(it).is_some_and(|it| !it.is_expected);
        entries.any(|it| !it.is_refused() && !is_away(it))
    }

    /// Returns whether all its methods wait for devices that are away. Workers, if they run its models, are not considered.
    pub fn waits_for_devices(&self) -> bool {
        let mut runnable = self.variants.entries.iter().filter(|it| it.model.is_ok());
        self.description.runnable && runnable.all(|it| self.absence(it).is_some())
    }

    /// Returns why a method cannot run now, if it is that its devices are away.
    fn absence(&self, entry: &MethodEntry) -> Option<Absence> {
        let DeviceParts {
            engines, settings, ..
        } = &self.parts;
        engines.absence(Some(entry.backend), settings)
    }

    /// Returns the current activity of all its endpoints.
    pub fn activity(&self) -> Activity {
        let activities = self.endpoints().map(|endpoint| endpoint.activity());
        let entries = self.variants.entries.iter();
        let generators = entries.filter_map(|entry| entry.generator.get());
        let elsewhere = self.workers().map(|workers| workers.activity());
        let (waiting, running) = elsewhere.unwrap_or_default();
        let generating: usize = generators.map(|generator| generator.waiting()).sum();
        let first = Activity {
            waiting: waiting + generating,
            running,
            ..Activity::default()
        };
        activities.fold(first, |sum, one| Activity {
            waiting: sum.waiting + one.waiting,
            running: sum.running + one.running,
            sessions: sum.sessions + one.sessions,
            runs: sum.runs + one.runs,
            crashes: sum.crashes + one.crashes,
        })
    }

    /// Loads the model that a request without a config would run. Does nothing if such a request is
    /// rejected, because one of several components would be a guess.
    pub async fn warm(&self) -> Result<(), CallError> {
        if self.workers().is_some() {
            return Ok(());
        }
        let Ok(entry) = self.chosen(None) else {
            return Ok(());
        };
        let model = runnable(entry)?;
        if entry.generates() {
            return self.generator(entry)?.warm().await;
        }
        let endpoint = self.endpoint(entry, model)?;
        if let Some(text) = entry
            .text
            .as_ref()
            .filter(|text| text.embeds(&model.signature))
        {
            let client = self.parts.engines.parsers(NO_ACCOUNT);
            let embedder = text.embedder(&entry.embedder, &self.tokenizers, model, &client);
            return embedding::try_text(endpoint, embedder.await?, client).await;
        }
        endpoint.warm().await
    }

    /// Rejects new requests, finishes the pending ones and ends the sessions.
    pub async fn drain(&self) {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.drained.store(true, Ordering::Release);
        drop(making);
        // A device that is created just now sees the flag, and gets no request.
        if let Some(device) = self.in_background.get() {
            Box::pin(device.drain()).await;
        }
        // All endpoints start to drain before any is waited for.
        let endings = self.endpoints().cloned().map(|endpoint| {
            tokio::spawn(async move {
                endpoint.drain().await;
            })
        });
        let endings: Vec<_> = endings.collect();
        for ending in endings {
            if let Err(error) = ending.await {
                tracing::error!(%error, "draining an endpoint failed");
            }
        }
    }
}
